package agent

import (
	"sync"
	"testing"

	"github.com/rdmad/rdmad/slots"
)

// A request that is published while its lane goes down has an outcome, or its worker sees that it is to take it back.
func TestPublishedWhileTheLaneGoesDown(t *testing.T) {
	s := newSide(t, nil)
	out := NewOutLane(s.d, rigLane, newRing(t), newVault(t), 16)
	s.d.AddOut(out)
	w := s.addWorker(1)
	for round := range 20000 {
		out.Closed.Store(0)
		out.Ring.SetState(slots.LaneOpen)
		u, err := out.Ring.Claim(w.id, 1)
		if err != nil {
			t.Fatal(err)
		}
		h := slots.Header{Ticket: u.Ticket, Run: 1, Kind: slots.KindRequest, Method: rigMethod}
		h.Encode(out.Ring.Header(u))
		var begin, end sync.WaitGroup
		begin.Add(1)
		var closed bool
		end.Go(func() {
			begin.Wait()
			for range round % 300 {
				out.Ring.Cursor() // the later for it
			}
			out.Ring.Publish(u, w.id)
			closed = out.Ring.State() == slots.LaneClosed
		})
		begin.Done()
		out.Down("it is down")
		end.Wait()
		if word := out.Ring.Word(u.Index); word.State() == slots.Pub && !closed {
			t.Fatalf("round %d: %v, and the worker has seen an open lane", round, word)
		} else if word.State() == slots.Pub {
			out.Ring.Revoke(u, w.id)
		}
		out.Ring.Abort(u)
	}
}

// Whoever waits for room in a lane that goes down is woken: for free slots, or to be told that it may hold more.
func TestDownWakesWhoWaitsForRoom(t *testing.T) {
	s := newSide(t, nil)
	out := NewOutLane(s.d, rigLane, newRing(t), newVault(t), 16)
	s.d.AddOut(out)
	w := s.addWorker(1)
	s.d.Joins(w.view, rigLane)
	free, told := out.Ring.WaitFree(1), w.rings.Down.PrepareSleep()
	out.Down("it is down")
	s.a.cycle()
	if out.Ring.FreeBell().Load() == free {
		t.Error("who waits for free slots sleeps on")
	}
	if w.rings.Down.Bell().Load() == told {
		t.Error("who waits to be told sleeps on")
	}
}
