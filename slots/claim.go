package slots

import (
	"errors"

	"github.com/rdmad/rdmad/internal/faultpoint"
	"github.com/rdmad/rdmad/shm"
)

var (
	// ErrFull is returned by Claim when no free run was found.
	ErrFull = errors.New("slots: ring full")
	// ErrClosed is returned by Claim on a lane that is draining or closed.
	ErrClosed = errors.New("slots: lane closed")
	// ErrRun is returned by Claim for a run the ring can never hold.
	ErrRun = errors.New("slots: run does not fit the ring")
)

// Claim takes a run of k consecutive free slots for owner (an attach id from 1
// to MaxOwner). It looks at every slot about once and never waits: ErrFull says that
// nothing fitted.
//
// Runs never wrap, so that one message is one contiguous range. Slots are taken
// in ascending order: of two claimers that overlap, the one that started higher
// completes or meets a third, so somebody always makes progress (lock-free).
func (r *Ring) Claim(owner, k int) (Run, error) {
	n := r.geo.Slots
	if k < 1 || k > r.geo.MaxRun || owner < 1 || owner > MaxOwner {
		return Run{}, ErrRun
	}
	if r.State() != LaneOpen {
		return Run{}, ErrClosed
	}
	pos := r.cursor.Load()
	i := r.index(pos)
	faultpoint.Here("claim.before_cas")
	if k == 1 {
		// What a small message mostly finds: the slot at the cursor is free.
		w := r.Word(i)
		mine := MakeWord(Claim, 1, owner, w.Ticket()+1)
		if w.State() == Free && r.words[i].CompareAndSwap(uint64(w), uint64(mine)) {
			faultpoint.Here("claim.after_cas")
			faultpoint.Here("claim.complete")
			// While the cursor has not moved, the claim is not behind it.
			if !r.cursor.CompareAndSwap(pos, pos+1) {
				r.advance(pos, 1)
			}
			faultpoint.Here("claim.after_cursor")
			return Run{Index: i, Len: 1, Ticket: mine.Ticket()}, nil
		}
	}
	// Runs that begin before the cursor may end behind it.
	for end := pos + uint64(n+k); int64(end-pos) > 0; {
		if skip := r.busyFrom(i); skip > 0 {
			pos += uint64(skip)
			i += skip
		}
		if i+k > n {
			pos += uint64(n - i)
			i = 0
			continue
		}
		ticket, busy := r.claimAt(i, k, owner)
		if busy < 0 {
			faultpoint.Here("claim.complete")
			r.advance(pos, k)
			faultpoint.Here("claim.after_cursor")
			return Run{Index: i, Len: k, Ticket: ticket}, nil
		}
		pos += uint64(busy + 1)
		i += busy + 1
	}
	return Run{}, ErrFull
}

// busyFrom is how many slots from i to the end of the ring are busy one after the other. A
// claim that finds the ring full has looked at all of it.
func (r *Ring) busyFrom(i int) (n int) {
	words := r.words[i:]
	for n < len(words) && Word(words[n].Load()).State() != Free {
		n++
	}
	return n
}

// claimAt tries to take the run at i. It returns the first slot's new ticket and
// -1, or the offset of a slot that was not free.
func (r *Ring) claimAt(i, k, owner int) (ticket uint64, busy int) {
	for j := 0; j < k; j++ {
		w := r.Word(i + j)
		mine := MakeWord(Follow, j, owner, w.Ticket()+1)
		if j == 0 {
			mine = MakeWord(Claim, k, owner, w.Ticket()+1)
			ticket = mine.Ticket()
		}
		if w.State() != Free || !r.words[i+j].CompareAndSwap(uint64(w), uint64(mine)) {
			faultpoint.Here("claim.refused")
			r.unclaim(i, j)
			faultpoint.Here("claim.given_back")
			return 0, j
		}
		faultpoint.Here("claim.after_cas")
	}
	return ticket, -1
}

// unclaim gives back the first j slots of a run that could not be completed,
// last first; they keep their new tickets.
func (r *Ring) unclaim(i, j int) {
	for j--; j >= 0; j-- {
		r.free(i + j)
	}
}

