package agent

import (
	"testing"

	"github.com/rdmad/rdmad/slots"
)

// cancel publishes a message that wants a request dropped.
func (s *side) cancel(t *testing.T, w *rigWorker, r *slots.Ring, from int, c slots.Cancel) {
	t.Helper()
	u, err := r.Claim(w.id, 1)
	if err != nil {
		t.Fatal(err)
	}
	h := slots.Header{Ticket: u.Ticket, Run: 1, Length: slots.CancelSize, Kind: slots.KindOneWay, Flags: slots.FlagCancel, From: uint16(from)}
	c.Encode(r.Payload(u))
	h.Encode(r.Header(u))
	if !r.Publish(u, w.id) {
		t.Fatal("not published")
	}
	s.bells.MarkLane(rigLane)
	settle(s)
}

func (c *rigCall) name() slots.Cancel {
	return slots.Cancel{Slot: uint32(c.u.Index), Ticket: c.u.Ticket}
}

// A request is dropped for the one who made it, and if no handler has started on it.
// Whatever else such a message says, nothing comes of it.
func TestCancel(t *testing.T) {
	for _, where := range []string{"local", "remote"} {
		t.Run(where, func(t *testing.T) {
			var near, far *side
			var out *OutLane
			var in *InLane
			if where == "local" {
				near = newSide(t, nil)
				far = near
				out, in = near.localLane(t)
			} else {
				near, far, out, in = remoteLane(t)
			}
			all := func() { settle(near, far) }
			caller, other, service := near.addWorker(1), near.addWorker(4), far.addService()
			call := func(w *rigWorker) *rigCall {
				c := near.signedCall(t, w, out.Ring)
				all()
				return c
			}
			first, second, third := call(caller), call(caller), call(other)
			h, ok := service.rings.Down.Pop()
			u, picked := in.Ring.Pick(h.Index(), service.id)
			if !ok || !picked || h.Index() != first.u.Index {
				t.Fatalf("picked %v, %v", h, u)
			}
			for _, c := range []slots.Cancel{
				first.name(), // its handler has started
				third.name(), // another's
				{Slot: second.name().Slot, Ticket: second.u.Ticket + 1},
				{Slot: 63, Ticket: 1}, {Slot: 64, Ticket: 1}, {Slot: 1<<32 - 1, Ticket: 1<<64 - 1},
			} {
				near.cancel(t, caller, out.Ring, caller.id, c)
				all()
			}
			if where == "remote" { // on its own node the journal says who it is
				near.cancel(t, caller, out.Ring, 0, second.name())
			}
			near.cancel(t, caller, out.Ring, other.id, third.name()) // by somebody else, as it says
			all()
			if near.a.Count.Cancelled+far.a.Count.Cancelled != 0 || service.view.outstanding != 3 {
				t.Fatalf("%d requests were dropped, %d are left", far.a.Count.Cancelled, service.view.outstanding)
			}
			near.cancel(t, caller, out.Ring, caller.id, second.name())
			near.cancel(t, caller, out.Ring, caller.id, second.name())
			all()
			if got := second.status(t); got != slots.StatusNotExecuted || far.a.Count.Cancelled != 1 || service.view.outstanding != 2 {
				t.Errorf("it ended with %v; %d dropped, %d left", got, far.a.Count.Cancelled, service.view.outstanding)
			}
			answer := slots.Header{Ticket: u.Ticket, Run: 1, Kind: slots.KindAnswer}
			answer.Encode(in.Ring.Header(u))
			if in.Ring.Finish(u, service.id) {
				service.rings.Up.Push(h)
				far.bells.MarkWorker(service.id)
			}
			all()
			far.work(service, in.Ring, 10)
			all()
			for _, c := range []*rigCall{first, third} {
				if got := c.status(t); got != slots.StatusOK {
					t.Errorf("slot %d ended with %v", c.u.Index, got)
				}
			}
			if near.a.Count.OneWayDone != 1 {
				t.Errorf("%d one-way messages were counted, besides the one that lied", near.a.Count.OneWayDone-1)
			}
			out.idle(t)
			in.idle(t)
			allFree(t, out.Ring, 0)
		})
	}
}

// A message that wants itself dropped is like one about nothing.
func TestCancelOfItself(t *testing.T) {
	near, far, out, in := remoteLane(t)
	caller := near.addWorker(1)
	far.addService()
	for range 2 * out.geo.Slots {
		// The slot at the cursor is the one that the message gets.
		i := int(out.Ring.Cursor() % uint64(out.geo.Slots))
		near.cancel(t, caller, out.Ring, caller.id, slots.Cancel{Slot: uint32(i), Ticket: out.Ring.Word(i).Ticket() + 1})
		settle(near, far)
		in.check(t)
	}
	out.idle(t)
	in.idle(t)
	if far.a.Count.Cancelled != 0 {
		t.Errorf("%d requests were dropped", far.a.Count.Cancelled)
	}
	allFree(t, out.Ring, 0)
}

// signedCall publishes a request that says who its caller is, as those of clients do. The other callers of the rig do not.
func (s *side) signedCall(t *testing.T, w *rigWorker, ring *slots.Ring) *rigCall {
	t.Helper()
	u, err := ring.Claim(w.id, 1)
	if err != nil {
		t.Fatal(err)
	}
	h := slots.Header{Ticket: u.Ticket, Run: 1, Answer: 8, Kind: slots.KindRequest, Method: rigMethod, From: uint16(w.id)}
	h.Encode(ring.Header(u))
	if !ring.Publish(u, w.id) {
		t.Fatal("not published")
	}
	s.bells.MarkLane(rigLane)
	return &rigCall{w: w, ring: ring, u: u}
}
