package agent

import (
	"slices"
	"testing"
	"time"

	"github.com/rdmad/rdmad/slots"
)

// sendAs publishes a request with the given header, to which the method and the caller are
// added.
func (s *side) sendAs(t *testing.T, w *rigWorker, r *slots.Ring, h slots.Header) *rigCall {
	t.Helper()
	u, err := r.Claim(w.id, 1)
	if err != nil {
		t.Fatal(err)
	}
	return s.publishAs(t, w, r, u, h)
}

func (s *side) publishAs(t *testing.T, w *rigWorker, r *slots.Ring, u slots.Run, h slots.Header) *rigCall {
	t.Helper()
	h.Ticket, h.Run, h.Answer, h.Method, h.From = u.Ticket, 1, 8, rigMethod, uint16(w.id)
	if h.Order != 0 {
		h.After, h.AfterTicket = uint16(u.Index), uint32(u.Ticket)
	}
	h.Encode(r.Header(u))
	if !r.Publish(u, w.id) {
		t.Fatal("not published")
	}
	s.bells.MarkLane(rigLane)
	return &rigCall{w: w, ring: r, u: u}
}

// free reports whether nobody has the slot of a call.
func (c *rigCall) free() bool { return c.ring.Word(c.u.Index).State() == slots.Free }

// Of the requests of a caller that is gone those are dropped that no handler has started
// on. One-way messages and ordered requests are not, nor anything of another caller, and
// the process is told of the others.
func TestGoneCaller(t *testing.T) {
	s := newSide(t, nil)
	out, in := s.localLane(t)
	caller, other, service := s.addWorker(1), s.addWorker(3), s.addService()
	for _, w := range []*rigWorker{caller, other} {
		w.view.Ops = nil
		s.d.Joins(w.view, rigLane)
	}
	request := slots.Header{Kind: slots.KindRequest}
	begun := s.sendAs(t, caller, out.Ring, request)
	settle(s)
	pick(t, in.Ring, service, begun.u.Index)
	waits := s.sendAs(t, caller, out.Ring, request)
	ordered := s.sendAs(t, caller, out.Ring, slots.Header{Kind: slots.KindRequest, Order: 7})
	posted := s.sendAs(t, caller, out.Ring, slots.Header{Kind: slots.KindOneWay})
	others := s.sendAs(t, other, out.Ring, request)
	settle(s)

	s.bury(caller)
	told, notices := s.d.Mourn(caller.view, 1)
	settle(s)
	if len(told) > 0 {
		t.Errorf("peers are to be told of a local lane: %v", told)
	}
	if len(notices) != 1 || notices[0].Worker != service.view || notices[0].Caller != 1 {
		t.Fatalf("notices %+v", notices)
	}
	calls := notices[0].Calls
	if !slices.Contains(calls, SentRequest{begun.u.Index, begun.u.Ticket}) || len(calls) > 2 {
		t.Errorf("the process is told of %v", calls)
	}
	if !waits.free() {
		t.Error("a request that had not started is still there")
	}
	for name, c := range map[string]*rigCall{"begun": begun, "ordered": ordered, "one-way": posted, "another caller's": others} {
		if c.free() {
			t.Errorf("the request %s was dropped", name)
		}
	}
	if n := s.a.Count.Forsaken; n != 1 {
		t.Errorf("%d requests are forsaken", n)
	}
	if d := &s.a.Deaths; d.freed.n != 1 || d.settled.n != 0 {
		t.Errorf("%d deaths, %d settled", d.freed.n, d.settled.n)
	}
	if !s.d.unsettled(1) {
		t.Error("the id may be used again")
	}

	finish(s, in.Ring, service, begun.u)
	s.work(service, in.Ring, 10)
	settle(s)
	if s.d.unsettled(1) || s.a.Deaths.settled.n != 1 {
		t.Errorf("settled %d, still under way: %v", s.a.Deaths.settled.n, s.d.unsettled(1))
	}
	if got := others.status(t); got != slots.StatusOK {
		t.Errorf("the other caller's request ended with %v", got)
	}
}

// A request that arrives after the message that its caller is gone is dropped when it
// does, and the next one in its slot is not.
func TestGoneBeforeArrival(t *testing.T) {
	s := newSide(t, nil)
	out, in := s.localLane(t)
	caller, service := s.addWorker(1), s.addService()
	for round, ticket := range []uint64{0, 1, 0} { // of this one, of an earlier one, of this one
		u, err := out.Ring.Claim(caller.id, 1)
		if err != nil {
			t.Fatal(err)
		}
		in.Gone(1, []SentRequest{{u.Index, u.Ticket - ticket}})
		c := s.publishAs(t, caller, out.Ring, u, slots.Header{Kind: slots.KindRequest})
		settle(s)
		s.work(service, in.Ring, 10)
		settle(s)
		want := slots.StatusNotExecuted
		if ticket > 0 {
			want = slots.StatusOK
		}
		if got := c.status(t); got != want {
			t.Errorf("round %d: %v", round, got)
		}
		if len(in.doomed) > 0 {
			t.Errorf("round %d: %d tickets are kept", round, len(in.doomed))
		}
	}
}

// A process that has or may have an exchange with a caller is told that it is gone, once.
func TestGoneCallerOfExchange(t *testing.T) {
	s := newSide(t, nil)
	_, in := s.localLane(t)
	with, without := s.addService(), s.addWorker(3)
	in.exchanges(with.view, 1)
	for round, want := range []int{1, 0} {
		notices := in.Gone(1, nil)
		if len(notices) != want || want > 0 && (notices[0].Worker != with.view || notices[0].At == 0) {
			t.Errorf("round %d: %+v", round, notices)
		}
	}
	without.view.Stale = true // what it has with whom is not known
	if notices := in.Gone(1, nil); len(notices) != 1 || notices[0].Worker != without.view {
		t.Errorf("notices %+v", notices)
	}
}

// Buckets of times are in order, and each time is in the bucket that ends above it.
func TestDelays(t *testing.T) {
	var h delays
	last := time.Duration(0)
	for b := range h.counts[:len(h.counts)-1] {
		end := delayEnd(b)
		if end <= last || delayBucket(end) != b+1 || delayBucket(end-1) != b {
			t.Fatalf("bucket %d ends at %v, the one before at %v", b, end, last)
		}
		last = end
	}
	for range 98 {
		h.Add(int64(100 * time.Microsecond))
	}
	h.Add(int64(time.Second))
	h.Add(-1)
	s := h.status()
	if s.Count != 100 || s.P50US < 100 || s.P50US > 125 || s.P99US != s.MaxUS || s.MaxUS != 1e6 || len(s.Buckets) != 3 {
		t.Errorf("%+v", s)
	}
}

// finish answers a request that was picked.
func finish(s *side, r *slots.Ring, w *rigWorker, u slots.Run) {
	answer := slots.Header{Ticket: u.Ticket, Run: uint16(u.Len), Kind: slots.KindAnswer}
	answer.Encode(r.Header(u))
	r.Finish(u, w.id)
	w.rings.Up.Push(slots.MakeHint(rigLane, u.Index, u.Ticket))
	s.bells.MarkWorker(w.id)
}

// pick makes the service begin with the request in a slot.
func pick(t *testing.T, r *slots.Ring, w *rigWorker, i int) {
	t.Helper()
	if _, ok := r.Pick(i, w.id); !ok {
		t.Fatalf("slot %d cannot be picked", i)
	}
}
