package client_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rdmad/rdmad/client"
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
		for try := 0; try < 10 && least > 5000; try++ {
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

// Requests that handlers make while they hold slots themselves are not kept from those that are free by a long one that has waited for
// longer: it would wait for the handlers, and they for it.
func TestNestedCallsBesideALongRequest(t *testing.T) {
	_, b := daemontest.Pair(t, tiny)
	g := newGate()
	defer g.Open()
	c := attachTo(t, b)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var inner *client.Method
	nested, full := make(chan struct{}), make(chan struct{}, 8)
	serve(t, b, 64, handlers{"gate": g.handle, "outer": func(*server.Call) error {
		g.entered <- struct{}{}
		<-nested
		if _, err := inner.With(client.NoWait()).Call(ctx, nil); !errors.Is(err, client.ErrBackpressure) {
			t.Errorf("the ring is not full: %v", err)
		}
		full <- struct{}{}
		_, err := inner.Call(ctx, nil)
		return err
	}})
	inner = method(t, c, "b/t/echo").With(client.AnswerSize(8))
	outer, gate, echo := method(t, c, "b/t/outer"), method(t, c, "b/t/gate"), method(t, c, "b/t/echo")
	var outers []*client.Future
	for i := range 64 { // one in eight of those that fill the ring: there is room in between, but not for a long one
		m := gate
		if i%8 == 0 {
			m = outer
		}
		f, err := m.Go(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if i%8 == 0 {
			outers = append(outers, f)
		}
	}
	for range 64 {
		<-g.entered
	}
	long := make(chan error, 1)
	go func() { _, err := echo.Call(ctx, make([]byte, 1900)); long <- err }() // 16 slots of 64
	daemontest.Eventually(t, "the long request waits", func() error {
		if !client.Claiming(c) {
			return errors.New("nobody waits for room")
		}
		return nil
	})
	close(nested)
	for range 8 {
		<-full
	}
	g.Open()
	for i, f := range outers {
		if _, err := f.Wait(t.Context()); err != nil {
			t.Errorf("outer call %d: %v", i, err)
		}
	}
	if err := <-long; err != nil {
		t.Errorf("the long request: %v", err)
	}
}
