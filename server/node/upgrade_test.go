package node_test

import (
	"fmt"
	"os"
	"sync"
	"syscall"
	"testing"

	"github.com/rdmad/rdmad/internal/daemontest"
)

// When the core is replaced, nobody notices more than a pause: requests that have not begun are
// handled by the next one.
func TestUpgrade(t *testing.T) {
	a, b := daemontest.Pair(t, "")
	ctx, c := inTime(t), attach(t, a)
	before, err := b.Core()
	if err != nil {
		t.Fatal(err)
	}
	over := make(chan struct{})
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for calls := 0; ; calls++ {
				select {
				case <-over:
					if calls == 0 {
						t.Error("no calls")
					}
					return
				default:
				}
				if p, err := c.Call(ctx, "b/t/echo", []byte("x")); err != nil || string(p) != "x" {
					t.Errorf("call %d: %q, %v", calls, p, err)
					return
				}
			}
		})
		// Handlers that are not inline, some of which are under way at any time.
		wg.Go(func() {
			for calls := 0; ; calls++ {
				select {
				case <-over:
					return
				default:
				}
				if _, err := c.Call(ctx, "b/t/outdoze", make([]byte, 50)); err != nil {
					t.Errorf("call %d of a handler that takes 50 ms: %v", calls, err)
					return
				}
			}
		})
	}
	// Both supervisors are in this process.
	if err := syscall.Kill(os.Getpid(), syscall.SIGUSR2); err != nil {
		t.Fatal(err)
	}
	daemontest.Eventually(t, "another core", func() error {
		if now, err := b.Core(); err != nil || now == before {
			return fmt.Errorf("core %d: %w", now, err)
		}
		return nil
	})
	close(over)
	wg.Wait()
	if !onAgent(ctx, t, c, "thread") {
		t.Error("the agent of the new core handles nothing")
	}
}
