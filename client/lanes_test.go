package client_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rdmad/rdmad/client"
	"github.com/rdmad/rdmad/internal/daemontest"
	"github.com/rdmad/rdmad/internal/status"
	"github.com/rdmad/rdmad/server"
)

// lanesOf returns the lanes of a class in one direction, by their numbers.
func lanesOf(t testing.TB, n *daemontest.Node, class, direction string) []status.Lane {
	t.Helper()
	st, err := n.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var lanes []status.Lane
	for number := 0; ; number++ {
		before := len(lanes)
		for _, l := range st.Lanes {
			if l.Class == class && l.Direction == direction && l.Number == number {
				lanes = append(lanes, l)
			}
		}
		if len(lanes) == before {
			return lanes
		}
	}
}

// laneOfKey finds the lane of a class to which PinLane leads.
func laneOfKey(t testing.TB, n *daemontest.Node, m *client.Method, class, direction string, key uint64) int {
	t.Helper()
	before := lanesOf(t, n, class, direction)
	if _, err := m.With(client.PinLane(key), client.AnswerSize(8)).Call(t.Context(), []byte("x")); err != nil {
		t.Fatal(err)
	}
	found := -1
	for i, l := range lanesOf(t, n, class, direction) {
		if l.Requests == before[i].Requests {
			continue
		}
		if found >= 0 {
			t.Fatalf("a request in lanes %d and %d", found, i)
		}
		found = i
	}
	if found < 0 {
		t.Fatal("a request in no lane")
	}
	return found
}

// keysOfLanes returns a key for each of n lanes.
func keysOfLanes(t testing.TB, node *daemontest.Node, m *client.Method, class, direction string, n int) []uint64 {
	t.Helper()
	keys := make([]uint64, n)
	have := map[int]bool{}
	for key := uint64(0); len(have) < n; key++ {
		if key > 1000 {
			t.Fatalf("1000 keys lead to %d lanes of %d", len(have), n)
		}
		if i := laneOfKey(t, node, m, class, direction, key); !have[i] {
			have[i], keys[i] = true, key
		}
	}
	return keys
}

