package agent

import (
	"math"
	"time"

	"github.com/rdmad/rdmad/shm"
	"github.com/rdmad/rdmad/slots"
)

// sharing is how the ring of an out lane is shared among the workers that use it:
// what each has in the journal, its quota, and the share that is published while
// the ring is crowded. It belongs to the agent. See
// docs/decisions/0007-shares-of-a-ring.md.
type sharing struct {
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

func newSharing(r *slots.Ring) *sharing {
	n := r.Geometry().Slots
	s := &sharing{ring: r, Quota: n, since: make([]slots.Word, n), last: make([]slots.Word, n), most: n, before: n}
	s.grow() // since another core, perhaps
	return s
}

// grow notes that everybody may hold more now.
func (s *sharing) grow() {
	for i := range s.grown {
		s.grown[i] = true
	}
}

// add notes that a run of n slots of a worker was journalled, or struck if n is negative.
func (s *sharing) add(owner, n int, oneway bool) {
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
	beyondQuota = "more slots in flight than the process may have in the ring (limits.worker_slots)"
	beyondBytes = "more bytes of slots in flight than the process may have (limits.worker_bytes)"
	beyondShare = "more slots in flight than the process's share of the ring"
)

// excess says why the published request with the word w in slot i is more than its
// worker may have; "" if it is not. Correct workers never hear of it: they hold
// what they have in the journal, and hold no more than they may.
func (s *sharing) excess(i int, w slots.Word) string {
	have := int(s.taken[w.Owner()])
	switch want := have + w.Run(); {
	case have == 0: // one request is always allowed
	case want > s.Quota:
		return beyondQuota
	case want > s.bound() && w.Ticket() != s.since[i].Ticket():
		return beyondShare
	}
	return ""
}

// limit is the most slots that a worker may hold at present, all if there is no limit.
func (s *sharing) limit() int {
	if m := s.word.Slots(); m > 0 && m < s.Quota {
		return m
	}
	return s.Quota
}

// half is half of what a worker may hold.
func (s *sharing) half() int { return max(s.limit()/2, 1) }

// low is how much a worker can hold and be sure to have room for the longest run and for half
// of what it may hold.
func (s *sharing) low() int {
	n := s.limit()
	return max(min(n/2, n-s.ring.Geometry().MaxRun), 0)
}

// bound is the largest share that a claim of these epochs can have been made under, and a
// quarter.
func (s *sharing) bound() int {
	n := max(s.most, s.before)
	return n + n/4
}

// due reports whether balance should be called: the ring seems crowded, or was, or
// somebody else has written the word.
func (s *sharing) due() bool {
	return s.users > 1 && (crowded(s.sum, len(s.since)) || s.ring.Waiters()) || s.word.Slots() > 0 || s.ring.Share() != s.word
}

// crowded reports whether sum of n slots is enough for shares. It is more than what is
// shared, so that processes that together hold what they would get do not have to count.
func crowded(sum, n int) bool { return 8*sum >= 5*n }

// balance publishes a share while the ring is crowded and for some time after. It begins when five
// eighths are held, with more than one process to hold them: processes that fill the ring in turns,
// each as soon as it gets a processor, would leave no room for the next of them, and those who claim
// in a full ring pass many busy slots for each free one. resting says that the agent has nothing to do
// and that the next look may be far off. It reports what publish does.
func (s *sharing) balance(now int64, held *[slots.MaxOwner + 1]uint32, resting bool) (grown bool) {
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
	grown = s.publish(share)
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

// publish makes n the share, 0 for none, unless it hardly differs from the present
// one: each change makes the workers count. It reports whether a worker may hold more now:
// see Domain.grown.
func (s *sharing) publish(n int) (grown bool) {
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

// Joins notes that a client has a lane, and leaves that it uses no lane any more.
func (d *Domain) Joins(w *Worker, lane uint16) {
	bit := uint64(1) << (lane % 64)
	if l := d.outs[lane]; l != nil && !w.Gone && w.uses[lane/64]&bit == 0 {
		w.uses[lane/64] |= bit
		l.Sharing.users++
	}
}

func (d *Domain) leaves(w *Worker) {
	for _, l := range d.OutLanes {
		if bit := uint64(1) << (l.id % 64); w.uses[l.id/64]&bit != 0 {
			w.uses[l.id/64] &^= bit
			if l.Sharing.users--; l.Sharing.users < 2 {
				if l.Sharing.publish(0) {
					d.grown(l)
				}
			}
		}
	}
}

// balance is a look at the shares of all rings that may need one; resting says that the agent
// has found nothing to do for a while, and that the next look may be far off.
func (d *Domain) balance(resting bool) {
	now := int64(math.MinInt64)
	for _, l := range d.OutLanes {
		if !l.Sharing.due() {
			continue
		}
		if now == math.MinInt64 {
			now = shm.Nanotime()
		}
		if l.Sharing.balance(now, &d.held, resting) {
			d.grown(l)
		}
	}
}

// wakeUsers wakes all who may wait for room in the lane, to look at its state.
func (l *OutLane) wakeUsers() {
	l.Ring.WakeFree()
	bit := uint64(1) << (l.id % 64)
	for _, w := range l.domain.present {
		if w.uses[l.id/64]&bit != 0 {
			l.domain.touch(w)
		}
	}
}

// grown wakes those who were above the share of a lane and may go on: those who wait for any
// free slot, and those who have had many.
func (d *Domain) grown(l *OutLane) {
	l.Ring.WakeFree()
	l.Sharing.grow()
	bit := uint64(1) << (l.id % 64)
	for _, w := range d.present {
		if w.uses[l.id/64]&bit != 0 && l.Sharing.high[w.ID] {
			d.touch(w)
		}
	}
}

// freedFor wakes a worker for whose one-way messages, which have no answers that would wake
// it, n slots were freed: when that makes half of what it may hold, and when it has had more
// or may hold more, and none of them is left.
func (l *OutLane) freedFor(w *Worker, n int) {
	s, size := l.Sharing, n*l.geo.SlotSize
	w.freed, w.freedBytes, w.untold = w.freed+n, w.freedBytes+size, true
	last := s.posts[w.ID] == 0
	room := w.freed >= s.half() && int(s.taken[w.ID]) <= s.limit()-s.half() || last && (s.high[w.ID] || s.grown[w.ID])
	if last {
		s.high[w.ID], s.grown[w.ID] = false, false
	}
	if most := l.domain.mostBytes(w); most > 0 {
		last = w.postBytes == 0
		room = room || w.freedBytes >= most/2 && w.bytes <= most-most/2 || last && w.highBytes
		if last {
			w.highBytes = false
		}
	}
	if room {
		// SYNC POINT (room): the slots are free before the cycle's end looks who of those that were touched sleeps; pairs with
		// the client's sleepForRoom.
		l.domain.touch(w)
	}
}

// relieve wakes those who perhaps wait for room beside slow one-way messages: what quick ones have left is less than
// freedFor waits for, and no last message comes soon. It is for an agent that has nothing else to do.
func (d *Domain) relieve() {
	for _, w := range d.present {
		if w.untold && d.mayWait(w) {
			d.touch(w)
		}
	}
}

// mayWait reports whether a worker with one-way messages under way has had so much that it perhaps waits until it
// has less.
func (d *Domain) mayWait(w *Worker) bool {
	if w.highBytes && w.postBytes > 0 {
		return true
	}
	for _, l := range d.OutLanes {
		if s := l.Sharing; s.posts[w.ID] > 0 && (s.high[w.ID] || s.grown[w.ID]) {
			return true
		}
	}
	return false
}

// mostBytes is the most bytes of slots that a worker may have in flight; 0 for no limit.
func (d *Domain) mostBytes(w *Worker) int {
	if w.Told {
		return w.MostBytes
	}
	return d.WorkerBytes
}

// excess says why a published request is more than its worker may have, and counts
// it; "" if it is not.
func (l *OutLane) excess(i int, w slots.Word) string {
	d, owner := l.domain, l.domain.Workers[w.Owner()]
	why := l.Sharing.excess(i, w)
	if why == "" && owner != nil {
		if most := d.mostBytes(owner); most > 0 && owner.bytes > 0 && owner.bytes+w.Run()*l.geo.SlotSize > most {
			why = beyondBytes
		}
	}
	if why != "" {
		d.agent.Count.OverLimit++
		if owner != nil {
			owner.overLimit++
		}
	}
	return why
}

// hold notes that the run of the journalled word w is in flight, or, with sign -1,
// that it is not any more.
func (l *OutLane) hold(w slots.Word, oneway bool, sign int) {
	l.Sharing.add(w.Owner(), sign*w.Run(), oneway)
	owner := l.domain.Workers[w.Owner()]
	if owner == nil {
		return
	}
	size := sign * w.Run() * l.geo.SlotSize
	owner.bytes += size
	if oneway {
		owner.postBytes += size
	}
	// As sharing.high.
	if most := l.domain.mostBytes(owner); most > 0 && owner.bytes > min(most/2, most-l.domain.largestRun) {
		owner.highBytes = true
	}
}
