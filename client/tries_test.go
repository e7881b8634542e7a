package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rdmad/rdmad/internal/attach"
	"github.com/rdmad/rdmad/slots"
)

// rig is a method whose lane leads to node n and is closed.
func rig(t *testing.T, target string) *Method {
	t.Helper()
	g := slots.Geometry{Slots: 64, SlotSize: slots.MinSlotSize, MaxRun: 4}
	ring, err := slots.NewRing(make([]byte, g.SegmentSize()), g)
	if err != nil {
		t.Fatal(err)
	}
	ring.SetState(slots.LaneClosed)
	c := new(Conn)
	c.life, c.endLife = context.WithCancel(t.Context())
	m := &Method{conn: c, name: target, route: &routeCell{asking: make(chan struct{}, 1)}}
	if m.target, err = parseTarget(target); err != nil {
		t.Fatal(err)
	}
	s := &laneSet{lanes: []*lane{{conn: c, peer: "n", ring: ring}}, geo: g}
	m.route.p.Store(&route{sets: []*laneSet{s}, widest: s})
	return m
}

// The tries of a request are bounded, and so are the waits between them, which double. Each
// is shorter by up to a half, and not always by the same.
func TestTriesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := rig(t, "n/t/x")
		var whole []time.Duration
		for range 5 {
			var tr tries
			var waits []time.Duration
			begin := time.Now()
			last := begin
			err := tr.repeat(t.Context(), m, func(*Method) error {
				waits, last = append(waits, time.Since(last)), time.Now()
				return fmt.Errorf("%w: try %d", ErrNotExecuted, len(waits))
			})
			if len(waits) != maxTries || !strings.Contains(err.Error(), fmt.Sprint("try ", maxTries)) {
				t.Errorf("%d tries, then %v", len(waits), err)
			}
			for k, d := range waits[1:] {
				if most := min(firstPause<<k, lastPause); d > most || d <= most/2 {
					t.Errorf("wait %d of %v, at most %v", k, d, most)
				}
			}
			whole = append(whole, time.Since(begin))
		}
		for k, d := range whole {
			if d < 11*time.Second || d > 23*time.Second || k > 0 && d == whole[0] {
				t.Errorf("tries took %v", whole)
			}
		}
	})
}

// The end of the context and that of the connection end a wait between tries at once.
func TestTriesEnd(t *testing.T) {
	for what, end := range map[string]func(c *Conn, cancel func()){
		"context":    func(_ *Conn, cancel func()) { cancel() },
		"connection": func(c *Conn, _ func()) { c.ended.Store(true); c.endLife() },
	} {
		synctest.Test(t, func(t *testing.T) {
			m := rig(t, "n/t/x")
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			over := make(chan error, 1)
			tr := tries{n: 20} // so that it waits for a second
			go func() {
				over <- tr.repeat(ctx, m, func(*Method) error { return ErrNotExecuted })
			}()
			synctest.Wait()
			begin := time.Now()
			end(m.conn, cancel)
			err := <-over
			if time.Since(begin) > 0 || !errors.Is(err, ErrNotExecuted) || errors.Is(err, ErrDeadline) != (what == "context") || errors.Is(err, ErrClosed) != (what == "connection") {
				t.Errorf("%s: after %v: %v", what, time.Since(begin), err)
			}
		})
	}
}

