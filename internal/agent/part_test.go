package agent

import (
	"testing"

	"github.com/rdmad/rdmad/slots"
)

// sendPart publishes a part for the process to.
func (s *side) sendPart(t *testing.T, w *rigWorker, r *slots.Ring, to int) *rigCall {
	u, err := r.Claim(w.id, 1)
	if err != nil {
		t.Fatal(err)
	}
	h := slots.Header{Ticket: u.Ticket, Run: 1, Answer: 8, Kind: slots.KindRequest, Flags: slots.FlagPart, Method: rigMethod, To: uint16(to)}
	h.Encode(r.Header(u))
	if !r.Publish(u, w.id) {
		t.Fatal("not published")
	}
	s.bells.MarkLane(rigLane)
	return &rigCall{w: w, ring: r, u: u}
}

func (c *rigCall) status(t *testing.T) slots.Status {
	t.Helper()
	var h slots.Header
	if !c.ring.Answered(c.u, c.w.id) || !h.Decode(c.ring.Header(c.u)) {
		t.Fatalf("slot %d: no answer", c.u.Index)
	}
	c.ring.Consume(c.u)
	return h.Status
}

// Parts go to the process that they name, and to nobody else when it is gone.
func TestPartsReachTheirProcess(t *testing.T) {
	s := newSide(t, nil)
	out, in := s.localLane(t)
	caller, first, second := s.addWorker(1), s.addService(), s.addWorker(3)
	second.view.Mapped[rigLane/64] |= 1 << (rigLane % 64)
	s.d.Register(rigMethod, second.view)

	var calls []*rigCall
	for range 10 {
		calls = append(calls, s.sendPart(t, caller, out.Ring, second.id))
	}
	settle(s)
	if first.view.outstanding != 0 || second.view.outstanding != 10 {
		t.Fatalf("first has %d, second %d", first.view.outstanding, second.view.outstanding)
	}
	s.work(second, in.Ring, 5)
	settle(s)
	for _, c := range calls[:5] {
		if got := c.status(t); got != slots.StatusOK {
			t.Errorf("answered with %v", got)
		}
	}
	s.bury(second)
	settle(s)
	for _, c := range calls[5:] {
		if got := c.status(t); got != slots.StatusNotExecuted {
			t.Errorf("not started, and ended with %v", got)
		}
	}
	late := s.sendPart(t, caller, out.Ring, second.id)
	settle(s)
	if got := late.status(t); got != slots.StatusNotExecuted {
		t.Errorf("for a process that is gone: %v", got)
	}
	if first.view.outstanding != 0 {
		t.Errorf("another process has %d parts", first.view.outstanding)
	}
	out.idle(t)
	in.idle(t)
	allFree(t, out.Ring, 0)
}

// A part that waits for room in its process does not keep others waiting, and ends
// with the process.
func TestQueuedPartsEndWithTheirProcess(t *testing.T) {
	s := newSide(t, nil)
	out, in := s.localLane(t)
	caller, first, second := s.addWorker(1), s.addService(), s.addWorker(3)
	s.d.Register(rigMethod, second.view) // without the lane: nothing can be delivered
	part := s.sendPart(t, caller, out.Ring, second.id)
	settle(s)
	call := s.send(caller, out.Ring, 8, false, 1)
	settle(s)
	s.work(first, in.Ring, 1)
	settle(s)
	if !call.answered(t, 0) {
		t.Fatal("a part that waits keeps a call from its handler")
	}
	s.bury(second)
	settle(s)
	if got := part.status(t); got != slots.StatusNotExecuted {
		t.Errorf("the part ended with %v", got)
	}
	out.idle(t)
	in.idle(t)
}
