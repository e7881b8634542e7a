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
	m.LookAgain()
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
