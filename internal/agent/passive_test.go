package agent

import (
	"testing"

	"github.com/rdmad/rdmad/internal/fabric"
	"github.com/rdmad/rdmad/internal/fabric/fabrictest"
	"github.com/rdmad/rdmad/slots"
)

// A connection by which a peer operates on regions of this node, and that breaks, is down, and what was before it does not count.
func TestBrokenPassiveEnd(t *testing.T) {
	x := newRegionRig(t, fabrictest.NewFake())
	_, u := x.begin(whole(x.far, slots.AllRights))
	x.submit(x.service, op(u, slots.OpWrite, 0, 64, x.own))
	settle(x.a, x.b)
	if r := x.result(x.service); r.Status != slots.OpOK {
		t.Fatalf("%+v", r)
	}
	in := func() string { return x.a.d.BulkStatus("default")[0].In }
	e := x.out.Peer.Passive
	if in() != "up" {
		t.Fatalf("the connection is %s", in())
	}
	e.broken(&fabric.Completion{Op: fabric.OpDisconnect, Tag: e.Tag})
	if in() != "down" || x.out.Peer.Passive != nil {
		t.Errorf("a connection that has broken is %s", in())
	}
	x.finish(u)
	settle(x.a, x.b)
}
