package client_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/rdmad/rdmad/client"
	"github.com/rdmad/rdmad/internal/daemontest"
	"github.com/rdmad/rdmad/internal/status"
	"github.com/rdmad/rdmad/server"
)

// refusedFor checks that a request is not sent, with and without waiting, and that
// the error names the limit.
func refusedFor(t *testing.T, m *client.Method, limit string, req []byte) {
	t.Helper()
	for what, err := range map[string]error{
		"call": second(m.With(client.NoWait()).Call(t.Context(), req)),
		"post": m.With(client.NoWait()).Post(t.Context(), req),
	} {
		if !errors.Is(err, client.ErrBackpressure) || !strings.Contains(err.Error(), limit) {
			t.Errorf("%s, no wait: %v", what, err)
		}
	}
	daemontest.InTime(t, "a call that waits for "+limit, func(ctx context.Context) bool {
		var late *client.DeadlineError
		_, err := m.Call(ctx, req)
		if !errors.As(err, &late) || late.Sent || !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("call: %v", err)
		}
		return strings.Contains(err.Error(), limit) // it has come as far as to wait
	})
}

// honest checks that the daemon has refused nothing for want of slots, and returns
// its state.
func honest(t *testing.T, n *daemontest.Node) *status.Node {
	t.Helper()
	st, err := n.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if k := st.Counters["over_limit"]; k != 0 {
		t.Errorf("%d requests of correct workers were refused", k)
	}
	return st
}

// inFlight waits until the worker with the most slots in flight has n of them.
func inFlight(t *testing.T, node *daemontest.Node, n, bytes int) {
	t.Helper()
	daemontest.Eventually(t, "slots in flight", func() error {
		st, err := node.Status(t.Context())
		if err != nil {
			return err
		}
		for _, w := range st.Workers {
			if w.Slots == n && w.SlotBytes == bytes {
				return nil
			}
		}
		return errors.New("no worker has that many")
	})
}

// A process gets no more slots of a ring than its quota; what is left is for
// others.
func TestQuotaOfSlots(t *testing.T) {
	a, b := daemontest.Pair(t, tiny+"[limits]\nworker_slots=25\n")
	g := newGate()
	defer g.Open()
	var posts atomic.Int64
	serve(t, b, 1, handlers{"gate": g.handle, "post": func(*server.Call) error { posts.Add(1); return nil }})
	c := attach(t, a)
	m := method(t, c, "b/t/gate")
	fs := outstanding(t, m, 16)
	refusedFor(t, m, "limits.worker_slots", nil)
	inFlight(t, a, 16, 16*128)
	other := attach(t, a)
	fs = append(fs, outstanding(t, method(t, other, "b/t/gate"), 16)...)
	for _, l := range honest(t, a).Lanes {
		if l.Direction == "out" && (l.Quota != 16 || l.Users != 2) {
			t.Errorf("status of the lane: %+v", l)
		}
	}
	var wg sync.WaitGroup
	for range 100 {
		wg.Go(func() {
			if _, err := m.Call(t.Context(), nil); err != nil {
				t.Error(err)
			}
		})
	}
	g.Open()
	within(t, "calls", wg.Wait)
	for _, f := range fs {
		if _, err := f.Wait(t.Context()); err != nil {
			t.Error(err)
		}
	}
	// What the daemon frees counts too, and so do batches.
	post := method(t, c, "b/t/post")
	for range 1000 {
		if err := post.Post(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
	}
	results, err := m.CallBatch(t.Context(), make([][]byte, 200))
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range results {
		if r.Err != nil {
			t.Error(r.Err)
		}
	}
	quiet(t, a, b)
	if n := posts.Load(); n != 1000 {
		t.Errorf("%d posts were executed", n)
	}
	honest(t, a)
}

// A process that holds nothing may have one request, whatever its quota.
func TestQuotaSmallerThanARequest(t *testing.T) {
	a, b := daemontest.Pair(t, tiny+"[limits]\nworker_slots=1\nworker_bytes=1\n")
	serve(t, b, 1, nil)
	m := method(t, attach(t, a), "b/t/echo")
	within(t, "calls", func() {
		for _, n := range []int{0, 64, 65, 1984} {
			if got, err := m.Call(t.Context(), make([]byte, n)); err != nil || len(got) != n {
				t.Errorf("%d bytes: %d, %v", n, len(got), err)
			}
		}
	})
	r, err := m.Reserve(t.Context(), 1984)
	if err != nil {
		t.Fatal(err)
	}
	refusedFor(t, m, "limits.worker_", nil)
	r.Abort()
	if _, err := m.With(client.NoWait()).Call(t.Context(), nil); err != nil {
		t.Error(err)
	}
	quiet(t, a, b)
	honest(t, a)
}

// The quota of bytes is over all rings: what becomes free in one is room in the
// others.
func TestQuotaOfBytes(t *testing.T) {
	const big = "[[class]]\nname=\"big\"\nslot_size=2048\nslots=64\nmax_run=16\n"
	a, b := daemontest.Pair(t, tiny+big+"[limits]\nworker_bytes=4096\n")
	g := newGate()
	defer g.Open()
	serve(t, b, 1, handlers{"gate": g.handle})
	c := attach(t, a)
	m := method(t, c, "b/t/gate").With(client.AnswerSize(2))
	fs := outstanding(t, m, 16)
	large := make([]byte, 1984)
	f, err := m.Go(t.Context(), large)
	if err != nil {
		t.Fatal(err)
	}
	refusedFor(t, m, "limits.worker_bytes", nil)
	refusedFor(t, m, "limits.worker_bytes", large)
	inFlight(t, a, 17, 4096)
	var wg sync.WaitGroup
	for i := range 100 {
		wg.Go(func() {
			if _, err := m.Call(t.Context(), large[:i%2*len(large)]); err != nil {
				t.Error(err)
			}
		})
	}
	g.Open()
	within(t, "calls", wg.Wait)
	for _, f := range append(fs, f) {
		if _, err := f.Wait(t.Context()); err != nil {
			t.Error(err)
		}
	}
	quiet(t, a, b)
	honest(t, a)
}

// Without contention a claim under a quota costs no allocation either.
func TestQuotaAllocatesNothing(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	a, b := daemontest.Pair(t, "[limits]\nworker_slots=50\nworker_bytes=100000\n")
	// In a process of its own: AllocsPerRun leaves this one a single processor.
	daemontest.Spawn(t, "service", b.Socket, "someone")
	m := method(t, attach(t, a), "b/t/who")
	ctx, buf := context.Background(), make([]byte, 64)
	if n := testing.AllocsPerRun(2000, func() {
		if _, err := m.CallInto(ctx, buf[:5], buf); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations per call", n)
	}
	honest(t, a)
}
