package agent

import (
	"testing"

	"github.com/rdmad/rdmad/internal/fabric/fabrictest"
	"github.com/rdmad/rdmad/slots"
)

// Operations on the regions of a node that stands still end, though its connections do not; those of a node that
// is only slow go on.
func TestOpsOnANodeThatStandsStill(t *testing.T) {
	x := newRegionRig(t, fabrictest.NewFake())
	m, looks := x.in.Peer.Mover, 0
	m.Later = func() bool { looks++; return true }
	_, u := x.begin(whole(x.far, slots.RightRead))
	underWay := func() {
		t.Helper()
		x.submit(x.service, op(u, slots.OpRead, 0, rigRegion, x.own))
		for range 100 {
			if x.b.a.cycle(); m.End != nil && m.End.next != m.End.done {
				return // and no completion is looked at before the next cycle
			}
		}
		t.Fatal("nothing is under way")
	}
	underWay()
	if !m.watching || looks != 1 {
		t.Fatalf("watching %v after %d looks", m.watching, looks)
	}
	if r := x.result(x.service); r.Status != slots.OpOK { // it was slow
		t.Errorf("the first operation ended with %v", r.Status)
	}
	underWay()
	m.LookAgain()
	if m.End == nil || !m.watching || looks != 2 {
		t.Errorf("watching %v after %d looks: something was completed before this one", m.watching, looks)
	}
	x.refuse = true // a connection to a node that stands still is not made
	queues := x.b.a.CQs
	x.b.a.CQs = nil // nothing completes
	m.LookAgain()
	for range 2 * looksOnMore {
		x.b.a.cycle()
	}
	x.b.a.CQs = queues
	if m.End != nil || x.opened != 1 {
		t.Error("the connection goes on although nothing was completed between two looks")
	}
	settle(x.a, x.b)
	if !x.service.ops.Empty() || !m.Uncertain() {
		t.Error("the operation has ended although the other node may still carry it out")
	}
	x.loseLink() // as its conductor does then
	x.in.Peer.Forget()
	if r := x.result(x.service); r.Status != slots.OpLost {
		t.Errorf("the operation ended with %v", r.Status)
	}
	m.LookAgain()
	if m.watching {
		t.Error("there is to be another look although nothing is under way")
	}
	x.finish(u)
	settle(x.a, x.b)
}

// A process that has stood still itself finds that the time is over before it finds what has completed meanwhile: that counts, whether it
// is there at once or comes with the events that a busy agent looks for now and then.
func TestOpsOverAFreezeOfTheirOwnNode(t *testing.T) {
	for late := range lookEvery + 1 { // cycles without a look at what is there
		x := newRegionRig(t, fabrictest.NewFake())
		m, looks := x.in.Peer.Mover, 0
		m.Later = func() bool { looks++; return true }
		_, u := x.begin(whole(x.far, slots.AllRights))
		x.submit(x.service, op(u, slots.OpFetchAdd, 0, 8, x.own))
		for n := 0; m.End == nil || m.End.next == m.End.done; n++ {
			if n == 100 {
				t.Fatal("nothing is under way")
			}
			x.b.a.cycle()
		}
		e, queues := m.End, x.b.a.CQs
		x.b.a.Commands.Do(m.LookAgain)  // as its timer does, in the first cycle after the freeze
		x.b.a.CQs, x.refuse = nil, true // and no other connection is made
		for range late {
			x.b.a.cycle()
		}
		x.b.a.CQs = queues
		if r := x.result(x.service); r.Status != slots.OpOK {
			t.Errorf("after %d cycles: the operation ended with %v", late, r.Status)
		}
		settle(x.a, x.b)
		if m.End != e || x.opened != 1 || m.watching {
			t.Errorf("after %d cycles: another connection: %v, %d opened, watching %v", late, m.End != e, x.opened, m.watching)
		}
		x.finish(u)
		settle(x.a, x.b)
	}
}
