package client

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"time"

	"github.com/rdmad/rdmad/internal/exchange"
	"github.com/rdmad/rdmad/shm"
	"github.com/rdmad/rdmad/slots"
)

// What the context of a request that waits for room ends with is the cause of its error.
func TestCauseOfWaitForRoom(t *testing.T) {
	s := newSolo(t)
	for range s.lane.ring.Geometry().Slots {
		if _, err := s.lane.ring.Claim(9, 1); err != nil {
			t.Fatal(err)
		}
	}
	own := errors.New("own")
	ctx, cancel := context.WithCancelCause(t.Context())
	over := make(chan error, 1)
	go func() {
		_, err := s.method.Call(ctx, []byte("x"))
		over <- err
	}()
	cancel(own)
	err := <-over
	var late *DeadlineError
	if !errors.As(err, &late) || late.Sent || !errors.Is(late.Cause, own) || !errors.Is(err, own) || !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

// The copy of a request that may be sent again is forgotten with the outcome, and not with the future.
func TestCopyIsForgotten(t *testing.T) {
	s := newSolo(t)
	f, err := s.method.With(Idempotent()).Go(t.Context(), make([]byte, 1000))
	if err != nil {
		t.Fatal(err)
	}
	s.respond(s.published(t), 0, nil)
	if _, err := f.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := len(f.tries.req); n > 0 || s.conn.kept.bytes != 0 {
		t.Errorf("%d bytes are kept, %d counted", n, s.conn.kept.bytes)
	}
}

// respond answers a request with flags and a payload.
func (s *solo) respond(slot int, flags slots.Flags, payload []byte) {
	r := s.lane.ring
	w := r.Word(slot)
	h := slots.Header{Ticket: w.Ticket(), Run: uint16(w.Run()), Kind: slots.KindAnswer, Flags: flags, Length: uint32(len(payload))}
	h.Encode(r.HeaderAt(slot))
	copy(r.PayloadAt(slot, w.Run()), payload)
	r.Answer(slot, w)
	s.down.Push(slots.MakeHint(1, slot, w.Ticket()))
}

// The deadline of who waits for the answer to a reserved request in place goes with the request, unless that has less
// time itself.
func TestDeadlineOfCallInPlace(t *testing.T) {
	for _, c := range []struct{ reserve, call, want time.Duration }{
		{0, time.Hour, time.Hour}, {time.Hour, 0, time.Hour}, {time.Hour, 2 * time.Hour, time.Hour}, {2 * time.Hour, time.Hour, time.Hour}, {0, 0, 0},
	} {
		s := newSolo(t)
		within := func(d time.Duration) (context.Context, context.CancelFunc) {
			if d == 0 {
				return context.WithCancel(t.Context())
			}
			return context.WithTimeout(t.Context(), d)
		}
		reserving, cancel := within(c.reserve)
		defer cancel()
		r, err := s.method.Reserve(reserving, 10)
		if err != nil {
			t.Fatal(err)
		}
		calling, stop := within(c.call)
		over := make(chan error, 1)
		go func() {
			_, err := r.CallInPlace(calling)
			over <- err
		}()
		slot := s.published(t)
		var h slots.Header
		if !h.Decode(s.lane.ring.HeaderAt(slot)) {
			t.Fatal("no header")
		}
		left := time.Duration(0)
		if h.Deadline != 0 {
			left = time.Duration(h.Deadline - shm.Nanotime())
		}
		if left > c.want || left < c.want-time.Minute {
			t.Errorf("reserved with %v, called with %v: the request has %v", c.reserve, c.call, left)
		}
		stop()
		<-over
	}
}

// calling makes a call, and returns the slot of its request, what ends its context, and how it will have ended.
func (s *solo) calling(t *testing.T) (slot int, cancel context.CancelFunc, over <-chan error) {
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := s.method.Call(ctx, []byte("x"))
		ended <- err
	}()
	return s.published(t), cancel, ended
}

// The large answer to a call that was given up is not made room for.
func TestLargeAnswerNobodyWaitsFor(t *testing.T) {
	s := newSolo(t)
	slot, cancel, over := s.calling(t)
	cancel()
	if err := <-over; !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	const size = 1 << 29
	more := make([]byte, exchange.PartSize)
	(&exchange.PartAnswer{ID: 7, Credit: size, Kind: exchange.KindMore, To: 4}).Encode(more)
	s.respond(slot, slots.FlagPart, more)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	s.conn.gate.enter()
	s.conn.wait.reapIfFree()
	s.conn.gate.leave()
	s.published(t) // that the handler's process may forget it
	runtime.ReadMemStats(&after)
	if grown := after.TotalAlloc - before.TotalAlloc; grown > size/2 {
		t.Errorf("%d bytes for an answer that nobody waits for", grown)
	}
}

// A call whose context ends while the leader has it in hand, because of what turns out to be no answer, ends all the same.
func TestGiveUpBesideLeader(t *testing.T) {
	s := newSolo(t)
	slot, cancel, over := s.calling(t)
	f := s.lane.hold(slot, s.lane.ring.Word(slot).Ticket())
	cancel()
	select {
	case err := <-over:
		t.Fatalf("it has ended while somebody had it in hand: %v", err)
	case <-time.After(20 * time.Millisecond): // or a look later
	}
	s.lane.letGo(f)
	var late *DeadlineError
	if err := <-over; !errors.As(err, &late) || !late.Sent {
		t.Errorf("%v", err)
	}
}

// A wait whose context has ended finds an answer that has come before.
func TestWaitAfterItsEnd(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	s := newSolo(t)
	f, err := s.method.Go(t.Context(), []byte("x"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Wait(ended); !errors.Is(err, ErrDeadline) {
		t.Fatalf("before the answer: %v", err)
	}
	s.respond(s.published(t), 0, []byte("answer"))
	if answer, err := f.Wait(ended); string(answer) != "answer" || err != nil {
		t.Errorf("%q, %v", answer, err)
	}
	p, err := s.method.GoInPlace(t.Context(), []byte("x"))
	if err != nil {
		t.Fatal(err)
	}
	s.respond(s.published(t), 0, []byte("in place"))
	answer, err := p.Wait(ended)
	if err != nil {
		t.Fatal(err)
	}
	if string(answer.Bytes()) != "in place" {
		t.Errorf("%q", answer.Bytes())
	}
	answer.Release()
}