// free makes slot x free and keeps its ticket. Only the slot's owner may call
// it, or the daemon for an owner that is dead.
func (r *Ring) free(x int) {
	// A release is enough: who looks at the waiters afterwards does so in
	// Freed or WakeFree, which order themselves.
	shm.StoreRelease(&r.words[x], uint64(r.Word(x).freed()))
	faultpoint.Here("free.after_slot")
}

// advance moves the cursor behind the k slots that were claimed at pos. The
// sender looks for published slots up to the cursor, so it must pass a slot
// before that is published. If the cursor was behind pos already, because
// others claimed meanwhile, the sender may have passed the slots when they were
// still free; then it is told to come back.
func (r *Ring) advance(pos uint64, k int) {
	end := pos + uint64(k)
	// Every failed swap means that somebody else moved the cursor; the bound
	// only matters if a hostile process moves it backwards all the time.
	for range 64 {
		cur := r.cursor.Load()
		if int64(pos-cur) < 0 {
			faultpoint.Here("claim.before_late")
			r.noteLate(pos)
			faultpoint.Here("claim.after_late")
		}
		if int64(end-cur) <= 0 || r.cursor.CompareAndSwap(cur, end) {
			return
		}
	}
	r.noteLate(pos)
}

// noteLate lowers late to pos, stored plus one: 0 says that there is none.
func (r *Ring) noteLate(pos uint64) {
	for range 64 {
		old := r.late.Load()
		if old != 0 && int64(old-(pos+1)) <= 0 {
			return
		}
		// SYNC POINT (late claim): stored before the run is published; a
		// sender that is told of the message takes late before it looks.
		if r.late.CompareAndSwap(old, pos+1) {
			return
		}
	}
	r.late.Store(1) // sends the sender round the whole ring
}

// Publish hands the run's message to the sender. The header and the payload
// must have been written. It returns false if the run is no longer the caller's
// claim, which only a fault of another process of the domain can cause.
func (r *Ring) Publish(u Run, owner int) bool {
	claimed := MakeWord(Claim, u.Len, owner, u.Ticket)
	// SYNC POINT (request): header and payload, written before this swap, are
	// visible to the sender that loads PUB; pairs with Take.
	return r.words[u.Index].CompareAndSwap(uint64(claimed), uint64(claimed.With(Pub)))
}

// Revoke takes a published run back before the sender has seen it; it is then
// the caller's claim again, to be aborted. Do not change and publish it again:
// a sender that has read the old header could take it for the new one. False
// means that the request is on its way.
func (r *Ring) Revoke(u Run, owner int) bool {
	pub := MakeWord(Pub, u.Len, owner, u.Ticket)
	return r.words[u.Index].CompareAndSwap(uint64(pub), uint64(pub.With(Claim)))
}

// Abort frees a claimed, unpublished run. Call Freed afterwards.
func (r *Ring) Abort(u Run) { r.Free(u.Index, u.Len) }

// Answered reports whether the run's answer has arrived and has been neither
// acquired nor moved. It may be acquired then. Only tests look without Acquire.
func (r *Ring) Answered(u Run, owner int) bool {
	// SYNC POINT (answer): pairs with Answer.
	return r.Word(u.Index) == MakeWord(Ans, u.Len, owner, u.Ticket)
}

// Acquire makes the run's answer the owner's alone: its header and payload may be
// read until Consume. False: it has not arrived, or the daemon has moved it, and
// its owner gets it by another way; see NewSpill.
func (r *Ring) Acquire(u Run, owner int) bool {
	w := MakeWord(Ans, u.Len, owner, u.Ticket)
	// SYNC POINT (answer): pairs with Answer.
	// SYNC POINT (answer moved): this swap and that of Move decide who has the
	// answer, before anybody reads it or frees its slots.
	return r.words[u.Index].CompareAndSwap(uint64(w), uint64(w.With(Read)))
}

// Consume frees an acquired run. Call Freed afterwards.
func (r *Ring) Consume(u Run) { r.Free(u.Index, u.Len) }

// Free makes the k slots from i free, last first, so that a sweep of a process
// that died in here always finds the first slot while others are left. Only the
// run's owner may call it, or the daemon for an owner that is dead.
func (r *Ring) Free(i, k int) { r.unclaim(i, k) }
