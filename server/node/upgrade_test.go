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
	}
	// A handler that is not inline is under way, and takes longer than it takes to ask for versions.
	begun := filepath.Join(t.TempDir(), "begun")
	slow, err := c.Method(ctx, "b/t/slow")
	if err != nil {
		t.Fatal(err)
	}
	f, err := slow.Go(ctx, []byte(begun))
	if err != nil {
		t.Fatal(err)
	}
	waitForFile(ctx, begun)
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
