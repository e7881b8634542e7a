package sharing

import (
	"math"
	"testing"
	"time"

	"github.com/rdmad/rdmad/slots"
)

// steered is a ring under a share, and looks at what its owners hold.
type steered struct {
	*Ring
	now int64
}

func newSteered(t *testing.T, users, share int) *steered {
	s := &steered{Ring: New(newRing(t)), now: int64(time.Hour)}
	s.users, s.slept = users, math.MaxInt64
	s.Publish(share)
	s.settle(s.now)
	return s
}

// look is a look d after the last one.
func (s *steered) look(d time.Duration, resting bool, held ...uint32) int {
	var all [slots.MaxOwner + 1]uint32
	copy(all[100:], held)
	sum := 0
	for _, h := range held {
		sum += int(h)
	}
	s.now += int64(d)
	s.Publish(s.steer(s.now, &all, sum, resting))
	return s.word.Slots()
}

// epochs is looks for n epochs.
func (s *steered) epochs(n int, held ...uint32) (share int) {
	for range n * calmLooks {
		share = s.look(epoch/calmLooks, false, held...)
	}
	return share
}

// A share under which the ring is crowded is made smaller at once; what was claimed before it became
// small, or against the rules, is no reason to.
func TestShareShrinksAtOnce(t *testing.T) {
	s := newSteered(t, 8, 16)
	if n := s.look(0, false, 16, 16, 16, 16); n != 5 {
		t.Errorf("share %d of four that fill the ring, want 5, between 8 and 4", n)
	}
	s = newSteered(t, 32, 16)
	if n := s.look(0, false, 16, 16, 16, 16); n != 2 {
		t.Errorf("share %d when 32 have the lane, want 2, between 8 and 1", n)
	}
	s = newSteered(t, 8, 8)
	if n := s.look(0, false, 40, 8, 8); n != 8 {
		t.Errorf("share %d beside one that holds more", n)
	}
}

// A few runs of the length that is under way fit in the smallest share, and nothing is kept of
// a length that nobody sends any more.
func TestShareHoldsAFewRuns(t *testing.T) {
	s := newSteered(t, 32, 32)
	s.Add(100, 5, false)
	if n := s.look(0, false, 16, 16, 16, 16); n != 5*fewRuns {
		t.Errorf("share %d while runs of five are under way, want %d", n, 5*fewRuns)
	}
	s.Add(100, 4, false)
	s.Add(100, -5, false)
	for range 2 {
		s.longest = [2]int{s.longestNow(), s.longest[0]}
	}
	if n := s.look(0, false, 16, 16, 16, 16); n != 4*fewRuns {
		t.Errorf("share %d when only one of four is left, want %d", n, 4*fewRuns)
	}
	s.Add(100, 8, false)
	if n := s.look(epoch/2, false, 1); n != 8*fewRuns {
		t.Errorf("share %d as soon as longer ones are sent, want %d", n, 8*fewRuns)
	}
	s.Add(100, 30, false)
	if n := s.look(epoch/2, false, 1); n != 32 {
		t.Errorf("share %d, more than half of the ring", n)
	}
	s.Add(100, -30, false)
	s.Add(100, -8, false)
	s.Add(100, -4, false)
	if n := s.longestNow(); n != 0 {
		t.Errorf("the longest of none is %d", n)
	}
}

// Who holds all that it may in slow requests gets more as long as half of the ring is not in use, by and
// by, and not when it is.
func TestShareGrowsBesideSlowRequests(t *testing.T) {
	s := newSteered(t, 8, 4)
	held := []uint32{4, 4, 4, 1, 1}
	if n := s.epochs(slowEpochs-1, held...); n != 4 {
		t.Errorf("share %d before its time", n)
	}
	if n := s.epochs(2, held...); n != 5 {
		t.Errorf("share %d of a ring that is a quarter full, want 5", n)
	}
	s = newSteered(t, 8, 8)
	if n := s.epochs(5*slowEpochs, 8, 8, 8, 8); n != 8 {
		t.Errorf("share %d of a ring that is half full", n)
	}
}

// While all together hold next to nothing the share doubles, until nobody needs one. Those that take turns
// want what they have held in theirs.
func TestShareDoublesWhileLittleIsWanted(t *testing.T) {
	s := newSteered(t, 8, 2)
	for _, want := range []int{4, 8, 16, 0} {
		if n := s.epochs(1, 1, 1); n != want {
			t.Fatalf("share %d, want %d", n, want)
		}
	}
	s = newSteered(t, 8, 2)
	for range calmLooks {
		for o := range 4 {
			held := make([]uint32, 4)
			held[o] = 2
			if n := s.look(epoch/calmLooks/2, false, held...); n != 2 {
				t.Fatalf("share %d of four that take turns", n)
			}
		}
	}
}

// A share does not grow for want of looks, and ends when there was nothing to do for a second.
func TestShareEndsInItsSleep(t *testing.T) {
	s := newSteered(t, 8, 4)
	for range calmLooks - 1 {
		if n := s.look(20*epoch, false, 1); n != 4 {
			t.Fatalf("share %d of an agent that seldom runs", n)
		}
	}
	s = newSteered(t, 8, 4)
	if n := s.look(0, true); n != 4 {
		t.Fatalf("share %d just after the ring was crowded", n)
	}
	if n := s.look(epoch/2, false, 1); n != 4 {
		t.Errorf("share %d after a short sleep", n)
	}
	s.look(0, true)
	s.look(0, true, 1) // held when it went to rest again
	if n := s.look(sleepEpochs*epoch, false, 1); n != 4 {
		t.Errorf("share %d after a sleep beside slow requests", n)
	}
	s.look(0, true)
	if n := s.look(sleepEpochs*epoch, false, 1); n != 0 {
		t.Errorf("share %d after a long sleep", n)
	}
}
