package sharing

import (
	"math"
	"testing"
	"time"

	"github.com/rdmad/rdmad/shm"
	"github.com/rdmad/rdmad/slots"
)

// newRing returns a ring of 64 slots.
func newRing(t *testing.T) *slots.Ring {
	t.Helper()
	g := slots.Geometry{SlotSize: 128, Slots: 64, MaxRun: 4}
	r, err := slots.NewRing(shm.AlignedBytes(g.SegmentSize()), g)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestFairShare(t *testing.T) {
	for _, c := range []struct {
		held   []uint32
		usable int
		want   int
	}{
		{[]uint32{900}, 800, 800},
		{[]uint32{900, 0}, 800, 800},
		{[]uint32{8, 8, 8, 8, 8, 8, 8, 900}, 800, 744},
		{[]uint32{500, 500, 500, 500}, 800, 200},
		{[]uint32{1, 100, 600, 600}, 801, 350},
		{[]uint32{10, 20}, 800, 790},
		{nil, 800, 800},
		{[]uint32{900, 900, 900}, 2, 1},
	} {
		var held [slots.MaxOwner + 1]uint32
		copy(held[100:], c.held)
		if got := fairShare(&held, c.usable); got != c.want {
			t.Errorf("%v of %d: %d, want %d", c.held, c.usable, got, c.want)
		}
	}
}

// The share is published while the ring is crowded, put right when somebody else has written it, and taken
// back some time after the ring is empty, or with the last client but one.
func TestShareOfACrowdedRing(t *testing.T) {
	// Between half of the ring, for the one that holds something, and a quarter, for each of the two.
	const share, owner = 22, 100
	r := newRing(t)
	s := New(r)
	var held [slots.MaxOwner + 1]uint32
	look := func() int {
		if s.Due() {
			s.Balance(shm.Nanotime(), &held, false)
		}
		return r.Share().Slots()
	}
	s.Join()
	var runs []slots.Run
	for range 64 {
		u, err := r.Claim(owner, 1)
		if err != nil {
			t.Fatal(err)
		}
		runs = append(runs, u)
		s.Add(owner, 1, false)
	}
	if n := look(); n != 0 {
		t.Errorf("share %d although nobody else has the lane", n)
	}
	s.Join()
	s.next = 0
	if n := look(); n != share {
		t.Errorf("share %d, want %d", n, share)
	}
	r.SetShare(slots.Share(0).Next(1))
	s.next = math.MaxInt64 // no look, which would find the ring full still
	if n := look(); n != share {
		t.Errorf("share %d after somebody has written it", n)
	}
	for _, u := range runs {
		r.Free(u.Index, 1)
		s.Add(owner, -1, false)
	}
	// It is full again at once, perhaps: the share stays for an epoch.
	s.next, s.calm = 0, shm.Nanotime()+int64(time.Hour)
	if n := look(); n != share {
		t.Errorf("share %d just after the ring was crowded", n)
	}
	// An agent that has not run for an epoch looks some times before it ends.
	for looks := range calmLooks {
		s.next, s.calm = 0, shm.Nanotime()-int64(epoch)
		if n := look(); (n == 0) != (looks >= calmLooks-2) {
			t.Errorf("share %d of an empty ring after %d looks more", n, looks+1)
		}
	}
	s.Publish(9)
	if !s.Leave() || s.Users() != 1 || s.Share() != 0 || r.Share().Slots() != 0 {
		t.Errorf("share %d, published %d, for the last of %d", s.Share(), r.Share().Slots(), s.Users())
	}
}

// One request is always allowed; no more than the quota; and no more than the share and a quarter of what was
// claimed in the present epoch and in the one before it.
func TestExcess(t *testing.T) {
	const owner = 100
	r := newRing(t)
	s := New(r)
	s.Join()
	s.Join()
	var held [slots.MaxOwner + 1]uint32
	claim := func() (int, slots.Word) {
		t.Helper()
		u, err := r.Claim(owner, 1)
		if err != nil {
			t.Fatal(err)
		}
		return u.Index, r.Word(u.Index)
	}
	s.Quota = 1
	i, w := claim()
	if why := s.Excess(i, w); why != "" {
		t.Errorf("the first is refused: %s", why)
	}
	s.Add(owner, 1, false)
	if i, w = claim(); s.Excess(i, w) != BeyondQuota {
		t.Errorf("beyond the quota: %q", s.Excess(i, w))
	}
	s.Quota = 64
	add := func(count, n int) {
		for range count {
			s.Add(owner, n, false)
		}
	}
	add(20, 1)
	s.slept = math.MaxInt64
	s.Publish(16)
	now := shm.Nanotime()
	for range 3 { // each of these looks ends an epoch
		now += int64(time.Hour)
		s.Balance(now, &held, false)
	}
	if why := s.Excess(i, w); why != "" {
		t.Errorf("claimed before the epochs: %s", why)
	}
	if i, w = claim(); s.Excess(i, w) != BeyondShare {
		t.Errorf("beyond the share: %q", s.Excess(i, w))
	}
	for free := range r.Geometry().Slots { // a worker that publishes without a claim has nothing older either
		if was := r.Word(free); was.State() == slots.Free && s.Excess(free, slots.MakeWord(slots.Pub, 1, owner, was.Ticket())) != BeyondShare {
			t.Fatalf("slot %d: %v, published with that ticket, is taken for what was claimed before the epochs", free, was)
		}
	}
	add(2, -1)
	if why := s.Excess(i, w); why != "" {
		t.Errorf("within a quarter more than the share: %s", why)
	}
}
