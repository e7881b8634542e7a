package slots

import (
	"sync/atomic"

	"github.com/rdmad/rdmad/internal/faultpoint"
	"github.com/rdmad/rdmad/shm"
)

// FreeBell returns the futex word that moves when slots were freed while
// somebody waited for them.
func (r *Ring) FreeBell() *atomic.Uint32 { return r.freeBell }

// WakeAfter is how many slots of the ring are to become free before those who wait
// for some are woken: a wake-up for each would cost more than the slots are worth, and
// each waiter looks through what may be the whole ring before it sleeps again.
func (g Geometry) WakeAfter() int { return min(max(g.Slots/8, 1), 1024) }

// WaitFree announces a wait for free slots and returns the value of FreeBell to
// sleep on. Then try to claim once more, and only then sleep, for a limited time:
// the bell moves when n slots have been freed, or fewer if another waiter wants
// fewer, and what is freed more slowly must be found by looking. A wake-up ends
// the announcement of everybody, so announce again before every sleep; a waiter
// that died costs no more than one wake-up.
func (r *Ring) WaitFree(n int) uint32 {
	bell := r.freeBell.Load()
	want := uint32(max(n, 1))
	// Every failed swap means that somebody else has announced a wait or freed
	// slots; the bound only matters for a word that changes all the time.
	for range 64 {
		old := r.freeWaiters.Load()
		// SYNC POINT (free slots): stored before the waiter's last look at the
		// words; pairs with Freed and WakeFree. It is a swap also where nothing
		// changes, because a load alone would order nothing.
		if r.freeWaiters.CompareAndSwap(old, least(old, want)) {
			faultpoint.Here("wait.announced")
			return bell
		}
	}
	r.freeWaiters.Store(1)
	return bell
}

// least is the smaller of two counts of which 0 is none.
func least(old, want uint32) uint32 {
	if old != 0 && old < want {
		return old
	}
	return want
}

// Waiters reports whether somebody waits for free slots, or has waited since the
// last wake-up.
func (r *Ring) Waiters() bool { return r.freeWaiters.Load() != 0 }

// Freed tells those who wait for free slots that n were freed. They are woken when
// that makes as many as they have asked for. Once for many slots is cheaper than
// once for each.
func (r *Ring) Freed(n int) {
	// SYNC POINT (free slots): the freed words are stored before this look, which
	// is an addition because a load could come before those stores; pairs with
	// WaitFree.
	faultpoint.Here("freed.before_look")
	left := r.freeWaiters.Add(0)
	for range 64 {
		if left == 0 {
			return
		}
		if int(left) <= n {
			break
		}
		if r.freeWaiters.CompareAndSwap(left, left-uint32(n)) {
			faultpoint.Here("freed.counted")
			return
		}
		left = r.freeWaiters.Load()
	}
	r.WakeFree()
}

// WakeFree wakes the waiters for free slots if there are any, however few slots are
// free: after the lane's state or the share has changed.
func (r *Ring) WakeFree() {
	// SYNC POINT (free slots): what was changed is stored before this look; see
	// Freed.
	if r.freeWaiters.Add(0) == 0 || r.freeWaiters.Swap(0) == 0 {
		return
	}
	faultpoint.Here("freed.before_bell")
	r.freeBell.Add(1)
	faultpoint.Here("freed.before_wake")
	shm.FutexWake(r.freeBell, shm.WakeMany)
}
