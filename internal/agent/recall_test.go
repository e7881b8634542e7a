package agent

import (
	"testing"

	"github.com/rdmad/rdmad/slots"
)

// stuff fills the hint ring of the service's only process, which takes nothing, with requests whose caller gives up.
func (s *side) stuff(t *testing.T, c *rigWorker, out *OutLane) {
	t.Helper()
	for range slots.HintEntries {
		x := s.signedCall(t, c, out.Ring)
		settle(s)
		s.cancel(t, c, out.Ring, c.id, x.name())
		if got := x.status(t); got != slots.StatusNotExecuted {
			t.Fatalf("%v", got)
		}
		out.Ring.Consume(x.u)
		for more := true; more; {
			_, more = c.rings.Down.Pop()
		}
	}
}

// A process that stood still goes on, and passes a ring full of hints of requests that were taken back from it: what waits for
// room in that ring is given to it.
func TestRoomForHints(t *testing.T) {
	s := newSide(t, nil)
	out, _ := s.localLane(t)
	c := s.addWorker(1)
	service := s.addService()
	s.stuff(t, c, out)
	last := s.signedCall(t, c, out.Ring)
	settle(s)
	s.work(service, out.Ring, 1<<20)
	if !service.rings.Down.Empty() {
		t.Fatal("there are hints left")
	}
	s.bells.MarkWorker(service.id)
	settle(s)
	s.work(service, out.Ring, 1)
	settle(s)
	if !last.answered(t, 0) {
		t.Errorf("no answer: %v, %d under way there, %d wait", out.Ring.Word(last.u.Index), service.view.outstanding, s.d.Method(rigMethod).queue.len())
	}
}

// While it stands still, another process of the service gets what there is to do.
func TestIdleProcessBesideOneThatStandsStill(t *testing.T) {
	s := newSide(t, nil)
	out, _ := s.localLane(t)
	c := s.addWorker(1)
	s.addService()
	s.stuff(t, c, out)
	good := s.addWorker(7)
	good.view.Mapped[rigLane/64] |= 1 << (rigLane % 64)
	s.d.Register(rigMethod, good.view)
	for k := range 20 {
		x := s.signedCall(t, c, out.Ring)
		settle(s)
		s.work(good, out.Ring, 1)
		settle(s)
		if !x.answered(t, 0) {
			t.Fatalf("request %d waits, and a process is idle; %d in the queue", k, s.d.Method(rigMethod).queue.len())
		}
	}
}

// A process that stands still does not look idle for that its callers have given up.
func TestTakenBackIsStillToBePassed(t *testing.T) {
	s := newSide(t, nil)
	out, _ := s.localLane(t)
	c := s.addWorker(1)
	still := s.addService()
	good := s.addWorker(7)
	good.view.Mapped[rigLane/64] |= 1 << (rigLane % 64)
	s.d.Register(rigMethod, good.view)
	// Each has one. That of the process that stands still is taken back again and again, that of the good one ends.
	lost := 0
	for range 100 {
		x := s.signedCall(t, c, out.Ring)
		settle(s)
		s.work(good, out.Ring, 1)
		settle(s)
		if !x.answered(t, 0) {
			lost++
			s.cancel(t, c, out.Ring, c.id, x.name())
			x.status(t)
			out.Ring.Consume(x.u)
		}
	}
	if lost > 1 {
		t.Errorf("%d of 100 requests went to the process that stands still, which has %d of them", lost, still.view.outstanding)
	}
}

// Requests that wait for their callers' turns are given when those before them are taken back from a process that has not
// begun with any.
func TestTurnsAfterTakingBack(t *testing.T) {
	s := newSide(t, nil)
	out, in := s.localLane(t)
	callers := []*rigWorker{s.addWorker(1), s.addWorker(4)}
	service := s.addService()
	service.view.Handlers = 1
	var calls, left []*rigCall
	for i := range 40 {
		calls = append(calls, s.signedCall(t, callers[i%2], out.Ring))
		s.d.modest = true
		settle(s)
	}
	if s.d.Method(rigMethod).turns.n == 0 {
		t.Fatal("nothing waits for its turn")
	}
	for _, x := range calls {
		if in.records[x.u.Index].worker != 0 {
			s.cancel(t, x.w, out.Ring, x.w.id, x.name())
		} else {
			left = append(left, x)
		}
	}
	for range left {
		settle(s)
		s.work(service, out.Ring, len(calls))
	}
	settle(s)
	for _, x := range left {
		if !x.answered(t, 0) {
			t.Fatalf("a request waits for its turn: the process has %d, and %d wait", service.view.outstanding, s.d.Method(rigMethod).turns.n)
		}
	}
}
