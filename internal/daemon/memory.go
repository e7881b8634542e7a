package daemon

import (
	"os"

	"github.com/rdmad/rdmad/internal/cgroup"
)

// memory returns how many bytes more this process may take, and what says so.
var memory = func() (uint64, string) { return cgroup.Memory(os.DirFS("/"), "proc/self") }

// leaving returns what tells shm.Create how many bytes there are, but for some that are to be left.
func leaving(some uint64) func() (uint64, string) {
	return func() (uint64, string) {
		n, by := memory()
		return n - min(n, some), by
	}
}
