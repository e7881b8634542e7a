package sharing

import (
	"math"

	"github.com/rdmad/rdmad/slots"
)

const (
	// calmLooks is how often the ring must have been looked at before a share grows or ends, so that
	// it does not because the agent has not run for an epoch.
	calmLooks = 8
	// slowEpochs is for how many epochs a share is tried before it grows a little.
	slowEpochs = 4
	// sleepEpochs is for how many epochs an agent must have had nothing to do for shares to end.
	sleepEpochs = 10
	// fewRuns is how many of the longest runs fit in the smallest share.
	fewRuns = 3
)

// steer returns what the share should become, so that half of the ring is in use when it is most. The
// other half is for who comes next, and free slots must be many for long runs to find enough of them
// side by side. In use is what is held, but of each process no more than its share: what it claimed
// before goes by itself, and what it claims against the rules must not make the others' shares smaller.
//
// A share that is too large is made smaller at once. It grows slowly, because hundreds of processes do
// not run all at the same time, and what would be shared among the few that hold something just now
// fills the ring when the others run; but it grows whenever half of the ring was not in use, so that
// nobody with as many slow requests as its share has slots waits while there is room. It doubles while
// all together want next to nothing.
func (s *Ring) steer(now int64, held *[slots.MaxOwner + 1]uint32, sum int, resting bool) int {
	n, share, use, wanted := len(s.since), s.word.Slots(), 0, 0
	for o, h := range held {
		h = min(h, uint32(share))
		use += int(h)
		s.tops[o] = max(s.tops[o], h)
		wanted += int(s.tops[o])
	}
	s.peak = max(s.peak, use)
	s.looks++
	slept := now - s.slept
	if s.slept = now; !resting || sum > 0 {
		s.slept = math.MaxInt64
	}
	switch {
	case slept >= sleepEpochs*int64(epoch):
		return 0
	case crowded(use, n):
		s.settle(now)
		return s.middle(held)
	case now-s.calm < int64(epoch) || !resting && s.looks < calmLooks:
		return max(share, s.least())
	}
	larger := max(share, s.least())
	switch {
	case 16*wanted < n:
		larger *= 2
	case now-s.calm < slowEpochs*int64(epoch):
		return larger
	case 2*s.peak < n:
		larger += max(share/8, 1)
	}
	s.settle(now)
	if larger >= n/2 && 16*wanted < n {
		return 0
	}
	return min(larger, n/2)
}

// middle is between what there would be for those who hold something at the moment, which is too much
// when the others come, and for all who have the lane: their geometric mean.
func (s *Ring) middle(held *[slots.MaxOwner + 1]uint32) int {
	half := len(s.since) / 2
	some := fairShare(held, half)
	return max(min(some, int(math.Sqrt(float64(some)*float64(half)/float64(s.users)))), s.least(), 1)
}

// fairShare is the max-min fair share of the usable slots: who holds less keeps what
// it holds, and what is left is divided equally among the others. It is at least one
// slot.
func fairShare(held *[slots.MaxOwner + 1]uint32, usable int) int {
	share := 0
	// Each round takes more holders out who hold less than the share; the bound
	// only makes it less exact for very many who hold nearly the same.
	for range 16 {
		rest, sharers, largest := usable, 0, 0
		for _, h := range held {
			switch {
			case h == 0:
			case int(h) < share:
				rest -= int(h)
				largest = max(largest, int(h))
			default:
				sharers++
			}
		}
		next := 0
		if sharers > 0 {
			next = rest / sharers
		} else {
			next = rest + largest // the one that holds most may have the rest
		}
		if next <= share {
			break
		}
		share = next
	}
	return max(share, 1)
}

// longestNow is the longest run in the journal; 0 for none.
func (s *Ring) longestNow() int {
	n := len(s.runs) - 1
	for n > 0 && s.runs[n] == 0 {
		n--
	}
	return n
}

// least is the smallest share: a few of the longest runs that are under way, so that a process can
// have some slow requests of that length at once, of which perhaps none ends before the last is sent.
func (s *Ring) least() int {
	return min(fewRuns*max(s.longest[0], s.longest[1]), len(s.since)/2)
}

// settle begins the time in which a share is tried.
func (s *Ring) settle(now int64) {
	s.calm, s.looks, s.peak = now, 0, 0
	clear(s.tops[:])
}
