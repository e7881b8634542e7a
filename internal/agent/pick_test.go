package agent

import (
	"testing"

	"github.com/rdmad/rdmad/slots"
)

// A request goes to the process with the fewest unfinished ones, of eight that are
// compared, and equals take turns.
func TestPick(t *testing.T) {
	s := newSide(t, nil)
	s.localLane(t)
	m := func() *Method { return s.d.methods[s.d.MethodNumber(rigMethod)] }
	var all []*Worker
	add := func(n int) {
		for range n {
			w := s.addWorker(10 + len(all)).view
			w.Mapped[rigLane/64] |= 1 << (rigLane % 64)
			s.d.Register(rigMethod, w)
			all = append(all, w)
		}
	}
	add(pickAmong)
	all[5].outstanding = 3
	for range 8 * (pickAmong - 1) {
		m().pick(rigLane).outstanding++
	}
	for i, w := range all {
		if w.outstanding < 7 || w.outstanding > 8 {
			t.Errorf("process %d of %d has %d", i, len(all), w.outstanding)
		}
	}
	add(4 * pickAmong)
	for range 1000 {
		m().pick(rigLane).outstanding++
	}
	for i, w := range all {
		if w.outstanding < 1000/len(all)/2 {
			t.Errorf("process %d of %d has %d", i, len(all), w.outstanding)
		}
	}
}

// A lane that goes down ends what was sent as perhaps executed, and what was not as not
// executed.
func TestLaneDownBeforeTheRequest(t *testing.T) {
	a, b, out, _ := remoteLane(t)
	caller := a.addWorker(11)
	b.addService()
	sent := a.send(caller, out.Ring, 10, false, 1)
	settle(a, b)
	waiting := a.send(caller, out.Ring, 10, false, 2)
	out.Down("test")
	if got := sent.status(t); got != slots.StatusMaybeExecuted {
		t.Errorf("sent: %v", got)
	}
	if got := waiting.status(t); got != slots.StatusNotExecuted {
		t.Errorf("not sent: %v", got)
	}
}
