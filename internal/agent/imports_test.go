package agent

import (
	"testing"

	"github.com/rdmad/rdmad/internal/fabric"
	"github.com/rdmad/rdmad/slots"
)

// A region that a peer wants back, and that handlers still have, is the only one with its name: however many there are, what the
// peer says of one costs the agent no look at all of them.
func TestRegionThatIsNotBackYet(t *testing.T) {
	p := newSide(t, nil).d.Peer("a")
	p.Mover.Connect = func(uint64) bool { return true }
	id, key := slots.MakeRegionID(1, 1), fabric.RemoteKey{Len: 8}
	if !p.Imported(id, key) {
		t.Fatal("it is refused")
	}
	r := p.imports[id]
	r.refs = 1
	back := 0
	p.Withdrawn(id, func() { back++ })
	if p.Imported(id, key) {
		t.Error("another one has its name")
	}
	if p.Revoked(id); !r.revoked {
		t.Error("its owner is dead, and handlers may go on")
	}
	r.refs = 0
	if r.quiet(); back != 1 {
		t.Errorf("it was given back %d times", back)
	}
	if !p.Imported(id, key) || p.imports[id] == r {
		t.Error("it was given back, and is not another one then")
	}
}
