package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdmad/rdmad/internal/daemontest"
	"github.com/rdmad/rdmad/slots"
)

// published waits until the connection has published a request, which the daemon then takes.
func (s *solo) published(t *testing.T) (slot int) {
	t.Helper()
	r := s.lane.ring
	daemontest.Eventually(t, "a request is published", func() error {
		for i := range r.Geometry().Slots {
			if w := r.Word(i); w.State() == slots.Pub && r.Take(i, w) {
				slot = i
				return nil
			}
		}
		return errors.New("there is none")
	})
	return slot
}

// refuse answers a request as a node that does not serve the method any more.
func (s *solo) refuse(slot int) {
	r := s.lane.ring
	w := r.Word(slot)
	h := slots.Header{Ticket: w.Ticket(), Run: uint16(w.Run()), Kind: slots.KindAnswer, Flags: slots.FlagError, Status: slots.StatusNoService}
	h.Encode(r.HeaderAt(slot))
	r.Answer(slot, w)
	s.down.Push(slots.MakeHint(1, slot, w.Ticket()))
	s.down.Ring()
}

// one fails unless err says of its request that it was not executed, or may have been, and not both.
func one(t *testing.T, err error, maybe bool) {
	t.Helper()
	if errors.Is(err, ErrMaybeExecuted) != maybe || errors.Is(err, ErrNotExecuted) == maybe {
		t.Errorf("not executed %t, may have been %t: %v", errors.Is(err, ErrNotExecuted), errors.Is(err, ErrMaybeExecuted), err)
	}
}

// Whoever gives a request an outcome that the daemon has not sent wakes the leader, who may wait
// for it.
func TestOutcomesFromHereWakeTheLeader(t *testing.T) {
	for what, end := range map[string]func(s *solo, f *Future) error{
		"cancel":    func(_ *solo, f *Future) error { return is(f.Cancel()) },
		"lane lost": func(s *solo, _ *Future) error { s.conn.laneClosed(1, nil); return nil },
	} {
		for _, opts := range [][]CallOption{nil, {Idempotent()}} {
			if opts != nil && what == "lane lost" {
				continue // it is sent again
			}
			s := newSolo(t)
			f, err := s.method.With(opts...).Go(t.Context(), []byte("x"))
			if err != nil {
				t.Fatal(err)
			}
			over := make(chan error, 1)
			go func() { _, err := f.Wait(context.Background()); over <- err }()
			bell := s.down.Bell().Load()
			if err := end(s, f); err != nil {
				t.Fatal(what, err)
			}
			if s.down.Bell().Load() == bell {
				t.Errorf("%s: nobody is woken", what)
				s.down.Ring()
			}
			one(t, <-over, false)
		}
	}
}

func is(ok bool) error {
	if !ok {
		return errors.New("it is not so")
	}
	return nil
}

// A loop over a queue learns that a request it was to wait for is none.
func TestRefusedRequestWakesItsQueue(t *testing.T) {
	s := newSolo(t)
	s.lane.ring.SetState(slots.LaneClosed)
	q := s.conn.NewQueue()
	ctx, cancel := context.WithCancel(t.Context())
	refused := make(chan error, 1)
	go func() { refused <- s.method.With(Idempotent()).GoTo(ctx, q, []byte("x"), 1) }()
	daemontest.Eventually(t, "the queue expects a request", func() error { return is(q.Len() > 0) })
	over := make(chan struct{})
	go func() {
		for range q.All(context.Background()) {
			t.Error("an outcome")
		}
		close(over)
	}()
	bell := s.down.Bell().Load()
	cancel()
	one(t, <-refused, false)
	if s.down.Bell().Load() == bell {
		t.Error("nobody is woken")
		s.down.Ring()
	}
	<-over
}

