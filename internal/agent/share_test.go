package agent

import (
	"slices"
	"testing"
	"time"

	"github.com/rdmad/rdmad/internal/sharing"
	"github.com/rdmad/rdmad/shm"
	"github.com/rdmad/rdmad/slots"
)

// What a worker has beyond its quota is refused and counted; what it may have is
// not, and neither is what it claimed before its share became smaller.
func TestRefusalBeyondQuotaAndShare(t *testing.T) {
	s := newSide(t, nil)
	out, in := s.localLane(t)
	service, hostile, other := s.addService(), s.addWorker(11), s.addWorker(12)
	out.Sharing.Quota = 10
	sendAll := func(w *rigWorker, n int) (calls []*rigCall) {
		for range n {
			calls = append(calls, s.send(w, out.Ring, 8, false, 1))
		}
		settle(s)
		return calls
	}
	refused := func(calls []*rigCall, text string) (n int) {
		t.Helper()
		for _, c := range calls {
			var h slots.Header
			if c.ring.Answered(c.u, c.w.id) && h.Decode(c.ring.Header(c.u)) && h.Status == slots.StatusNotExecuted {
				if got := string(c.ring.Payload(c.u)[:h.Length]); got != text[:len(got)] {
					t.Errorf("refused because %q", got)
				}
				n++
			}
		}
		return n
	}
	finish := func(calls ...*rigCall) {
		t.Helper()
		for range 20 {
			s.work(service, in.Ring, 64)
			settle(s)
		}
		for _, c := range calls {
			if !c.answered(t, 0) {
				t.Error("no outcome")
			}
		}
	}
	many, few := sendAll(hostile, 30), sendAll(other, 10)
	if a, b := refused(many, sharing.BeyondQuota), refused(few, sharing.BeyondQuota); a != 20 || b != 0 {
		t.Errorf("refused %d of a hostile worker, %d of a good one", a, b)
	}
	if s.a.Count.OverLimit != 20 || hostile.view.overLimit != 20 || other.view.overLimit != 0 || hostile.view.bytes != 10*128 {
		t.Errorf("counted %d, %d, %d; %d bytes", s.a.Count.OverLimit, hostile.view.overLimit, other.view.overLimit, hostile.view.bytes)
	}
	finish(append(many, few...)...)

	out.Sharing.Quota, s.d.WorkerBytes = rigGeometry.Slots, 5*128
	many = sendAll(hostile, 30)
	if n := refused(many, beyondBytes); n != 25 {
		t.Errorf("refused %d by bytes", n)
	}
	finish(many...)

	// A share holds for what is claimed after its epoch has begun.
	s.d.WorkerBytes = 0
	s.d.Joins(hostile.view, rigLane)
	s.d.Joins(other.view, rigLane)
	many, few = sendAll(hostile, 30), sendAll(other, 15)
	if n, share := refused(many, sharing.BeyondShare), out.Sharing.Share(); n != 0 || share != 16 {
		t.Errorf("refused %d under a share of %d that is new", n, share)
	}
	for range 5 {
		many = append(many, s.send(hostile, out.Ring, 8, false, 1))
	}
	now := shm.Nanotime()
	for range 3 { // each of these looks ends an epoch
		now += int64(time.Hour)
		out.Sharing.Balance(now, &s.d.held, false)
	}
	settle(s)
	if n := refused(many, sharing.BeyondShare); n != 0 {
		t.Errorf("refused %d that were claimed before the share", n)
	}
	more := sendAll(hostile, 5)
	if n := refused(more, sharing.BeyondShare); n != 5 {
		t.Errorf("refused %d by the share", n)
	}
	finish(slices.Concat(many, few, more)...)
	if hostile.view.bytes != 0 || out.Sharing.Sum() != 0 {
		t.Errorf("%d bytes, %d slots are left", hostile.view.bytes, out.Sharing.Sum())
	}
	out.idle(t)
	in.idle(t)
	allFree(t, out.Ring, 0)
}

// The share is published while the ring is crowded and more than one process has the lane, and put right when
// somebody else has written it.
func TestShareOfACrowdedRing(t *testing.T) {
	// Between half of the ring, for the one that holds something, and a quarter, for each of the two.
	const share = 22
	s := newSide(t, nil)
	out, in := s.localLane(t)
	service, a, b := s.addService(), s.addWorker(11), s.addWorker(12)
	s.d.Joins(a.view, rigLane)
	s.d.Joins(a.view, rigLane)
	var calls []*rigCall
	for c := s.send(a, out.Ring, 8, false, 1); c != nil; c = s.send(a, out.Ring, 8, false, 1) {
		calls = append(calls, c)
	}
	s.a.cycle()
	if out.Ring.Share().Slots() != 0 {
		t.Error("a share although nobody else has the lane")
	}
	s.d.Joins(b.view, rigLane)
	s.a.cycle()
	if n := out.Ring.Share().Slots(); n != share || out.Sharing.Users() != 2 {
		t.Errorf("share %d, %d users", n, out.Sharing.Users())
	}
	out.Ring.SetShare(slots.Share(0).Next(1))
	s.a.cycle()
	if n := out.Ring.Share().Slots(); n != share {
		t.Errorf("share %d after somebody has written it", n)
	}
	for range 20 {
		s.work(service, in.Ring, 64)
		settle(s)
	}
	for _, c := range calls {
		c.answered(t, 0)
	}
	s.bury(a)
	if n := out.Ring.Share().Slots(); n != 0 {
		t.Errorf("share %d for the last one", n)
	}
	s.bury(b)
	if out.Sharing.Users() != 0 {
		t.Errorf("%d users are left", out.Sharing.Users())
	}
}

