package daemon

import (
	"os"

	"github.com/rdmad/rdmad/internal/cgroup"
)

// Segments leave so much of the memory that there is: the core itself grows, and takes more for each process that attaches and
// each connection. Lanes, and answers that are moved out of them, may have what regions, of which a process can make many, must leave.
const (
	leftByRegions = 64 << 20
	leftByLanes   = 32 << 20
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
