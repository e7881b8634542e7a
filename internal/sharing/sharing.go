package sharing

import (
	"math"
	"time"

	"github.com/rdmad/rdmad/shm"
	"github.com/rdmad/rdmad/slots"
)

// Ring is what is known of a ring and of who uses it.
type Ring struct {
	ring *slots.Ring
	// Quota is the most slots that a worker may have in the journal, all if it is
	// the number of slots.
	Quota int
	// users is how many clients have the lane.
	users int
	// taken are the slots in the journal by owner, sum all of them.
	taken [slots.MaxOwner + 1]uint32
	sum   int
	// posts is how much of taken are one-way messages. high: the owner has had so much that it
	// perhaps waits until it has less. grown: it may hold more since the last of its messages was
	// done, and perhaps waits with what was much then and is little now.
	posts       [slots.MaxOwner + 1]uint32
	high, grown [slots.MaxOwner + 1]bool
	// word is what is published, and next when to look at the ring again.
	word slots.Share
	next int64
	// calm is since when this share is tried, with so many looks; peak is the most that was in use at
	// any of them, and tops the most of each owner.
	calm        int64
	looks, peak int
	tops        [slots.MaxOwner + 1]uint32
	// slept is when the agent went to rest with nothing held, if it has not looked since.
	slept int64
	// Shares are enforced on what was claimed in the present epoch and in the one before
	// it, which the tickets in since tell, the words at the beginning of that one; those in
	// last are of the beginning of the present one. One epoch would not do: an agent that
	// runs seldom would find nothing that was claimed in it. most is the largest share that
	// was published in the present one, before that of the other. No share counts as all
	// slots.
	began        int64
	since, last  []slots.Word
	most, before int
	// runs is how many runs of each length are in the journal, and longest the longest that was
	// there in the present epoch and in the one before it.
	runs    [slots.MaxRun + 1]uint32
	longest [2]int
}

const (
	// shareEvery is how long, at least, a share stays before the ring is looked at
	// again, and shareCost by how much more than a look takes, so that looking at
	// a large ring takes no more than a small part of the agent's time.
	shareEvery = 500 * time.Microsecond
	shareCost  = 16
	// epoch is how long it takes, at least, until a smaller share is enforced. A worker
	// needs no time to notice it: it looks at the share again after its claim.
	epoch = 100 * time.Millisecond
)

// New returns the sharing of a ring that nobody uses yet.
func New(r *slots.Ring) *Ring {
	n := r.Geometry().Slots
	s := &Ring{ring: r, Quota: n, since: make([]slots.Word, n), last: make([]slots.Word, n), most: n, before: n}
	s.Grow() // since another core, perhaps
	return s
}

// Grow notes that everybody may hold more now.
func (s *Ring) Grow() {
	for i := range s.grown {
		s.grown[i] = true
	}
}

// Add notes that a run of n slots of a worker was journalled, or struck if n is negative.
func (s *Ring) Add(owner, n int, oneway bool) {
	s.taken[owner] += uint32(n)
	s.sum += n
	if oneway {
		s.posts[owner] += uint32(n)
	}
	if n < 0 {
		s.runs[-n]--
		return
	}
	s.runs[n]++
	s.longest[0] = max(s.longest[0], n)
	if int(s.taken[owner]) > s.low() {
		s.high[owner] = true
	}
}

// Why a request is beyond what its worker may have.
const (
	BeyondQuota = "more slots in flight than the process may have in the ring (limits.worker_slots)"
	BeyondShare = "more slots in flight than the process's share of the ring"
)

// Excess says why the published request with the word w in slot i is more than its
// worker may have; "" if it is not. Correct workers never hear of it: they hold
// what they have in the journal, and hold no more than they may.
func (s *Ring) Excess(i int, w slots.Word) string {
	have := int(s.taken[w.Owner()])
	switch want := have + w.Run(); {
	case have == 0: // one request is always allowed
	case want > s.Quota:
		return BeyondQuota
	case want > s.bound() && !older(s.since[i], w):
		return BeyondShare
	}
	return ""
}