// What was accepted, and refused by a node that serves the method no more, has an outcome also if
// the connection takes no second try.
func TestSecondTryIsRefused(t *testing.T) {
	for what, call := range map[string]func(m *Method) error{
		"Call":        func(m *Method) error { _, err := m.Call(context.Background(), []byte("x")); return err },
		"CallRegions": func(m *Method) error { _, err := m.CallRegions(context.Background(), []byte("x")); return err },
	} {
		s := newSolo(t)
		over := make(chan error, 1)
		go func() { over <- call(s.method) }()
		slot := s.published(t)
		s.conn.gate.close() // as Close begins
		s.refuse(slot)
		err := <-over
		if one(t, err, false); !errors.Is(err, ErrClosed) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// The cause of a context may be the outcome of another request, which says nothing about this one.
func TestCauseIsNoOutcome(t *testing.T) {
	own := errors.New("the caller's own")
	for _, cause := range []error{
		nil, own,
		fmt.Errorf("another: %w: %w: %w", ErrNotExecuted, ErrNoService, own),
		fmt.Errorf("another: %w: %w", ErrMaybeExecuted, own),
		fmt.Errorf("another: %w: %w", &DeadlineError{Sent: false, Cause: io.EOF}, own),
		fmt.Errorf("another: %w: %w", &RemoteError{Text: "no"}, own),
	} {
		s := newSolo(t)
		ctx, cancel := context.WithCancelCause(t.Context())
		over := make(chan error, 1)
		go func() { _, err := s.method.Call(ctx, []byte("x")); over <- err }()
		s.published(t)
		cancel(cause)
		err := <-over
		one(t, err, true)
		var late *DeadlineError
		var remote *RemoteError
		if !errors.As(err, &late) || !late.Sent || !errors.Is(err, ErrDeadline) || errors.Is(err, ErrNoService) || errors.As(err, &remote) {
			t.Errorf("%v: %v", cause, err)
		}
		if !errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, own) != (cause != nil) {
			t.Errorf("%v: why it has ended: %v", cause, err)
		}
		if _, err := s.method.Call(ctx, []byte("x")); !errors.Is(err, context.Canceled) {
			t.Error(err)
		} else {
			one(t, err, false)
		}
	}
}

// A request whose answer is not fetched because nobody wants it any more was executed.
func TestAnswerThatNobodyWants(t *testing.T) {
	s := newSolo(t)
	ctx, stop := context.WithCancel(t.Context())
	stop()
	_, err := s.method.sendPart(ctx, s.method.route.p.Load(), &part{room: 100}, &sink{inPlace: true, part: true})
	one(t, err, false)
	one(t, (&Future{m: s.method}).notFetched(err), true)
}

// A request that the lane did not take has no outcome from anybody, also if the next one in its slots
// has come in between: it is refused, and its queue does not wait for it.
func TestRefusedRequestIsEvicted(t *testing.T) {
	s := newSolo(t)
	l, q, r := s.lane, s.conn.NewQueue(), s.method.route.p.Load()
	s.conn.bytes.most = 1 << 30 // so that who frees slots looks at all lanes, under conn.mu
	var slot slots.Run
	for i := range l.ring.Geometry().Slots {
		owner := s.conn.id
		if i > 0 {
			owner++ // all others are somebody's
		}
		u, err := l.ring.Claim(owner, 1)
		if err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			slot = u
		}
	}
	send := func(u slots.Run) error {
		d := &draft{l: l, u: u, route: r, silent: true}
		d.h.Ticket, d.h.Run, d.h.Length = u.Ticket, 1, 1
		_, err := s.method.commit(d, []byte("x"), &sink{queue: q})
		return err
	}
	l.ring.SetState(slots.LaneClosed)
	s.conn.mu.Lock() // the first stops when it has freed its slot
	first := make(chan error, 1)
	go func() { first <- send(slot) }()
	daemontest.Eventually(t, "the slot is freed", func() error { return is(l.ring.Word(slot.Index).State() == slots.Free) })
	l.ring.SetState(slots.LaneOpen)
	next, err := l.ring.Claim(s.conn.id, 1)
	if err != nil || next.Index != slot.Index {
		t.Fatal(next, err)
	}
	if err := send(next); err != nil {
		t.Error(err)
	}
	s.conn.mu.Unlock()
	if err := <-first; !errors.Is(err, slots.ErrClosed) {
		t.Errorf("the first: %v", err)
	}
	if n := q.Len(); n != 1 || len(s.conn.spills.strays) != 0 {
		t.Errorf("the queue waits for %d requests, %d are astray", n, len(s.conn.spills.strays))
	}
}

