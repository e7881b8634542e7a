package daemontest

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
)

// AllocatedEnv is the environment variable that names a directory: cores that are started
// while it is set can tell how much they have allocated.
const AllocatedEnv = "RDMAD_TEST_ALLOCATED"

// tellAllocated makes this process, a core, write how many objects it has allocated to a
// file of its own whenever it gets a SIGWINCH, which means nothing to a core.
func tellAllocated(dir string) {
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, syscall.SIGWINCH)
	go func() {
		var m runtime.MemStats
		name := allocatedFile(dir, os.Getpid())
		for range asked {
			runtime.ReadMemStats(&m)
			// Whoever asks sees all of it or nothing, and asks again if it cannot be written.
			if os.WriteFile(name+".new", strconv.AppendUint(nil, m.Mallocs, 10), 0o600) == nil {
				_ = os.Rename(name+".new", name)
			}
		}
	}()
}

func allocatedFile(dir string, pid int) string { return filepath.Join(dir, strconv.Itoa(pid)) }

// Allocated returns how many objects a core has allocated since it was started. The
// environment of this process must have had AllocatedEnv by then, and must have it now.
func Allocated(core int) (n uint64, err error) {
	name := allocatedFile(os.Getenv(AllocatedEnv), core)
	if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return 0, err
	}
	if err := syscall.Kill(core, syscall.SIGWINCH); err != nil {
		return 0, err
	}
	return n, Poll(fmt.Sprintf("core %d says what it has allocated", core), func() error {
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		n, err = strconv.ParseUint(string(text), 10, 64)
		return err
	})
}
