package node_test

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"github.com/rdmad/rdmad/internal/daemontest"
)

// When the core is replaced, nobody notices more than a pause: requests that have not begun are
// handled by the next one.
func TestUpgrade(t *testing.T) {
	a, b := daemontest.Pair(t, "")
	ctx, c := patientContext(t), attach(t, a)
	before, err := b.Core()
	if err != nil {
		t.Fatal(err)
	}
	over := make(chan struct{})
	var wg sync.WaitGroup
	// Node a is replaced, too: those that are attached to b need no link.
	near := attach(t, b)
	for i := range 4 {
		c, target := c, "b/t/echo"
		if i%2 == 0 {
			c, target = near, "t/echo"
		}
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
				if p, err := c.Call(ctx, target, []byte("x")); err != nil || string(p) != "x" {
					t.Errorf("call %d: %q, %v", calls, p, err)
					return
				}
			}
		})
	}
	// A handler that is not inline is under way, and ends only after the core was told to hand over.
	begun := filepath.Join(t.TempDir(), "begun")
	f := goTo(ctx, t, near, "t/outlast", begun)
	awaitFile(t, begun)
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
	if _, err := f.Wait(ctx); err != nil {
		t.Errorf("a call whose handler was under way: %v", err)
	}
	close(over)
	wg.Wait()
	if !onAgent(ctx, t, c, "thread") {
		t.Error("the agent of the new core handles nothing")
	}
}
