package agent

import "testing"

// Callers that have few requests under way go round in few slots, those with many in more, and with the last of
// many there are few again. Nobody comes to a slot that is in use before the others have been used.
func TestClaimsStayNearTheBeginning(t *testing.T) {
	s := newSide(t, nil)
	out, in := s.localLane(t)
	client, service := s.addWorker(1), s.addService()
	s.d.Joins(client.view, rigLane)
	// furthest has rounds of so many requests of a slot each, and returns the last slot that one had.
	furthest := func(rounds, requests int) (last int) {
		for range rounds {
			var calls []*rigCall
			for range requests {
				c := s.send(client, out.Ring, 1, false, 7)
				if c == nil {
					t.Fatal("no room")
				}
				last = max(last, c.u.Index)
				calls = append(calls, c)
			}
			settle(s)
			s.work(service, in.Ring, requests)
			settle(s)
			for _, c := range calls {
				if !c.answered(t, 0) {
					t.Fatalf("slot %d: no answer", c.u.Index)
				}
			}
		}
		out.check(t)
		in.check(t)
		return last
	}
	n := rigGeometry.Slots
	for range 2 {
		furthest(8*n, 1)
		if last := furthest(n, 1); last != n/4-1 {
			t.Errorf("one at a time: the last slot was %d, want %d", last, n/4-1)
		}
		furthest(1, 10)
		if last := furthest(n, 10); last != windowRoom*10-1 {
			t.Errorf("ten at a time: the last slot was %d, want %d", last, windowRoom*10-1)
		}
		if last := furthest(n, n/2); last != n-1 {
			t.Errorf("half of the ring at a time: the last slot was %d, want %d", last, n-1)
		}
	}
	out.idle(t)
	in.idle(t)
	allFree(t, out.Ring, 0)
}
