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
	_, b := daemontest.Pair(t, tiny)
	serve(t, b, 8, handlers{"slow": func(*server.Call) error { time.Sleep(2 * time.Millisecond); return nil }})
	c := attachTo(t, b)
	slow, echo := method(t, c, "b/t/slow"), method(t, c, "b/t/echo")
	stop := make(chan struct{})
	var wg sync.WaitGroup
	var short atomic.Int64
	for range 100 {
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

// A stream goes on, although the ring is full of calls that last, and more of those wait for room than end while its lease lasts.
func TestStreamBesideManyLongCalls(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes 6 s, after which what has begun waits behind nobody: without -short")
	}
	_, b := daemontest.Pair(t, tiny)
	let, say := make(chan struct{}), make(chan string)
	var began atomic.Int64
	serve(t, b, 100, handlers{"long": func(*server.Call) error { began.Add(1); <-let; return nil }})
	serveStreams(t, b, streams{"news": func(s *server.Stream) error {
		for msg := range say {
			if err := s.Send([]byte(msg)); err != nil {
				return err
			}
		}
		return nil
	}})
	c := attachTo(t, b)
	news, long := open(t, c, "b/t/news"), method(t, c, "b/t/long")
	const callers = 400
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() { _, _ = long.Call(ctx, nil) })
	}
	defer within(t, "callers", wg.Wait)
	defer close(let)
	defer cancel()
	daemontest.Eventually(t, "the ring is full", func() error {
		if n := began.Load(); n < 48 {
			return fmt.Errorf("%d calls are under way", n)
		}
		return nil
	})
	stop := make(chan struct{})
	var ending sync.WaitGroup
	ending.Go(func() {
		for tick := time.NewTicker(50 * time.Millisecond); ; {
			select {
			case <-stop:
				tick.Stop()
				return
			case <-tick.C:
				let <- struct{}{}
			}
		}
	})
	for _, want := range []string{"first", "second"} {
		say <- want
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		got, err := news.Recv(ctx)
		cancel()
		if err != nil || string(got) != want {
			t.Errorf("%q, %v, want %q", got, err, want)
			break
		}
	}
	close(say)
	close(stop)
	within(t, "the one who ends calls", ending.Wait)
	if n := began.Load(); n > callers*3/4 {
		t.Errorf("%d of %d calls have begun before the stream went on", n, callers)
	}
}