// Requests take turns on the lanes of a class, to a peer and on the own node, and each
// end counts them for each lane.
func TestRequestsTakeTurnsOnLanes(t *testing.T) {
	a, b := daemontest.Pair(t, "[lanes]\nper_peer=3\n")
	serve(t, a, 2, nil)
	serve(t, b, 2, nil)
	c := attach(t, a)
	const goroutines, each = 6, 250
	for _, to := range []struct {
		target    string
		node      *daemontest.Node
		direction string
	}{{"b/t/echo", a, "out"}, {"b/t/echo", b, "in"}, {"a/t/echo", a, "local"}} {
		m := method(t, c, to.target)
		before := lanesOf(t, to.node, "small", to.direction)
		var wg sync.WaitGroup
		for range goroutines {
			wg.Go(func() {
				for range each {
					if _, err := m.Call(t.Context(), []byte("x")); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		lanes := lanesOf(t, to.node, "small", to.direction)
		if len(lanes) != 3 {
			t.Fatalf("%s: %d lanes", to.direction, len(lanes))
		}
		for i, l := range lanes {
			var had status.Lane
			if i < len(before) {
				had = before[i]
			}
			if n := l.Requests - had.Requests; l.State != "up" || n != goroutines*each/3 || l.Groups-had.Groups < 1 || l.Groups-had.Groups > n {
				t.Errorf("%s: %d of %d requests in lane %+v", to.direction, n, goroutines*each, l)
			}
		}
	}
	quiet(t, a, b)
}

// With least-outstanding a lane on which requests of the process hang gets no more
// until the others have as many.
func TestLeastOutstandingLane(t *testing.T) {
	a, b := daemontest.Pair(t, "[lanes]\nper_peer=3\nbalance=\"least-outstanding\"\n")
	g := newGate()
	defer g.Open()
	serve(t, b, 4, handlers{"gate": g.handle})
	c := attach(t, a)
	echo, stay := method(t, c, "b/t/echo"), method(t, c, "b/t/gate")
	keys := keysOfLanes(t, a, echo, "small", "out", 3)
	fs := outstanding(t, stay.With(client.PinLane(keys[1])), 40)
	fs = append(fs, outstanding(t, stay, 60)...)
	for i, l := range lanesOf(t, a, "small", "out") {
		if want := []int{30, 40, 30}[i]; l.Busy > want {
			t.Errorf("lane %d has %d, want %d", i, l.Busy, want)
		}
	}
	fs = append(fs, outstanding(t, stay, 20)...)
	daemontest.Eventually(t, "all are sent", func() error {
		for i, l := range lanesOf(t, a, "small", "out") {
			if l.Busy != 40 {
				return fmt.Errorf("lane %d has %d, want 40", i, l.Busy)
			}
		}
		return nil
	})
	g.Open()
	for _, f := range fs {
		if _, err := f.Wait(t.Context()); err != nil {
			t.Error(err)
		}
	}
	quiet(t, a, b)
}

// A full lane is not waited for while another has room; only requests that are pinned
// to it wait.
func TestFullLaneIsPassed(t *testing.T) {
	a, b := daemontest.Pair(t, tiny+"[lanes]\nper_peer=2\n")
	g := newGate()
	defer g.Open()
	serve(t, b, 200, handlers{"gate": g.handle})
	c := attach(t, a)
	echo, stay := method(t, c, "b/t/echo"), method(t, c, "b/t/gate")
	keys := keysOfLanes(t, a, echo, "tiny", "out", 2)
	fs := outstanding(t, stay.With(client.PinLane(keys[0])), 64)
	for range 100 {
		if _, err := echo.With(client.NoWait()).Call(t.Context(), []byte("x")); err != nil {
			t.Fatalf("with room in the other lane: %v", err)
		}
	}
	if _, err := echo.With(client.NoWait(), client.PinLane(keys[0])).Call(t.Context(), []byte("x")); !errors.Is(err, client.ErrBackpressure) {
		t.Errorf("pinned to the full one: %v", err)
	}
	fs = append(fs, outstanding(t, stay.With(client.PinLane(keys[1])), 64)...)
	if _, err := echo.With(client.NoWait()).Call(t.Context(), []byte("x")); !errors.Is(err, client.ErrBackpressure) {
		t.Errorf("with both full: %v", err)
	}
	short, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	var late *client.DeadlineError
	if _, err := echo.Call(short, []byte("x")); !errors.As(err, &late) || late.Sent {
		t.Errorf("a short wait with both full: %v", err)
	}
	var wg sync.WaitGroup
	for range 100 {
		wg.Go(func() {
			if _, err := echo.Call(t.Context(), []byte("x")); err != nil {
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
	quiet(t, a, b)
}

// When one lane breaks, requests on the others go on, new ones use the others, and the
// broken one is opened again. Those that are pinned to it wait for that.
func TestOneLaneBreaks(t *testing.T) {
	const lanes = "[lanes]\nper_peer=3\n"
	cable, fabric := newCable(t)
	a, b := daemontest.PairOfEach(t, lanes, lanes+fabric)
	g := newGate()
	defer g.Open()
	serve(t, b, 64, handlers{"gate": g.handle})
	c := attach(t, a)
	echo, stay := method(t, c, "b/t/echo"), method(t, c, "b/t/gate")
	keys := keysOfLanes(t, a, echo, "small", "out", 3)
	var on [3][]*client.Future
	for i := range on {
		on[i] = outstanding(t, stay.With(client.PinLane(keys[i])), 5)
	}
	for range 15 {
		<-g.entered
	}
	var traffic sync.WaitGroup
	var answered, broken atomic.Int64
	stop := make(chan struct{})
	for range 4 {
		traffic.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				switch _, err := echo.Call(t.Context(), []byte("x")); {
				case err == nil:
					answered.Add(1)
				case errors.Is(err, client.ErrMaybeExecuted), errors.Is(err, client.ErrNotExecuted):
					broken.Add(1)
				default:
					t.Error(err)
				}
			}
		})
	}
	for round := range 3 {
		cable.breakLane(t, echo.With(client.PinLane(keys[1])))
		for _, f := range on[1] {
			if _, err := f.Wait(t.Context()); !errors.Is(err, client.ErrMaybeExecuted) {
				t.Errorf("round %d: on the broken lane: %v", round, err)
			}
		}
		if _, err := echo.With(client.PinLane(keys[1])).Call(t.Context(), []byte("x")); err != nil {
			t.Errorf("round %d: pinned to the broken lane: %v", round, err)
		}
		daemontest.Eventually(t, "the lane is open and used", func() error {
			l := lanesOf(t, a, "small", "out")[1]
			n := l.Requests
			if l = lanesOf(t, a, "small", "out")[1]; l.State != "up" || l.Requests == n {
				return fmt.Errorf("lane %+v", l)
			}
			return nil
		})
		on[1] = outstanding(t, stay.With(client.PinLane(keys[1])), 5)
		for range 5 {
			<-g.entered
		}
	}
	close(stop)
	traffic.Wait()
	// At most one call of each goroutine was on the lane each time.
	if n := broken.Load(); n > 12 || answered.Load() == 0 {
		t.Errorf("%d calls ended with the lane, %d were answered", n, answered.Load())
	}
	for i, l := range lanesOf(t, a, "small", "out") {
		if l.Busy != 5 {
			t.Errorf("lane %d has %d requests", i, l.Busy)
		}
	}
	g.Open()
	for i, fs := range on {
		for _, f := range fs {
			if _, err := f.Wait(t.Context()); err != nil {
				t.Errorf("on lane %d: %v", i, err)
			}
		}
	}
	quiet(t, a, b)
}

// The two ends of a link may have different numbers of lanes.
func TestDifferentNumbersOfLanes(t *testing.T) {
	a, b := daemontest.PairOfEach(t, "[lanes]\nper_peer=8\n", "")
	serve(t, a, 2, nil)
	serve(t, b, 2, nil)
	for _, n := range []*daemontest.Node{a, b} {
		m := method(t, attach(t, n), map[*daemontest.Node]string{a: "b/t/echo", b: "a/t/echo"}[n])
		for range 80 {
			if _, err := m.Call(t.Context(), []byte("x")); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, want := range []struct {
		node      *daemontest.Node
		direction string
		lanes     int
	}{{a, "out", 8}, {b, "in", 8}, {b, "out", 1}, {a, "in", 1}} {
		for _, class := range []string{"small", "large"} {
			lanes := lanesOf(t, want.node, class, want.direction)
			if len(lanes) != want.lanes {
				t.Errorf("node %s has %d lanes %s of class %s, want %d", want.node.Name, len(lanes), want.direction, class, want.lanes)
			}
			for _, l := range lanes {
				if n := uint64(80 / want.lanes); l.State != "up" || class == "small" && l.Requests != n {
					t.Errorf("node %s: lane %+v, want %d requests", want.node.Name, l, n)
				}
			}
		}
	}
	quiet(t, a, b)
}

// All requests with a key use one lane, different keys use all of them.
func TestPinLane(t *testing.T) {
	a, b := daemontest.Pair(t, "[lanes]\nper_peer=4\n")
	serve(t, a, 1, nil)
	serve(t, b, 1, handlers{"count": func(*server.Call) error { return nil }})
	c := attach(t, a)
	for _, to := range []struct{ target, direction string }{{"b/t/echo", "out"}, {"a/t/echo", "local"}} {
		m := method(t, c, to.target)
		for _, key := range keysOfLanes(t, a, m, "small", to.direction, 4) {
			i := laneOfKey(t, a, m, "small", to.direction, key)
			before := lanesOf(t, a, "small", to.direction)
			for range 50 {
				if _, err := m.With(client.PinLane(key)).Call(t.Context(), []byte("x")); err != nil {
					t.Fatal(err)
				}
			}
			for k, l := range lanesOf(t, a, "small", to.direction) {
				if n := l.Requests - before[k].Requests; n != map[bool]uint64{true: 50}[k == i] {
					t.Errorf("%d requests in lane %d, they are pinned to %d", n, k, i)
				}
			}
		}
	}
	// Another method goes the same way.
	echo, count := method(t, c, "b/t/echo"), method(t, c, "b/t/count")
	for key := range uint64(10) {
		if i, j := laneOfKey(t, a, echo, "small", "out", key), laneOfKey(t, a, count, "small", "out", key); i != j {
			t.Errorf("key %d: lanes %d and %d", key, i, j)
		}
	}
	quiet(t, a, b)
}
