package daemon

import (
	"testing"

	"github.com/rdmad/rdmad/internal/config"
	"github.com/rdmad/rdmad/slots"
)

// A request goes to the process with the fewest unfinished ones, of eight that are
// compared, and equals take turns.
func TestPick(t *testing.T) {
	s := newSide(t, nil)
	s.localLane(t)
	m := func() *agentMethod { return s.d.methods[s.d.methodNumber(rigMethod)] }
	var all []*agentWorker
	add := func(n int) {
		for range n {
			w := s.addWorker(10 + len(all)).view
			w.mapped[rigLane/64] |= 1 << (rigLane % 64)
			s.d.register(rigMethod, w)
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
	sent := a.send(caller, out.ring, 10, false, 1)
	settle(a, b)
	waiting := a.send(caller, out.ring, 10, false, 2)
	out.down("test")
	if got := sent.status(t); got != slots.StatusMaybeExecuted {
		t.Errorf("sent: %v", got)
	}
	if got := waiting.status(t); got != slots.StatusNotExecuted {
		t.Errorf("not sent: %v", got)
	}
}

// The first domain that lists the user of a process admits it, else the first that lists
// its primary group, else the first that lists one of its other groups, else none.
func TestAdmit(t *testing.T) {
	c := &conductor{}
	one, two := &domain{name: "one"}, &domain{name: "two"}
	one.policy.Store(&config.Domain{UIDs: []uint32{1}, GIDs: []uint32{10, 20}})
	two.policy.Store(&config.Domain{UIDs: []uint32{2}, GIDs: []uint32{30}})
	c.domains.Store(&[]*domain{one, two})
	for _, test := range []struct {
		uid, gid uint32
		others   []uint32
		want     string
	}{
		{1, 99, nil, "one"}, {2, 99, nil, "two"}, {2, 10, nil, "two"}, {3, 20, nil, "one"}, {3, 30, nil, "two"}, {3, 99, nil, ""}, {10, 1, nil, ""},
		{3, 99, []uint32{98, 30}, "two"}, {3, 99, []uint32{30, 20}, "one"}, {3, 30, []uint32{10}, "two"}, {2, 99, []uint32{10}, "two"}, {3, 99, []uint32{1, 2}, ""},
	} {
		got := ""
		if d := c.admit(test.uid, test.gid, test.others); d != nil {
			got = d.name
		}
		if got != test.want {
			t.Errorf("user %d of group %d and %v is admitted to %q, want %q", test.uid, test.gid, test.others, got, test.want)
		}
	}
}
