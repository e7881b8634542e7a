package test

import (
	"context"
	"encoding/binary"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rdmad/rdmad/client"
	"github.com/rdmad/rdmad/cmd/rdmad/sandbox"
)

// Errors and panics of handlers reach the caller as such, and end nothing.
func TestHandlerErrors(t *testing.T) {
	c := newPair(t, sandbox.Settings{})
	startService(t, c, "b", "jobs")
	c.awaitService("a", "b", "jobs", "stream", 0) // the last that it registers
	conn := c.attach("a")
	for _, test := range []struct{ method, request, want string }{
		{"fail", "reason", "no: reason"},
		{"panic", "", "handler panicked: on purpose"},
		{"transform", "four", "a request of 4 bytes"},
	} {
		_, err := conn.Call(bounded(t), "b/jobs/"+test.method, []byte(test.request))
		var remote *client.RemoteError
		if !errors.As(err, &remote) || !errors.Is(err, client.ErrRemote) || !strings.Contains(remote.Text, test.want) {
			t.Errorf("%s: %v", test.method, err)
		}
	}
	startTraffic(t, conn, "b/jobs/transform").undisturbed(t)
}

// A call ends with its deadline, wherever it is.
func TestDeadline(t *testing.T) {
	c := newPair(t, sandbox.Settings{})
	service := startService(t, c, "b", "jobs")
	c.awaitService("a", "b", "jobs", "hang", 0)
	conn := c.attach("a")
	timed := func(method string, req []byte, d time.Duration) error {
		t.Helper()
		begin := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), d)
		defer cancel()
		_, err := conn.Call(ctx, "b/jobs/"+method, req)
		if took := time.Since(begin); took < d || took > d+limit/2 {
			t.Errorf("%s with %v returned after %v: %v", method, d, took, err)
		}
		if !errors.Is(err, client.ErrDeadline) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s with %v: %v", method, d, err)
		}
		return err
	}
	// In the handler. On a busy machine it comes there only by a later deadline.
	for d := 100 * time.Millisecond; ; d *= 2 {
		err := timed("hang", nil, d)
		if errors.Is(err, client.ErrMaybeExecuted) {
			break
		}
		if d > limit {
			t.Fatalf("in the handler: %v", err)
		}
	}
	// Behind calls that keep all handlers busy until after its deadline: it must never be
	// executed.
	const handlers = 16
	var all sync.WaitGroup
	for d, done := time.Second, false; !done; d *= 2 {
		if d > limit {
			t.Fatalf("%d handlers are not busy at once", handlers)
		}
		begin := time.Now()
		for range handlers {
			all.Go(func() { _ = timed("hang", nil, d) })
		}
		for !done && time.Since(begin) < d/2 {
			done = c.busy("b") >= handlers
		}
		if done {
			ctx, cancel := context.WithDeadline(t.Context(), begin.Add(d/2+d/20))
			if _, err := conn.Call(ctx, "b/jobs/sleep", encoded(0)); !errors.Is(err, client.ErrDeadline) || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("behind busy handlers: %v", err)
			}
			cancel()
		}
		all.Wait()
	}
	eventually(t, "the handlers have ended", func() bool {
		a, err := conn.Call(bounded(t), "b/jobs/hanging", nil)
		return err == nil && binary.LittleEndian.Uint64(a) == 0
	})
	c.awaitQuiet("a", 0)
	c.awaitQuiet("b", 0)
	var n tally
	_ = service.in.Close()
	service.hear(&n)
	service.finish()
	if n.Calls != 0 {
		t.Errorf("a request was executed %d times after its deadline", n.Calls)
	}
}

// Requests are spread over the processes of a service: of those that are under way at once,
// and none of which ends, each process has its part. Then each answers some of many.
func TestBalance(t *testing.T) {
	c := newPair(t, sandbox.Settings{})
	const atOnce, handlers = 32, 1024
	held := []*holding{holdRequests(t, c, "b", handlers), holdRequests(t, c, "b", handlers)}
	c.awaitService("b", "b", "held", "hold", 2)
	c.awaitService("a", "b", "held", "hold", 0)
	caller := c.attach("a")
	hold, err := caller.Method(bounded(t), "b/held/hold")
	if err != nil {
		t.Fatal(err)
	}
	var fs []*client.Future
	send := func() {
		f, err := hold.Go(bounded(t), nil)
		if err != nil {
			t.Fatal(err)
		}
		fs = append(fs, f)
	}
	underway := func() bool { return int(held[0].begun.Load()+held[1].begun.Load()) == len(fs) }
	// A process gets none before it has mapped the lane.
	eventually(t, "both take requests", func() bool {
		if underway() {
			send()
		}
		return held[0].begun.Load() > 0 && held[1].begun.Load() > 0
	})
	for range max(atOnce, 3*len(fs)) {
		send()
	}
	eventually(t, "all are under way", underway)
	for i, h := range held {
		if n := int(h.begun.Load()); n < len(fs)/5 {
			t.Errorf("process %d has %d of %d requests", i, n, len(fs))
		}
		h.letGo()
	}
	for _, f := range fs {
		if _, err := f.Wait(bounded(t)); err != nil {
			t.Error(err)
		}
	}
	startService(t, c, "b", "jobs")
	startService(t, c, "b", "jobs")
	c.awaitService("b", "b", "jobs", "sleep", 2)
	c.awaitService("a", "b", "jobs", "sleep", 0)
	conn := c.attach("a")
	ctx := bounded(t)
	const callers, calls = 16, 50
	var mu sync.Mutex
	served := map[uint64]int{}
	var all sync.WaitGroup
	for range callers {
		all.Go(func() {
			for range calls {
				a, err := conn.Call(ctx, "b/jobs/sleep", encoded(1))
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				served[binary.LittleEndian.Uint64(a)]++
				mu.Unlock()
			}
		})
	}
	all.Wait()
	if len(served) != 2 {
		t.Fatalf("%d processes served: %v", len(served), served)
	}
	t.Logf("calls by process: %v", served) // as many as each had time for
}