// A worker that had little of a ring without shares, and has much of its share, is woken when the last of
// its messages is done, and when the share grows; and when the lane goes down.
func TestWokenUnderASmallerShare(t *testing.T) {
	s := newSide(t, nil)
	out, in := s.localLane(t)
	service, w := s.addService(), s.addWorker(11)
	s.d.Joins(w.view, rigLane)
	s.sendAs(t, w, out.Ring, slots.Header{Kind: slots.KindOneWay})
	settle(s)
	s.work(service, in.Ring, 1)
	settle(s)
	s.sendAs(t, w, out.Ring, slots.Header{Kind: slots.KindOneWay})
	for range 6 {
		s.send(w, out.Ring, 8, false, 1)
	}
	settle(s)
	if out.Sharing.High(w.id) || out.Sharing.MayWait(w.id) {
		t.Fatal("it has much already")
	}
	out.Sharing.Publish(7)
	woken := func(what string, do func()) {
		t.Helper()
		w.rings.Down.PrepareSleep()
		before := s.a.Count.Wakes
		do()
		settle(s)
		if s.a.Count.Wakes == before {
			t.Error("not woken by " + what)
		}
	}
	woken("the last message", func() { s.work(service, in.Ring, 1) })
	out.Sharing.Publish(6)
	woken("a larger share", func() {
		out.Sharing.Publish(20)
		s.d.grown(out)
	})
	woken("a lane that goes out of service", out.SetDraining)
}

// A worker that has gone with messages in its lanes is not woken once it is buried: its rings
// are unmapped then.
func TestBuriedWorkersAreNotWoken(t *testing.T) {
	for name, look := range map[string]func(*side){
		"cycle":  func(s *side) { s.a.cycle() },
		"rescan": func(s *side) { s.a.rescan() },
	} {
		t.Run(name, func(t *testing.T) {
			s := newSide(t, nil)
			out, _ := s.localLane(t)
			s.addService()
			w := s.addWorker(11)
			s.d.Joins(w.view, rigLane)
			for range 40 { // more than half of what it may hold, published without ringing, and late
				u, err := out.Ring.Claim(w.id, 1)
				if err != nil {
					t.Fatal(err)
				}
				h := slots.Header{Ticket: u.Ticket, Run: 1, Length: 8, Kind: slots.KindOneWay, Method: rigMethod, From: uint16(w.id), Deadline: 1}
				h.Encode(out.Ring.Header(u))
				if !out.Ring.Publish(u, w.id) {
					t.Fatal("not published")
				}
			}
			s.d.Detach(w.view)
			look(s)
			s.d.Bury(w.view)
			if slices.Contains(s.d.touched, w.view) {
				t.Error("its bell is to be rung")
			}
			allFree(t, out.Ring, 0)
		})
	}
}

// A worker that waits with all of its small share, and may hold more before the agent has taken
// what it published, is woken when that is done, although it is little now.
func TestShareGrowsBeforeItsMessagesAreTaken(t *testing.T) {
	s := newSide(t, nil)
	out, in := s.localLane(t)
	service, w := s.addService(), s.addWorker(11)
	s.d.Joins(w.view, rigLane)
	s.sendAs(t, w, out.Ring, slots.Header{Kind: slots.KindOneWay}) // since which nothing has grown
	settle(s)
	s.work(service, in.Ring, 1)
	settle(s)
	out.Sharing.Publish(8)
	for range 8 {
		s.sendAs(t, w, out.Ring, slots.Header{Kind: slots.KindOneWay})
	}
	out.Sharing.Publish(0)
	s.d.grown(out)
	w.rings.Down.PrepareSleep()
	wakes := s.a.Count.Wakes
	settle(s)
	if n := s.a.Count.Wakes - wakes; n != 0 {
		t.Fatalf("woken %d times with nothing done", n)
	}
	for range 8 {
		s.work(service, in.Ring, 64)
		settle(s)
	}
	allFree(t, out.Ring, 0)
	if n := s.a.Count.Wakes - wakes; n != 1 {
		t.Errorf("woken %d times", n)
	}
}
