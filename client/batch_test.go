package client_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"sync"
	"testing"

	"github.com/rdmad/rdmad/client"
	"github.com/rdmad/rdmad/internal/daemontest"
	"github.com/rdmad/rdmad/server"
)

const fewSlots = "[[class]]\nname=\"few\"\nslot_size=128\nslots=64\nmax_run=4\n"

// requests makes n different requests that no other id makes; some are longer.
func requests(id, n int) [][]byte {
	reqs := make([][]byte, n)
	for i := range reqs {
		reqs[i] = append(binary.LittleEndian.AppendUint64(nil, uint64(id)<<32|uint64(i)), make([]byte, i%100)...)
	}
	return reqs
}

// typed checks that err is one of the errors of a connection that has ended.
func typed(t *testing.T, err error) {
	t.Helper()
	if !errors.Is(err, client.ErrClosed) && errors.Is(err, client.ErrNotExecuted) == errors.Is(err, client.ErrMaybeExecuted) {
		t.Error(err)
	}
}

// Several batches at once, each with many times the requests that there are slots:
// the results are in order and nobody waits for ever.
func TestCallBatch(t *testing.T) {
	a, b := daemontest.Pair(t, fewSlots)
	serve(t, b, 4, nil)
	c := attach(t, a)
	m := method(t, c, "b/t/echo")
	var wg sync.WaitGroup
	for id := range 6 {
		wg.Go(func() {
			for _, n := range []int{0, 1, 2, 700} {
				reqs := requests(id, n)
				results, err := m.CallBatch(t.Context(), reqs)
				if err != nil || len(results) != n {
					t.Errorf("batch of %d: %d results, %v", n, len(results), err)
				}
				for i, r := range results {
					if r.Err != nil || !bytes.Equal(r.Answer, reqs[i]) {
						t.Errorf("result %d of %d: %x, %v", i, n, r.Answer, r.Err)
					}
				}
			}
		})
	}
	wg.Go(func() { // single calls get their turn
		for range 100 {
			if _, err := m.Call(t.Context(), []byte("single")); err != nil {
				t.Error(err)
			}
		}
	})
	within(t, "batches", wg.Wait)
	quiet(t, a, b)
}

// A request that is too large, a handler's error and an answer that is too large are
// results of their own requests only.
func TestCallBatchResults(t *testing.T) {
	a, b := daemontest.Pair(t, fewSlots)
	serve(t, b, 2, handlers{"odd": func(c *server.Call) error {
		switch c.Request()[0] {
		case 1:
			return errors.New("no")
		case 2:
			return c.Reply(make([]byte, 4000))
		}
		return c.Reply([]byte("ok"))
	}})
	m := method(t, attach(t, a), "b/t/odd").With(client.Direct())
	results, err := m.CallBatch(t.Context(), [][]byte{{0}, {1}, {2}, make([]byte, 3<<20), {0}})
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []error{nil, client.ErrRemote, client.ErrTooLarge, client.ErrTooLarge, nil} {
		r := results[i]
		if !errors.Is(r.Err, want) || (want == nil) != (string(r.Answer) == "ok") {
			t.Errorf("result %d: %q, %v", i, r.Answer, r.Err)
		}
	}
	quiet(t, a, b)
}

// A context that ends before the batch means an error of the batch; one that ends in
// the middle leaves each request with what is known of it.
func TestCallBatchContext(t *testing.T) {
	a, b := daemontest.Pair(t, fewSlots)
	g := newGate()
	defer g.Open()
	serve(t, b, 1, handlers{"first": func(c *server.Call) error {
		if c.Request()[0] == 0 {
			return c.Reply([]byte("quick"))
		}
		return g.handle(c)
	}})
	m := method(t, attach(t, a), "b/t/first")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var late *client.DeadlineError
	if results, err := m.CallBatch(ctx, [][]byte{{0}}); !errors.As(err, &late) || late.Sent || results != nil {
		t.Errorf("before: %v, %v", results, err)
	}
	// The first is answered before any other; the ring is too small for them all.
	reqs := make([][]byte, 200)
	for i := range reqs {
		reqs[i] = []byte{byte(min(i, 1))}
	}
	ctx, cancel = context.WithCancel(t.Context())
	go func() {
		<-g.entered
		for m.With(client.NoWait()).Post(t.Context(), []byte{0}) == nil { // until the ring is full
		}
		cancel()
	}()
	var results []client.Result
	var err error
	within(t, "batch", func() { results, err = m.CallBatch(ctx, reqs) })
	if err != nil {
		t.Fatal(err)
	}
	sent := 0
	for i, r := range results {
		switch {
		case r.Err == nil && string(r.Answer) == "quick" && i == 0:
		case !errors.As(r.Err, &late):
			t.Errorf("result %d: %q, %v", i, r.Answer, r.Err)
		case late.Sent:
			sent++
		}
	}
	if sent == 0 || sent > 64 {
		t.Errorf("%d requests were sent", sent)
	}
	g.Open()
	quiet(t, a, b)
}

