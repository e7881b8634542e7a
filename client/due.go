package client

import (
	"sync"
	"sync/atomic"

	"github.com/rdmad/rdmad/shm"
	"github.com/rdmad/rdmad/slots"
)

// due is how many slots this process may still claim in a lane before it must count
// again what it holds there. Nothing has to be counted while there is no limit, and what
// the daemon frees counts too: the first count is a look at every word of the ring, and later
// ones at those of the runs that this process had then or has claimed since. Among hundreds of
// processes a look is dear, because the others have written the words since the last one; so what
// this process frees itself is added without one.
type due struct {
	// limited: there was a limit before, so what is freed is noted in freed.
	limited atomic.Bool
	freed   atomic.Int64
	// unlimited: something was claimed that left does not know of.
	unlimited atomic.Bool

	mu   sync.Mutex
	left int
	// runs has all that this process holds in the lane, unless limit is 0 or unlimited is set: the first
	// long of them have been held for slots.LastingAfter, and the first known were held at seen.
	runs        []slots.Run
	long, known int
	seen        int64
	// limit and under are those that left is about; limit is 0 for none. left has besides room of
	// what is held for long and does not count.
	limit, besides int
	under          terms
}

// terms are what the daemon says of how much of a ring a process may hold: a share, and how much
// besides in runs that it has held for long.
type terms struct {
	share   slots.Share
	lasting int
}

func (l *lane) terms() terms { return terms{l.ring.Share(), l.ring.Lasting()} }

// credit notes that the caller is about to free n slots of this process.
func (d *due) credit(n int) {
	// SYNC POINT (credit): added before the slots are freed; a count forgets what was
	// added before its end, so that no slot is counted as free and added as well.
	if d.limited.Load() {
		d.freed.Add(int64(n))
	}
}

// adjust makes left what may be claimed under a limit, as far as that is known without
// looking at the ring, and reports whether k slots may. The caller holds mu.
func (d *due) adjust(k, limit int, now terms) bool {
	if !d.limited.Load() {
		d.limited.Store(true)
	}
	if d.limit == 0 || d.unlimited.Load() {
		return false
	}
	if limit != d.limit || now.lasting < d.besides {
		d.left -= d.besides
		d.besides = 0
	}
	// What is freed may be what did not count.
	if d.besides == 0 && d.freed.Load() > 0 {
		d.left += int(d.freed.Swap(0))
	}
	d.left += limit - d.limit
	d.limit, d.under = limit, now
	return d.left >= k
}

// count looks at the ring. The caller holds mu.
func (d *due) count(l *lane, limit int, why error, now terms) {
	held, long := 0, 0
	if at := shm.Nanotime(); d.limit == 0 || d.unlimited.Swap(false) {
		d.runs, held = l.ring.HeldRuns(l.conn.id, d.runs)
		d.long, d.known, d.seen = 0, len(d.runs), at
	} else {
		held, long = d.look(l, at)
	}
	d.left, d.besides = limit-held, 0
	if why == errShare {
		d.besides = min(long, now.lasting)
		if l.quota > 0 {
			d.besides = max(min(d.besides, l.quota-limit), 0)
		}
		d.left += d.besides
	}
	d.limit, d.under = limit, now
	// SYNC POINT (credit): pairs with credit.
	d.freed.Store(0)
}

// look leaves in runs what this process still holds, and counts its slots, and those held for long.
// The caller holds mu.
func (d *due) look(l *lane, at int64) (held, long int) {
	parts := [...][]slots.Run{d.runs[:d.long], d.runs[d.long:d.known], d.runs[d.known:]}
	var ends, sums [len(parts)]int
	kept := d.runs[:0]
	for i, part := range parts {
		part, sums[i] = l.ring.StillHeld(l.conn.id, part)
		kept = append(kept, part...)
		ends[i] = len(kept)
		held += sums[i]
	}
	d.runs, d.long, d.known, long = kept, ends[0], ends[1], sums[0]
	if at-d.seen >= int64(slots.LastingAfter) {
		d.long, d.known, d.seen = d.known, len(kept), at
		long += sums[1]
	}
	return held, long
}

// allows reports whether the process may claim k slots after a count. Who holds nothing may have one
// run, however long, and who holds nothing that counts as well, within the quota. The caller holds mu.
func (d *due) allows(k, quota int) bool {
	held := d.limit + d.besides - d.left
	return d.left >= k || d.left >= d.limit && (held == 0 || quota == 0 || held+k <= quota)
}

// claimed notes a run that was claimed under the limit. The caller holds mu.
func (d *due) claimed(l *lane, u slots.Run) {
	if d.limit == 0 {
		return
	}
	if len(d.runs) >= 2*(d.limit+d.besides) {
		d.look(l, d.seen)
	}
	d.runs = append(d.runs, u)
}
