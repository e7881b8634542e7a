package daemon

import (
	"testing"

	"github.com/rdmad/rdmad/internal/version"
	"github.com/rdmad/rdmad/slots"
)

// A request with something that its peer does not know is refused here, as one that no
// handler has seen; the peer would take it for a fault of this node.
func TestCarryToAnOldPeer(t *testing.T) {
	a, b, out, in := remoteLane(t)
	w := a.addWorker(1)
	for _, plain := range []bool{true, false} {
		out.plain = plain
		u, err := out.ring.Claim(w.id, 1)
		if err != nil {
			t.Fatal(err)
		}
		h := slots.Header{Ticket: u.Ticket, Run: 1, Length: 5, Kind: slots.KindRequest, Flags: slots.FlagCarry, Method: rigMethod}
		slots.PutCarried(out.ring.Payload(u), []byte("x"))
		h.Encode(out.ring.Header(u))
		out.ring.Publish(u, w.id)
		a.bells.MarkLane(rigLane)
		settle(a, b)
		if !out.ring.Acquire(u, w.id) {
			t.Fatal("no answer")
		}
		var answer slots.Header
		want := slots.StatusNoService // nobody serves it there
		if plain {
			want = slots.StatusInvalid
		}
		if !answer.Decode(out.ring.Header(u)) || answer.Status != want || w.view.offences.total != 0 || in.pair == nil {
			t.Errorf("plain %v: %+v, %d offences", plain, answer, w.view.offences.total)
		}
		out.ring.Consume(u)
	}
}

// One process that does not know what may go with a request is enough.
func TestCarryIsNegotiated(t *testing.T) {
	m := &method{workers: map[*worker]bool{{abi: 4<<16 | 2}: true, {abi: 4<<16 | 3}: true}}
	if !m.carries() {
		t.Error("all know it")
	}
	m.workers[&worker{abi: 4<<16 | 1}] = true
	if m.carries() {
		t.Error("one does not know it")
	}
	same := version.Own()
	old := same
	old.ABI--
	if old.Adopts(same) == nil || same.Adopts(old) != nil || same.Adopts(same) != nil {
		t.Error("an older program goes on with what it may not know")
	}
}
