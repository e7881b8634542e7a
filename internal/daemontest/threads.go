package daemontest

import (
	"os"
	"sync/atomic"
	"testing"
	"time"
)

// Threads returns how many threads the process has.
func Threads(t testing.TB) int {
	t.Helper()
	n, err := threads()
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func threads() (int, error) {
	entries, err := os.ReadDir("/proc/self/task")
	return len(entries), err
}

// WatchThreads counts the threads of the process every millisecond until stop is
// called, which returns the largest number. It takes one thread itself.
func WatchThreads() (stop func() (most int, err error)) {
	var most atomic.Int64
	quit, over := make(chan struct{}), make(chan error, 1)
	go func() {
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for {
			n, err := threads()
			if err != nil {
				over <- err
				return
			}
			most.Store(max(most.Load(), int64(n)))
			select {
			case <-quit:
				over <- nil
				return
			case <-tick.C:
			}
		}
	}()
	return func() (int, error) {
		close(quit)
		err := <-over
		return int(most.Load()), err
	}
}

// RuntimeThreads are threads that a process has besides those that run goroutines, of
// which there are as many as processors (Ps), and those that sleep in the kernel: the
// runtime's monitor, an idle one in the poller, one that looks for work, and one that
// starts others.
const RuntimeThreads = 4