// With NoWait each request that finds the ring full is refused, and only those.
func TestCallBatchNoWait(t *testing.T) {
	a, b := daemontest.Pair(t, fewSlots)
	g := newGate()
	defer g.Open()
	serve(t, b, 1, handlers{"gate": g.handle})
	m := method(t, attach(t, a), "b/t/gate")
	fs := outstanding(t, m, 64)
	results, err := m.With(client.NoWait()).CallBatch(t.Context(), make([][]byte, 10))
	if err != nil || len(results) != 10 {
		t.Fatalf("%d results, %v", len(results), err)
	}
	for i, r := range results {
		if !errors.Is(r.Err, client.ErrBackpressure) {
			t.Errorf("result %d: %q, %v", i, r.Answer, r.Err)
		}
	}
	g.Open()
	for _, f := range fs {
		if _, err := f.Wait(t.Context()); err != nil {
			t.Error(err)
		}
	}
	results, err = m.With(client.NoWait()).CallBatch(t.Context(), make([][]byte, 10))
	if err != nil || len(results) != 10 {
		t.Fatalf("%d results, %v", len(results), err)
	}
	for i, r := range results {
		if r.Err != nil || string(r.Answer) != "ok" {
			t.Errorf("result %d with room: %q, %v", i, r.Answer, r.Err)
		}
	}
	quiet(t, a, b)
}

// Close, and the death of the daemon, in the middle of batches that fill the ring.
func TestCallBatchConnectionEnds(t *testing.T) {
	for name, end := range map[string]func(*client.Conn, *daemontest.Node) error{
		"close": func(c *client.Conn, _ *daemontest.Node) error { return c.Close() },
		"death": func(_ *client.Conn, a *daemontest.Node) error { return a.Crash() },
	} {
		t.Run(name, func(t *testing.T) {
			a, b := daemontest.Pair(t, fewSlots)
			g := newGate()
			defer g.Open()
			serve(t, b, 1, handlers{"gate": g.handle})
			c := attach(t, a)
			m := method(t, c, "b/t/gate")
			var wg sync.WaitGroup
			for range 3 {
				wg.Go(func() {
					results, err := m.CallBatch(t.Context(), make([][]byte, 300))
					if err != nil {
						typed(t, err)
					}
					for _, r := range results {
						typed(t, r.Err)
					}
				})
			}
			<-g.entered
			within(t, "end", func() {
				if err := end(c, a); err != nil {
					t.Error(err)
				}
				wg.Wait()
			})
			if _, err := m.CallBatch(t.Context(), make([][]byte, 2)); !errors.Is(err, client.ErrClosed) {
				t.Errorf("afterwards: %v", err)
			}
			g.Open()
			if _, err := method(t, attach(t, a), "b/t/gate").Call(t.Context(), nil); err != nil {
				t.Errorf("attached again: %v", err)
			}
			quiet(t, a, b)
		})
	}
}

// A method that has moved is followed once, by all requests of the batch.
func TestCallBatchFollows(t *testing.T) {
	a, b := daemontest.Pair(t, "")
	first := serve(t, b, 1, nil)
	m := method(t, attach(t, a), "t/echo")
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	serve(t, a, 1, nil)
	daemontest.Eventually(t, "served here", func() error {
		_, err := attach(t, a).Call(t.Context(), "a/t/echo", nil)
		return err
	})
	reqs := requests(1, 50)
	results, err := m.CallBatch(t.Context(), reqs)
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range results {
		if r.Err != nil || !bytes.Equal(r.Answer, reqs[i]) {
			t.Errorf("result %d: %x, %v", i, r.Answer, r.Err)
		}
	}
}

// A large request whose service has moved is found to be large only when the new route is known.
func TestCallBatchFollowsWithLarge(t *testing.T) {
	a, b := daemontest.Pair(t, "")
	first := serve(t, b, 1, nil)
	c := attach(t, a)
	m := method(t, c, "t/echo")
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	serve(t, a, 1, nil)
	daemontest.Eventually(t, "node a serves it", func() error {
		_, err := attach(t, a).Call(t.Context(), "a/t/echo", nil)
		return err
	})
	reqs := [][]byte{pattern(3<<20, 1), pattern(10, 2)}
	results, err := m.CallBatch(t.Context(), reqs)
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range results {
		if r.Err != nil || !bytes.Equal(r.Answer, reqs[i]) {
			t.Errorf("result %d: %d bytes, %v", i, len(r.Answer), r.Err)
		}
	}
}
