package client_test

import (
	"context"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rdmad/rdmad/internal/daemontest"
	"github.com/rdmad/rdmad/server"
)

// A request that needs many slots gets them in the end, although others of the process never
// leave the ring empty.
func TestLongRunBesideShortOnes(t *testing.T) {
	testLongRunBesideShortOnes(t, tiny, 100, 2*time.Millisecond)
}

// The same where there are several lanes, and none of them ever has room for it by itself.
func TestLongRunInSeveralLanes(t *testing.T) {
	testLongRunBesideShortOnes(t, tiny+"[lanes]\nper_peer = 2\n", 300, 50*time.Millisecond)
}

// testLongRunBesideShortOnes has callers make short requests that take some time each.
func testLongRunBesideShortOnes(t *testing.T, cfg string, callers int, each time.Duration) {
	_, b := daemontest.Pair(t, cfg)
	serve(t, b, 8, handlers{"slow": func(*server.Call) error { time.Sleep(each); return nil }})
	c := attachTo(t, b)
	slow, echo := method(t, c, "b/t/slow"), method(t, c, "b/t/echo")
	stop := make(chan struct{})
	var wg sync.WaitGroup
	var short atomic.Int64
	for range callers {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if _, err := slow.Call(t.Context(), nil); err != nil {
					t.Error(err)
				}
				short.Add(1)
			}
		})
	}
	daemontest.Eventually(t, "the ring is in use", func() error {
		if n := short.Load(); n < 200 {
			return fmt.Errorf("%d calls were made", n)
		}
		return nil
	})
	for range 5 {
		// One that is starved is each time; a thread that stands still is not.
		least := int64(math.MaxInt64)
		for try := 0; try < 3 && least > 5000; try++ {
			before := short.Load()
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			_, err := echo.Call(ctx, make([]byte, 1900)) // 16 slots of 64
			cancel()
			if err != nil {
				t.Fatal(err)
			}
			least = min(least, short.Load()-before)
		}
		if least > 5000 {
			t.Errorf("%d short requests have passed it", least)
		}
	}
	close(stop)
	within(t, "callers", wg.Wait)
}