// After the end of the connection who waits for a request that has no outcome yet, because it is about to be sent
// again, sleeps until it has one.
func TestWaitAfterTheEndSleeps(t *testing.T) {
	s := newSolo(t)
	s.conn.ended.Store(true)
	const wait = 300 * time.Millisecond
	waits := func(f *Future) (worked time.Duration) {
		done := make(chan struct{})
		go func() {
			defer close(done)
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			before := threadTime(t)
			ctx, cancel := context.WithTimeout(t.Context(), wait)
			defer cancel()
			s.conn.wait.until(ctx, f)
			worked = threadTime(t) - before
		}()
		<-done
		return worked
	}
	// The least of some: a thread of the runtime does other work, too.
	least := time.Hour
	for n := 0; least > wait/20 && n < 20; n++ {
		least = min(least, waits(new(Future)))
	}
	if least > wait/20 {
		t.Errorf("a wait of %v took %v of processor time", wait, least)
	}
	f := new(Future)
	go f.complete(nil, nil)
	s.conn.wait.until(t.Context(), f)
	if !f.settled() {
		t.Error("the wait ended before the outcome")
	}
}

// threadTime is what the calling thread has taken of processors.
func threadTime(t *testing.T) time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_THREAD, &u); err != nil {
		t.Error(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// A request that is still being written when its lane is lost has not been executed, and its queue is told so.
func TestLaneLostBeforePublication(t *testing.T) {
	s := newSolo(t)
	u, err := s.lane.ring.Claim(s.conn.id, 1)
	if err != nil {
		t.Fatal(err)
	}
	// What commit does before it publishes.
	d := draft{l: s.lane, u: u, h: slots.Header{Ticket: u.Ticket, Run: 1}}
	q, f := s.conn.NewQueue(), new(Future)
	q.expect()
	f.reset(s.method, &d, &sink{queue: q, tag: 7})
	s.lane.put(f)
	s.conn.laneClosed(1, nil)
	for tag, r := range q.All(t.Context()) {
		if tag != 7 || !errors.Is(r.Err, ErrNotExecuted) {
			t.Errorf("request %d: %v", tag, r.Err)
		}
	}
	// And what it does then: nothing is left.
	if err := d.publish(); err == nil || s.lane.retract(u) {
		t.Errorf("published: %v", err)
	}
	if w := s.lane.ring.Word(u.Index); w.State() != slots.Free {
		t.Errorf("the slot is %v", w)
	}
}

// Answers that the daemon has sent for a lane that is lost are none to requests of the next lane that has its id.
func TestSpilledAnswersOfALostLane(t *testing.T) {
	s := newSolo(t)
	f, err := s.method.Go(t.Context(), []byte("x"))
	if err != nil {
		t.Fatal(err)
	}
	u := f.run
	answer := slots.Spilled{Lane: s.lane.id, Run: u, Header: slots.Header{Ticket: u.Ticket, Run: uint16(u.Len), Kind: slots.KindAnswer}}
	s.conn.wait.lead.Lock() // a leader that does not run just now
	s.conn.spilled([]slots.Spilled{answer})
	s.conn.laneClosed(s.lane.id, nil)
	s.conn.wait.lead.Unlock()
	if _, err := f.Wait(t.Context()); err != nil {
		t.Errorf("the answer is lost: %v", err)
	}
	if n := len(s.conn.spills.answers); n != 0 {
		t.Errorf("%d answers wait for whoever gets their slots in the next lane", n)
	}
}

// A request that somebody holds when its lane is lost, and lets go because its answer has been moved, has that answer.
func TestHeldRequestOfALostLane(t *testing.T) {
	s := newSolo(t)
	f, err := s.method.Go(t.Context(), []byte("x"))
	if err != nil {
		t.Fatal(err)
	}
	u := f.run
	s.conn.wait.lead.Lock() // the test leads
	if s.lane.hold(u.Index, u.Ticket) != f {
		t.Fatal("the request is not there")
	}
	s.conn.spilled([]slots.Spilled{{Lane: s.lane.id, Run: u, Header: slots.Header{Ticket: u.Ticket, Run: uint16(u.Len), Kind: slots.KindAnswer}}})
	over := make(chan struct{})
	go func() {
		defer close(over)
		s.conn.laneClosed(s.lane.id, nil)
	}()
	for end := time.Now().Add(20 * time.Millisecond); time.Now().Before(end); {
		select {
		case <-over:
			t.Fatal("it did not wait for the one that holds the request")
		default:
			runtime.Gosched()
		}
	}
	s.lane.letGo(f)
	<-over
	s.conn.wait.lead.Unlock()
	if _, err := f.Wait(t.Context()); err != nil {
		t.Errorf("the answer is lost: %v", err)
	}
	if n := len(s.conn.spills.answers); n != 0 {
		t.Errorf("%d answers are left", n)
	}
}
