package test

import (
	"sync"
	"syscall"
	"testing"

	"github.com/rdmad/rdmad/internal/daemontest"
)

// halt stops a process and returns, when all its threads have stopped, what lets it go on. The signal alone is not
// enough: where threads wait for processors they go on for a while, and answer what comes meanwhile.
func halt(t *testing.T, pid int) (resume func()) {
	t.Helper()
	resume = sync.OnceFunc(func() { _ = syscall.Kill(pid, syscall.SIGCONT) })
	t.Cleanup(resume) // whatever the test does: a stopped core would keep the node from stopping
	if err := daemontest.StopProcess(pid); err != nil {
		t.Fatal(err)
	}
	return resume
}
