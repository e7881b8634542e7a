package daemon

import (
	"math"
	"testing"

	"github.com/rdmad/rdmad/shm"
	"github.com/rdmad/rdmad/slots"
)

// A share is of all who have wanted something lately: of hundreds that take turns at a processor
// few hold anything at a time.
func TestSharesOfThoseWhoDoNotRun(t *testing.T) {
	sh := newSharing(newRing(t))
	now := int64(epoch)
	share := func(held ...uint32) int {
		var all [slots.MaxOwner + 1]uint32
		copy(all[100:], held)
		now += int64(shareEvery)
		sh.wanting(now, &all, false)
		return fairShare(&all, rigGeometry.Slots/2)
	}
	if n := share(16, 16, 16, 16); n != 8 {
		t.Fatalf("share %d of four that hold everything", n)
	}
	sh.publish(8)
	for range 2 * calmLooks {
		if n := share(8, 0, 0, 0); n != 8 {
			t.Fatalf("share %d while the others do not run", n)
		}
	}
	// Who holds less than it may wants no more.
	now += int64(epoch)
	for range calmLooks {
		share(8, 2, 2, 2)
	}
	now += int64(epoch)
	if n := share(8, 2, 2, 2); n != 26 {
		t.Errorf("share %d of one that wants more", n)
	}
	sh.publish(26)
	for range calmLooks {
		share(26, 0, 0, 0)
	}
	now += int64(epoch)
	for range calmLooks {
		share(26, 0, 0, 0)
	}
	now += int64(epoch)
	if n := share(26); n != 32 {
		t.Errorf("share %d of the only one that wants something", n)
	}
}

// Who has no room for another run wants more, although it does not hold all that it may.
func TestSharesOfLongRuns(t *testing.T) {
	sh := newSharing(newRing(t))
	sh.demand = &demand{}
	var all [slots.MaxOwner + 1]uint32
	for o := range 8 {
		all[100+o] = 3
		sh.add(100+o, 3, false)
		sh.add(100+o, -3, false)
	}
	sh.publish(4)
	sh.wanting(int64(epoch), &all, false)
	if n := fairShare(&all, rigGeometry.Slots/2); n != 4 {
		t.Errorf("share %d", n)
	}
}

// Shares under which the ring was full were too large, whoever holds how much at the moment: they are
// halved, down to what there would be for everybody.
func TestSharesOfAFullRing(t *testing.T) {
	sh := newSharing(newRing(t))
	sh.users = 6
	sh.publish(20)
	var held [slots.MaxOwner + 1]uint32
	for _, want := range []int{10, 5, 5} {
		sh.add(11, 60, false)
		sh.add(11, -60, false)
		now := shm.Nanotime()
		sh.calm, sh.next = now, now
		sh.balance(now, &held, false)
		if n := sh.word.Slots(); n != want {
			t.Errorf("share %d, want %d", n, want)
		}
	}
	now := shm.Nanotime()
	sh.calm, sh.next = now, now
	if sh.balance(now, &held, false); sh.word.Slots() != rigGeometry.Slots/2 {
		t.Errorf("share %d when it was not full any more", sh.word.Slots())
	}
}

// What a worker has held for long is no part of its share, up to its part of a quarter of the ring, and
// no reason to share more with it.
func TestWhatLastsIsNoShare(t *testing.T) {
	s := newSide(t, nil)
	out, in := s.localLane(t)
	service, slow, quick := s.addService(), s.addWorker(11), s.addWorker(12)
	sh, size := out.sharing, rigGeometry.Slots
	sh.users, sh.next = 2, math.MaxInt64
	epochs := func(n int) {
		t.Helper()
		for range n {
			sh.turn(shm.Nanotime(), &s.d.held)
		}
	}
	send := func(w *rigWorker, n int) (calls []*rigCall, refused int) {
		t.Helper()
		for range n {
			calls = append(calls, s.send(w, out.ring, 8, false, 1))
		}
		before := s.a.count.OverLimit
		settle(s)
		return calls, int(s.a.count.OverLimit - before)
	}
	sh.publish(4)
	sh.wanting(0, new([slots.MaxOwner + 1]uint32), false)
	epochs(1)
	all, _ := send(slow, 4)
	epochs(2)
	if n := sh.demand.lasts[slow.id]; n != 0 {
		t.Fatalf("%d slots last after one epoch", n)
	}
	epochs(1)
	if n := sh.demand.lasts[slow.id]; n != 4 {
		t.Fatalf("%d slots last, want 4", n)
	}
	if n := out.ring.Lasting(); n != size/4 {
		t.Fatalf("%d slots may last, want a quarter of %d", n, size)
	}
	var held [slots.MaxOwner + 1]uint32
	out.ring.Holders(&held)
	sh.wanting(1, &held, false)
	if held[slow.id] != 0 {
		t.Errorf("%d slots that last are part of the shares", held[slow.id])
	}
	more, refused := send(slow, size/4-4+5)
	if refused != 0 {
		t.Errorf("%d requests were refused besides what lasts", refused)
	}
	all = append(all, more...)
	if more, refused = send(slow, 5); refused != 5 {
		t.Errorf("%d of 5 requests beyond everything were refused", refused)
	}
	all = append(all, more...)
	// Two share what may last.
	more, _ = send(quick, 4)
	all = append(all, more...)
	epochs(3)
	if n := out.ring.Lasting(); n != size/4-4 {
		t.Errorf("%d slots may last, want what one leaves the other of %d", n, size/4)
	}
	// Another process may write what it likes.
	out.ring.SetLasting(size)
	sh.balance(shm.Nanotime(), &s.d.held, false)
	if n := out.ring.Lasting(); n != size/4-4 {
		t.Errorf("%d slots may last after somebody has overwritten it", n)
	}
	for range 30 {
		s.work(service, in.ring, size)
		settle(s)
	}
	for _, c := range all {
		if !c.answered(t, 0) {
			t.Error("no outcome")
		}
	}
	epochs(1)
	if n := out.ring.Lasting(); n != size/4 {
		t.Errorf("%d slots may last when none does", n)
	}
}
