package test

import (
	"fmt"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
)

// halt stops a process and returns, when all its threads have stopped, what lets it go on. The signal alone is not
// enough: where threads wait for processors they go on for a while, and answer what comes meanwhile.
func halt(t *testing.T, pid int) (resume func()) {
	t.Helper()
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	var once sync.Once
	resume = func() { once.Do(func() { _ = syscall.Kill(pid, syscall.SIGCONT) }) }
	t.Cleanup(resume) // whatever the test does: a stopped core would keep the node from stopping
	eventually(t, "the process stops", func() bool { return stopped(pid) })
	return resume
}

// stopped reports whether all threads of a process have stopped.
func stopped(pid int) bool {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	if err != nil {
		return false
	}
	for _, name := range threads {
		if f := statFields(name); len(f) == 0 || f[0] != "T" {
			return false
		}
	}
	return true
}