// older reports whether the request with the word w was claimed already when its slot had the word then.
func older(then, w slots.Word) bool {
	return (then.State() == slots.Claim || then.State() == slots.Pub) && then.Owner() == w.Owner() && then.Ticket() == w.Ticket()
}

// limit is the most slots that a worker may hold at present, all if there is no limit.
func (s *Ring) limit() int {
	if m := s.word.Slots(); m > 0 && m < s.Quota {
		return m
	}
	return s.Quota
}

// half is half of what a worker may hold.
func (s *Ring) half() int { return max(s.limit()/2, 1) }

// low is how much a worker can hold and be sure to have room for the longest run and for half
// of what it may hold.
func (s *Ring) low() int {
	n := s.limit()
	return max(min(n/2, n-s.ring.Geometry().MaxRun), 0)
}

// bound is the largest share that a claim of these epochs can have been made under, and a
// quarter.
func (s *Ring) bound() int {
	n := max(s.most, s.before)
	return n + n/4
}

// Due reports whether Balance should be called: the ring seems crowded, or was, or
// somebody else has written the word.
func (s *Ring) Due() bool {
	return s.users > 1 && (crowded(s.sum, len(s.since)) || s.ring.Waiters()) || s.word.Slots() > 0 || s.ring.Share() != s.word
}

// crowded reports whether sum of n slots is enough for shares. It is more than what is
// shared, so that processes that together hold what they would get do not have to count.
func crowded(sum, n int) bool { return 8*sum >= 5*n }

// Balance publishes a share while the ring is crowded and for some time after. It begins when five
// eighths are held, with more than one process to hold them: processes that fill the ring in turns,
// each as soon as it gets a processor, would leave no room for the next of them, and those who claim
// in a full ring pass many busy slots for each free one. resting says that the agent has nothing to do
// and that the next look may be far off. It reports what Publish does. held is room for its count.
func (s *Ring) Balance(now int64, held *[slots.MaxOwner + 1]uint32, resting bool) (grown bool) {
	if s.ring.Share() != s.word {
		s.ring.SetShare(s.word)
	}
	if now < s.next {
		return false
	}
	clear(held[:])
	n, sum := len(s.since), s.ring.Holders(held)
	share := s.word.Slots()
	switch {
	case s.users < 2:
		share = 0
	case share > 0:
		share = s.steer(now, held, sum, resting)
	case crowded(sum, n):
		s.settle(now)
		s.slept = math.MaxInt64
		share = s.middle(held)
	}
	grown = s.Publish(share)
	if now-s.began >= int64(epoch) {
		s.began, s.before, s.most = now, s.most, n
		s.longest = [2]int{s.longestNow(), s.longest[0]}
		if have := s.word.Slots(); have > 0 {
			s.most = have
		}
		// SYNC POINT (share): after the share was stored by which claims are judged from
		// now on. What is not claimed here yet was claimed by somebody who looks at
		// the share later.
		s.since, s.last = s.last, s.since
		for i := range s.last {
			s.last[i] = s.ring.Word(i)
		}
	}
	took := shm.Nanotime() - now
	s.next = now + max(int64(shareEvery), shareCost*took)
	return grown
}

// Publish makes n the share, 0 for none, unless it hardly differs from the present
// one: each change makes the workers count. It reports whether a worker may hold more now.
func (s *Ring) Publish(n int) (grown bool) {
	old := s.word.Slots()
	if n == old || n > 0 && old > 0 && n > old-old/8 && n < old+old/8 {
		return false
	}
	s.word = s.word.Next(n)
	s.ring.SetShare(s.word)
	if n == 0 {
		s.most = len(s.since)
	}
	s.most = max(s.most, n)
	for o, have := range s.taken {
		s.high[o] = s.high[o] || int(have) > s.low()
	}
	return n == 0 || old > 0 && n > old
}
