package client

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/rdmad/rdmad/slots"
)

// Why a claim must wait, besides a full ring.
var (
	errQuota = errors.New("quota of slots")
	errBytes = errors.New("quota of bytes")
	errShare = errors.New("share of the ring")
	// errKept is why a claim does not take what is free: it is kept for one that has waited long.
	errKept = errors.New("kept slots")
)

// mayPass reports whether a claim that failed with err may succeed when slots have
// been freed.
func mayPass(err error) bool {
	return errors.Is(err, slots.ErrFull) || errors.Is(err, errQuota) || errors.Is(err, errBytes) || errors.Is(err, errShare) || errors.Is(err, errKept)
}

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
	// runs has all that this process holds in the lane, unless limit is 0 or unlimited is set.
	runs []slots.Run
	// limit and share are those that left is about; limit is 0 for none.
	limit int
	under slots.Share
}

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
func (d *due) adjust(k, limit int, share slots.Share) bool {
	if !d.limited.Load() {
		d.limited.Store(true)
	}
	if d.limit == 0 || d.unlimited.Load() {
		return false
	}
	if d.freed.Load() > 0 {
		d.left += int(d.freed.Swap(0))
	}
	d.left += limit - d.limit
	d.limit, d.under = limit, share
	return d.left >= k
}

// count looks at the ring. The caller holds mu.
func (d *due) count(l *lane, limit int, share slots.Share) {
	held := 0
	if d.limit == 0 || d.unlimited.Swap(false) {
		d.runs, held = l.ring.HeldRuns(l.conn.id, d.runs)
	} else {
		d.runs, held = l.ring.StillHeld(l.conn.id, d.runs)
	}
	d.left, d.limit, d.under = limit-held, limit, share
	// SYNC POINT (credit): pairs with credit.
	d.freed.Store(0)
}

// claimed notes a run that was claimed under the limit. The caller holds mu.
func (d *due) claimed(l *lane, u slots.Run) {
	if d.limit == 0 {
		return
	}
	if len(d.runs) >= 2*d.limit {
		d.runs, _ = l.ring.StillHeld(l.conn.id, d.runs)
	}
	d.runs = append(d.runs, u)
}

// byteQuota bounds the bytes of slots that this process holds in all lanes.
type byteQuota struct {
	most int // 0 for no limit
	mu   sync.Mutex
	left int // as due.left
}

// tryClaim claims a run of k slots if there is room and the process may have them.
// Unless the caller is the one that waits for slots, it leaves them to that one.
func (l *lane) tryClaim(k int, waiter bool) (slots.Run, error) {
	if l.quota == 0 && l.conn.bytes.most == 0 && l.ring.Share().Slots() == 0 {
		if !l.due.unlimited.Load() {
			l.due.unlimited.Store(true)
		}
		u, stale, err := l.claimUnder(0, k)
		if !l.due.unlimited.Load() { // somebody has counted meanwhile, maybe before the claim
			l.due.unlimited.Store(true)
		}
		if !stale {
			return u, err
		}
	}
	return l.claimLimited(k, waiter)
}

// claimUnder claims a run of k slots for a process that may have them under the share that
// it has seen. It reports whether that has become smaller meanwhile: then nothing is claimed.
func (l *lane) claimUnder(seen slots.Share, k int) (u slots.Run, stale bool, err error) {
	if u, err = l.ring.Claim(l.conn.id, k); err != nil {
		return u, false, err
	}
	// SYNC POINT (share): looked at after the claim. The daemon judges what was claimed
	// after it looked at the words by the largest share since, so it cannot be smaller than
	// this one, however long ago the other look was: on a busy machine that may be seconds.
	now := l.ring.Share().Slots()
	if had := seen.Slots(); now == 0 || had > 0 && now >= had {
		return u, false, nil
	}
	// No credit: the caller knows whether left has it.
	l.ring.Abort(u)
	l.freed(k)
	return slots.Run{}, true, nil
}

// limit is the most slots that this process may hold in the lane under the share s,
// and what to say when that is not enough. 0: no limit.
func (l *lane) limit(s slots.Share) (n int, why error) {
	n, why = l.quota, errQuota
	if m := s.Slots(); m > 0 && (n == 0 || m < n) {
		n, why = m, errShare
	}
	return n, why
}

