package agent

import (
	"testing"

	"github.com/rdmad/rdmad/internal/fabric"
	"github.com/rdmad/rdmad/slots"
)

// A peer is not forgotten while it has a region of this node, this node has one of the peer's, or there is a lane to or from it.
func TestRemovePeer(t *testing.T) {
	s := newSide(t, nil)
	p := s.d.Peer("b")
	id := slots.MakeRegionID(3, 1)
	r := &Region{ID: id, Exported: []*Peer{p}}
	out, in := &OutLane{Peer: p}, &InLane{Peer: p}
	for name, c := range map[string]struct{ begin, end func() }{
		"its region":    {func() { p.Imported(id, fabric.RemoteKey{Len: 1}); p.Mover.opening = false }, func() { p.Withdrawn(id, func() {}) }},
		"our region":    {func() { s.d.AddRegion(r) }, func() { s.d.RemoveRegion(r) }},
		"a lane to it":  {func() { s.d.OutLanes = append(s.d.OutLanes, out) }, func() { s.d.OutLanes = Without(s.d.OutLanes, out) }},
		"one from it":   {func() { s.d.InLanes = append(s.d.InLanes, in) }, func() { s.d.InLanes = Without(s.d.InLanes, in) }},
		"a new attempt": {func() { p.Mover.opening = true }, func() { p.Mover.opening = false }},
	} {
		c.begin()
		if s.d.RemovePeer(p) {
			t.Errorf("%s: the peer is forgotten", name)
		}
		c.end()
	}
	if !s.d.RemovePeer(p) || len(s.d.Peers) != 0 || len(s.d.Movers) != 1 {
		t.Errorf("%d peers, %d movers are left", len(s.d.Peers), len(s.d.Movers))
	}
	if s.d.Peer("b") == p {
		t.Error("it is not made anew")
	}
}
