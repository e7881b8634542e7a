package agent

import (
	"testing"

	"github.com/rdmad/rdmad/slots"
)

// A request with something that its peer does not know is refused here, as one that no
// handler has seen; the peer would take it for a fault of this node.
func TestCarryToAnOldPeer(t *testing.T) {
	a, b, out, in := remoteLane(t)
	w := a.addWorker(1)
	for _, plain := range []bool{true, false} {
		out.Plain = plain
		u, err := out.Ring.Claim(w.id, 1)
		if err != nil {
			t.Fatal(err)
		}
		h := slots.Header{Ticket: u.Ticket, Run: 1, Length: 5, Kind: slots.KindRequest, Flags: slots.FlagCarry, Method: rigMethod}
		slots.PutCarried(out.Ring.Payload(u), []byte("x"))
		h.Encode(out.Ring.Header(u))
		out.Ring.Publish(u, w.id)
		a.bells.MarkLane(rigLane)
		settle(a, b)
		if !out.Ring.Acquire(u, w.id) {
			t.Fatal("no answer")
		}
		var answer slots.Header
		want := slots.StatusNoService // nobody serves it there
		if plain {
			want = slots.StatusInvalid
		}
		if !answer.Decode(out.Ring.Header(u)) || answer.Status != want || w.view.offences.Total != 0 || in.End == nil {
			t.Errorf("plain %v: %+v, %d offences", plain, answer, w.view.offences.Total)
		}
		out.Ring.Consume(u)
	}
}
