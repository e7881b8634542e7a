package agent

import (
	"testing"
	"time"

	"github.com/rdmad/rdmad/internal/fabric/fabrictest"
	"github.com/rdmad/rdmad/slots"
)

// A peer that completes no operation, and ends one session after the other before anything else is over, does not keep what its calls
// have of a service: they end as lost. Neither sessions in which something completes nor the time in which nothing waits count.
func TestBarrenSessions(t *testing.T) {
	x := newRegionRig(t, fabrictest.NewFake())
	m := x.in.Peer.Mover
	m.Patience = func() time.Duration { return 0 }
	x.loseLink() // while nothing waits
	settle(x.a, x.b)
	x.regainLink(x.far)
	c, u := x.begin(whole(x.far, slots.AllRights))

	// One that completes between two losses.
	b := x.submitBatch(u)
	x.loseLink()
	settle(x.a, x.b)
	x.regainLink(x.far)
	settle(x.a, x.b)
	if n := b.reap(t, x.service); n != 0 || b.count(slots.OpRead, slots.OpOK) != 1 {
		t.Fatalf("%d operations have not ended; %v", n, b.status)
	}

	// One that does not.
	b = x.submitBatch(u)
	for session := range 2 {
		if n := b.reap(t, x.service); n != 6 {
			t.Fatalf("session %d: %d operations have ended already: %v", session, 6-n, b.status)
		}
		x.b.a.cycle() // what it posts is lost with the link
		x.loseLink()
		x.b.a.cycle()
		if session == 0 {
			x.regainLink(x.far)
		}
	}
	if n := b.reap(t, x.service); n != 0 || b.count(slots.OpRead, slots.OpLost) != 1 || b.count(slots.OpWrite, slots.OpLost) != 1 {
		t.Errorf("%d operations have not ended; %v", n, b.status)
	}
	x.regainLink(x.far)
	x.finish(u)
	settle(x.a, x.b)
	if _, ok := c.outcome(t); !ok {
		t.Error("the call has no outcome")
	}
}