// What is tried again, and what a request's outcome is when another try may have been
// executed.
func TestOutcomesOfTries(t *testing.T) {
	text := errors.New("text")
	for _, c := range []struct {
		err   error
		again bool
		// answer: the outcome is the error, whatever became of other tries.
		answer bool
	}{
		{fmt.Errorf("%w: %w", ErrNotExecuted, text), true, false},
		{fmt.Errorf("%w: %w", ErrNotExecuted, ErrNoService), true, false},
		{&noWayError{"x", ErrNoService}, true, false},
		{fmt.Errorf("%w: %w", ErrNotExecuted, &RemoteError{Text: "no room for a large request"}), true, false},
		{fmt.Errorf("%w: %w", ErrMaybeExecuted, text), true, true},
		{fmt.Errorf("%w: %w", ErrMaybeExecuted, hideNotExecuted{ErrClosed}), false, true},
		{fmt.Errorf("%w: %w", ErrNotExecuted, ErrClosed), false, false},
		{&DeadlineError{Cause: io.EOF}, false, false},
		{&DeadlineError{Sent: true, Cause: io.EOF}, false, true},
		{&RemoteError{Text: "no"}, false, true},
		{&TooLargeError{What: "answer"}, false, true},
		{&TooLargeError{What: "request", Size: 1}, false, false},
		{ErrBackpressure, false, false},
		{ErrInvalid, false, false},
		{ErrLimit, false, false},
		{ErrClosed, false, false},
	} {
		if got := repeatable(c.err); got != c.again {
			t.Errorf("%v: tried again %v", c.err, got)
		}
		sure, doubtful := tries{}, tries{maybe: true}
		if got := sure.outcome(c.err); got != c.err {
			t.Errorf("%v became %v", c.err, got)
		}
		got := doubtful.outcome(c.err)
		switch {
		case c.answer && got != c.err && got.Error() != c.err.Error():
			t.Errorf("%v became %v", c.err, got)
		case !c.answer && (!errors.Is(got, ErrMaybeExecuted) || errors.Is(got, ErrNotExecuted)):
			t.Errorf("%v became %v, after a try that may have been executed", c.err, got)
		}
		for _, kept := range []error{ErrNoService, ErrClosed, ErrDeadline, ErrTooLarge, text} {
			if errors.Is(c.err, kept) && !errors.Is(got, kept) {
				t.Errorf("%v became %v", c.err, got)
			}
		}
	}
}

// A request whose connection ends before another try is accepted has an outcome like every request
// that was accepted, and one that never was has none.
func TestOutcomeOfARefusedTry(t *testing.T) {
	first, second := tries{n: 1}, tries{n: 1, accepted: true}
	if err := first.outcome(ErrClosed); errors.Is(err, ErrNotExecuted) {
		t.Errorf("at the first try: %v", err)
	}
	for _, end := range []error{ErrClosed, ErrLimit, ErrInvalid, &TooLargeError{What: "request"}, io.ErrUnexpectedEOF} {
		if err := second.outcome(end); !errors.Is(err, ErrNotExecuted) || !errors.Is(err, end) {
			t.Errorf("at the second: %v", err)
		}
	}
}

// A node is avoided when it is gone, does not serve the method, or has failed twice in a row;
// how many are avoided is bounded.
func TestNodesToAvoid(t *testing.T) {
	m := rig(t, "t/x")
	r := m.route.p.Load()
	ring := r.widest.lanes[0].ring
	to := func(node string) *route {
		s := &laneSet{lanes: []*lane{{conn: m.conn, peer: node, ring: ring}}}
		return &route{sets: []*laneSet{s}, widest: s}
	}
	var tr tries
	tr.failed(nil, ErrNotExecuted)
	ring.SetState(slots.LaneOpen)
	tr.failed(to("a"), ErrMaybeExecuted)
	if len(tr.avoid) != 0 {
		t.Errorf("a node that has lost a process: %v", tr.avoid)
	}
	tr.failed(to("b"), &noWayError{"x", ErrNoService})
	tr.failed(to("a"), ErrMaybeExecuted)
	tr.failed(to("a"), ErrMaybeExecuted)
	tr.failed(to("a"), ErrMaybeExecuted)
	if fmt.Sprint(tr.avoid) != "[b a]" {
		t.Errorf("avoids %v", tr.avoid)
	}
	ring.SetState(slots.LaneClosed)
	for k := range attach.MaxAvoid {
		tr.failed(to(fmt.Sprint(k)), ErrMaybeExecuted)
	}
	if fmt.Sprint(tr.avoid) != "[0 1 2 3 4 5 6 7]" {
		t.Errorf("avoids %v", tr.avoid)
	}
}