// claimLimited is tryClaim under a limit. The claims of the process take turns, so
// that what is counted is exact: the daemon refuses what is beyond the quota.
func (l *lane) claimLimited(k int, waiter bool) (u slots.Run, err error) {
	b := &l.conn.bytes
	if b.most == 0 {
		return l.claimCounted(k, waiter)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	n := k * l.ring.Geometry().SlotSize
	if b.left < n {
		if !waiter && l.claimers.any() {
			return u, errBytes // somebody has just counted, and waits
		}
		if b.left = b.most - l.conn.held(); b.left < n && b.left < b.most {
			return u, errBytes
		}
	}
	if u, err = l.claimCounted(k, waiter); err == nil {
		b.left -= n
	}
	return u, err
}

// claimCounted claims under the limit of the lane.
func (l *lane) claimCounted(k int, waiter bool) (u slots.Run, err error) {
	l.due.mu.Lock()
	defer l.due.mu.Unlock()
	for range shareLooks {
		share := l.ring.Share()
		if err := l.admit(share, k, waiter); err != nil {
			return u, err
		}
		l.due.left -= k
		u, stale, err := l.claimUnder(share, k)
		if err == nil && !stale {
			l.due.claimed(l, u)
			return u, nil
		}
		l.due.left += k
		if err != nil {
			return u, err
		}
	}
	return u, errShare
}

// shareLooks bounds how often a claim begins again because the share has become smaller,
// which the daemon takes half a millisecond for.
const shareLooks = 4

// admit returns nil if the process may claim k slots under the share, or why not. The
// caller holds due.mu.
func (l *lane) admit(share slots.Share, k int, waiter bool) error {
	limit, why := l.limit(share)
	if limit == 0 {
		l.due.limit = 0
		return nil
	}
	known := l.due.under == share
	if l.due.adjust(k, limit, share) {
		return nil
	}
	if !waiter && known && l.claimers.any() {
		return why
	}
	l.due.count(l, limit, share)
	// Who holds nothing may have one run, however long.
	if l.due.left >= k || l.due.left >= limit {
		return nil
	}
	if why == errShare {
		// The share may be an old one: the daemon looks at rings when
		// something happens, and here it may be that nothing does.
		l.announce()
	}
	return why
}

// mayHold looks at the rings and reports whether the process may hold k slots of the lane
// more now.
func (l *lane) mayHold(k int) bool {
	if b := &l.conn.bytes; b.most > 0 {
		b.mu.Lock()
		b.left = b.most - l.conn.held()
		ok := b.left >= k*l.ring.Geometry().SlotSize || b.left >= b.most
		b.mu.Unlock()
		if !ok {
			return false
		}
	}
	share := l.ring.Share()
	limit, _ := l.limit(share)
	if limit == 0 {
		return true
	}
	l.due.mu.Lock()
	defer l.due.mu.Unlock()
	l.due.count(l, limit, share)
	return l.due.left >= k || l.due.left >= limit
}

// held is how many bytes of slots this process holds in all lanes.
func (c *Conn) held() (bytes int) {
	for _, l := range c.allLanes() {
		if !l.lost.Load() {
			bytes += l.ring.Held(c.id) * l.ring.Geometry().SlotSize
		}
	}
	return bytes
}

// allLanes returns the lanes that were ever opened, in a slice that is only ever appended to.
func (c *Conn) allLanes() []*lane {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.opened
}

// wakeAfter is after how many freed slots a wait for some is to end.
func (l *lane) wakeAfter() int {
	n := l.ring.Geometry().WakeAfter()
	if limit, _ := l.limit(l.ring.Share()); limit > 0 {
		n = min(n, max(limit/2, 1))
	}
	if most := l.conn.bytes.most; most > 0 {
		n = min(n, max(most/l.ring.Geometry().SlotSize/2, 1))
	}
	return n
}

// freed wakes those who wait for slots, after this process has freed n.
func (l *lane) freed(n int) {
	l.ring.Freed(n)
	// SYNC POINT (room freed here): after the slots were freed, which Freed has ordered.
	if l.conn.wait.told.Load() {
		l.conn.session.Wake()
	}
	if l.conn.bytes.most == 0 {
		return
	}
	// They are room in the other lanes too.
	for _, other := range l.conn.allLanes() {
		if other != l {
			size := other.ring.Geometry().SlotSize
			other.ring.Freed((n*l.ring.Geometry().SlotSize + size - 1) / size)
		}
	}
}

// wanting says what a claim waits for, or would.
func (l *lane) wanting(err error) string {
	switch {
	case errors.Is(err, errQuota):
		return fmt.Sprintf("this process holds its quota of %d slots of the ring to %s (limits.worker_slots in the daemon's config)", l.quota, l.peer)
	case errors.Is(err, errBytes):
		return fmt.Sprintf("this process holds its quota of %d bytes of slots (limits.worker_bytes in the daemon's config)", l.conn.bytes.most)
	case errors.Is(err, errShare):
		return fmt.Sprintf("this process holds its share of the ring to %s, which others use too", l.peer)
	case errors.Is(err, errKept):
		return fmt.Sprintf("the free slots of the ring to %s are kept for a request of this process that needs many and has waited long", l.peer)
	}
	return "no free slots in the ring to " + l.peer
}

// pressure is the error of a claim that does not wait.
func (l *lane) pressure(err error) error {
	if errors.Is(err, slots.ErrFull) {
		return ErrBackpressure
	}
	return fmt.Errorf("%w: %s", ErrBackpressure, l.wanting(err))
}

// overdue is the error of a claim that has waited until its context ended.
func (l *lane) overdue(err, end error) error {
	return fmt.Errorf("%w: %s: %w", ErrDeadline, l.wanting(err), end)
}
