package agent

import (
	"testing"

	"github.com/rdmad/rdmad/slots"
)

// circle publishes two one-way messages of w that come after each other.
func (s *side) circle(t *testing.T, w *rigWorker, r *slots.Ring) {
	t.Helper()
	var runs [2]slots.Run
	for k := range runs {
		u, err := r.Claim(w.id, r.Geometry().MaxRun)
		if err != nil {
			t.Fatal(err)
		}
		runs[k] = u
	}
	for k, u := range runs {
		after := runs[1-k]
		h := slots.Header{Ticket: u.Ticket, Run: uint16(u.Len), Kind: slots.KindOneWay, Method: rigMethod, From: uint16(w.id),
			Order: 1, After: uint16(after.Index), AfterTicket: uint32(after.Ticket)}
		h.Encode(r.Header(u))
		if !r.Publish(u, w.id) {
			t.Fatal("not published")
		}
	}
	s.bells.MarkLane(rigLane)
}

// A process that publishes messages which come after each other and dies leaves nothing behind: neither slots nor its id, and
// the lane can be drained.
func TestCircleOfTheDead(t *testing.T) {
	for where, rig := range map[string]func() (a, b *side, out *OutLane){
		"local": func() (a, b *side, out *OutLane) {
			a = newSide(t, nil)
			out, _ = a.localLane(t)
			return a, a, out
		},
		"remote": func() (a, b *side, out *OutLane) {
			a, b, out, _ = remoteLane(t)
			return a, b, out
		},
	} {
		t.Run(where, func(t *testing.T) {
			a, b, out := rig()
			service := b.addService()
			mirror := out.Ring
			if where == "remote" {
				mirror = b.d.InLanes[0].Ring
			}
			for id := 10; id < 30; id++ {
				w := a.addWorker(id)
				a.circle(t, w, out.Ring)
				a.bury(w)
				settle(a, b)
				b.work(service, mirror, 2)
				settle(a, b)
				if a.d.unsettled(id) {
					t.Fatalf("the id of process %d cannot be used again", id)
				}
			}
			allFree(t, out.Ring, 0)
			if a.d.Damages.Total == 0 {
				t.Error("they are no damage")
			}
			out.SetDraining()
			if !out.Empty() {
				t.Error("the lane is not drained")
			}
		})
	}
}
