package client

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"github.com/rdmad/rdmad/internal/faultpoint"
	"github.com/rdmad/rdmad/shm"
	"github.com/rdmad/rdmad/slots"
)

// lane is this process's view of a lane: the shared ring and, in private
// memory, which future belongs to which of its slots.
type lane struct {
	conn  *Conn
	id    uint16
	class string
	peer  string
	near  bool // peer is this node
	ring  *slots.Ring
	// single is the capacity of one slot.
	single int
	// calls holds the outstanding requests, each at its first slot.
	calls []call
	// open is how many requests are in calls, while counted is set.
	open    atomic.Int32
	counted atomic.Bool
	chains  [chains]chain
	// quota is the most slots that this process may hold here; 0 for no limit.
	quota int
	// lost: the daemon does not know the lane any more, and nobody frees what is held in it.
	lost atomic.Bool
	// due is what it may still claim while there is any limit.
	due      due
	claimers claimers
	// kept is until when, by shm.Nanotime, what becomes free is for the claim that has waited for too
	// long already, 0 for no such time.
	kept atomic.Int64
}

const (
	// waitsLong is after how long a claim that waits keeps others from what becomes free: one of many
	// slots would not find them free in a row otherwise, as long as there are claims of few. keptFor is for
	// how long at first. Then others may take some for as long, because what holds the slots may need more of
	// them to go on, and so on in turns, each twice as long as the one before, up to longestTurn: handlers that hold
	// slots for longer than one turn are over within another, and nobody is kept for long from what others cannot use.
	waitsLong   = int64(20 * time.Millisecond)
	keptFor     = int64(50 * time.Millisecond)
	longestTurn = 20 * keptFor
)

// keptUntil is until when others are kept from what becomes free, for a claim that waits since a time; 0: they are not.
func keptUntil(since, now int64) int64 {
	long, turn := now-since-waitsLong, keptFor
	for long >= 2*turn {
		long -= 2 * turn
		turn = min(2*turn, longestTurn)
	}
	if long < 0 || long >= turn {
		return 0
	}
	return now + turn - long
}

// call is an outstanding request, or none. Whoever takes it completes its future,
// and nobody looks at the future without having taken it, or held it for a moment.
type call struct {
	// ticket is twice the run's ticket plus one, noCall, or callTaken.
	ticket atomic.Uint64
	future *Future
}

const (
	noCall    = 0
	callTaken = 2 // somebody holds it, or has not fetched the future yet
)

// put enters a request whose future is ready to be completed. The slot's place is not
// occupied.
func (l *lane) put(f *Future) {
	c := &l.calls[f.run.Index]
	c.future = f
	// SYNC POINT (call): the future is visible to whoever takes it. A release is
	// enough: to be sure that failAll sees the request, commit looks at ended
	// after the swap that publishes it.
	shm.StoreRelease(&c.ticket, f.run.Ticket<<1|1)
}

// occupied reports whether the last request in slot i is here still, and has to be evicted
// before another is put.
//
// SYNC POINT (call taken): it is not if the last request's taker has freed the slots that
// are the next one's now. If the daemon has, because it has moved the answer, the last
// request may be here still, and somebody may hold it.
func (l *lane) occupied(i int) bool { return l.calls[i].ticket.Load() != noCall }

// count counts a request that is about to be put among the lane's, if they are counted.
func (l *lane) count(f *Future) {
	if f.counted = l.counted.Load(); f.counted {
		l.open.Add(1)
	}
}

// outstanding returns the ticket of the request at slot i.
func (l *lane) outstanding(i int) (ticket uint64, ok bool) {
	t := l.calls[i].ticket.Load()
	return t >> 1, t&1 != 0
}

// take takes the request with the ticket out of slot i. It returns nil if it is not
// there, and the future otherwise.
func (l *lane) take(i int, ticket uint64) *Future {
	c := &l.calls[i]
	// SYNC POINT (call): pairs with put.
	if !c.ticket.CompareAndSwap(ticket<<1|1, callTaken) {
		return nil
	}
	f := c.future
	c.future = nil
	if f.counted {
		l.open.Add(-1)
	}
	// SYNC POINT (call taken): pairs with occupied.
	shm.StoreRelease(&c.ticket, noCall)
	return f
}

// hold takes the request with the ticket out of slot i for a moment: the caller then
// either calls letGo or drop. Nobody else can enter a request there until then, although
// its slots may become free.
func (l *lane) hold(i int, ticket uint64) *Future {
	c := &l.calls[i]
	// SYNC POINT (call): pairs with put.
	if !c.ticket.CompareAndSwap(ticket<<1|1, callTaken) {
		return nil
	}
	return c.future
}

// letGo leaves a request that is held where it was.
func (l *lane) letGo(f *Future) { shm.StoreRelease(&l.calls[f.run.Index].ticket, f.run.Ticket<<1|1) }

// drop takes a request that is held out for good.
func (l *lane) drop(f *Future) {
	c := &l.calls[f.run.Index]
	c.future = nil
	if f.counted {
		l.open.Add(-1)
	}
	// SYNC POINT (call taken): pairs with occupied.
	shm.StoreRelease(&c.ticket, noCall)
}

// wish is what somebody wants of a ring.
type wish struct {
	// run is for how many slots in a row.
	run int
	// noWait: not if that takes waiting for room. patient: behind those who wait already.
	noWait, patient bool
	// since is when the wait for it began, by shm.Nanotime; 0 for now.
	since int64
	// elsewhere: there are other lanes, so that a wait for room ends with errElsewhere after freeSleep, but not while the ring
	// is kept for it: what has become free for it would be others' when it goes to look there.
	elsewhere bool
	// waited: a patient one has waited for keptFor, or behind claims of more slots, and looks whether there is what is too little for those.
	waited bool
}

// errElsewhere is why a wait for room has ended that is to go on in another lane.
var errElsewhere = errors.New("there are other lanes")

// claim takes a run of slots, waiting for room if it must.
func (l *lane) claim(ctx context.Context, w wish) (u slots.Run, err error) {
	leave := int64(math.MaxInt64)
	if w.elsewhere {
		leave = shm.Nanotime() + int64(freeSleep)
	}
	for mine, waited := false, w.waited; !mine; waited = true {
		if l.conn.ended.Load() {
			return slots.Run{}, l.conn.endError() // nobody closes the lanes of a dead daemon
		}
		kept := l.kept.Load()
		if kept > 0 {
			kept -= shm.Nanotime()
		}
		switch err = slots.ErrFull; {
		case kept > 0:
			err = errKept
		case !w.patient || waited || !l.claimers.any():
			u, err = l.tryClaim(w.run, false)
		}
		if err == nil || !mayPass(err) {
			return u, err
		}
		if w.noWait {
			return u, l.pressure(err)
		}
		if mine, err = l.turn(ctx, err, w.run, kept, leave); err != nil {
			return u, err
		}
	}
	l.claimers.wants(w.run)
	defer l.claimers.next()
	defer l.kept.Store(0)
	return l.await(ctx, w.run, w.since, leave)
}

// turn waits until the caller, who wants so many slots in a row, is the one that waits for room, which mine says and why is for, or
// for as many nanoseconds as it is only kept from what there is, if that is not 0 or less. Behind a claim of more slots it waits for
// keptFor, or a little longer with many others: what is too little for that one may do for this one, and what holds the rest may need it to go
// on. At leave, by shm.Nanotime, it returns errElsewhere.
func (l *lane) turn(ctx context.Context, why error, run int, kept, leave int64) (mine bool, err error) {
	behind, longer := l.claimers.ahead(run)
	if behind && kept <= 0 {
		kept = l.claimers.lookLater()
		defer l.claimers.looks()
	}
	var over <-chan time.Time
	var end error // of over
	if leave != math.MaxInt64 {
		if left := max(leave-shm.Nanotime(), 0); kept <= 0 || left < kept {
			kept, end = max(left, 1), errElsewhere
		}
	}
	if kept > 0 {
		t := time.NewTimer(time.Duration(kept))
		defer t.Stop()
		over = t.C
	}
	select {
	case l.claimers.turn <- struct{}{}:
		return true, nil
	case <-over:
		return false, end
	case <-longer:
		return false, nil
	case <-ctx.Done():
		return false, l.overdue(why, context.Cause(ctx))
	case <-l.conn.session.Done():
		return false, l.conn.endError()
	}
}

// await takes a run of k slots as the one that waits for room. From leave on it returns errElsewhere unless the ring is kept for it.
func (l *lane) await(ctx context.Context, k int, since, leave int64) (slots.Run, error) {
	l.conn.arrived.begin()
	defer l.conn.arrived.end()
	var nap shm.Nap
	if since == 0 {
		since = shm.Nanotime()
	}
	soon := ctx // ends at leave: there may be room elsewhere for who is at a limit here
	if leave != math.MaxInt64 {
		var cancel context.CancelFunc
		soon, cancel = context.WithTimeout(ctx, time.Duration(leave-shm.Nanotime()))
		defer cancel()
	}
	for room := l.conn.wait.room; ; room = min(2*room, roomGrowth*l.conn.wait.room) {
		bell := l.ring.WaitFree(l.wakeAfter())
		u, err := l.tryClaim(k, true)
		if err == nil || !mayPass(err) {
			return u, err
		}
		if l.conn.ended.Load() {
			return u, l.conn.endError()
		}
		if ctx.Err() != nil {
			return u, l.overdue(err, context.Cause(ctx))
		}
		now := shm.Nanotime()
		kept := keptUntil(since, now)
		l.kept.Store(kept)
		stay := leave
		if k > 1 && errors.Is(err, slots.ErrFull) {
			stay = max(leave, kept)
		}
		if now >= stay {
			return u, errElsewhere
		}
		// Answers of this process that nobody fetches hold slots too: take
		// them out, unless another goroutine is doing just that.
		if l.conn.wait.reapIfFree() {
			continue
		}
		if end, ok := ctx.Deadline(); ok {
			room = min(room, max(time.Until(end), l.conn.wait.room))
		}
		if leave != math.MaxInt64 {
			room = min(room, max(time.Duration(stay-now), l.conn.wait.room))
		}
		if !l.conn.wait.sleepForRoom(soon, l, k, err, bell, room) {
			nap.Sleep(l.ring.FreeBell(), bell, room)
		}
	}
}

// publish hands a written request to the daemon; unless it does so silently it tells
// the daemon, which announce does otherwise. It returns slots.ErrClosed, having freed
// the run, if the lane was closed meanwhile.
func (l *lane) publish(u slots.Run, silent bool) error {
	faultpoint.Here("publish.before")
	if !l.ring.Publish(u, l.conn.id) {
		return fmt.Errorf("%w: slot %d was overwritten by another process of the domain", ErrNotExecuted, u.Index)
	}
	faultpoint.Here("publish.after")
	if !silent {
		l.announce()
	}
	// SYNC POINT (lane closed): the daemon stores the state and then gives
	// every published request an outcome. A request published after its last
	// look is taken back here; the swaps of Revoke and Take decide who has it.
	if l.ring.State() == slots.LaneClosed && l.ring.Revoke(u, l.conn.id) {
		l.abort(u)
		return slots.ErrClosed
	}
	return nil
}

// announce tells the daemon that something was published in the lane.
func (l *lane) announce() {
	s := l.conn.session
	if sleep := s.Bells.MarkLane(l.id); sleep != 0 && !s.Bells.HasRung(sleep) {
		faultpoint.Here("bell.before")
		s.Bell.Ring()
		s.Bells.Rung(sleep)
		faultpoint.Here("bell.rung")
	}
}

// revoke takes a published request back if the daemon has not taken it.
func (l *lane) revoke(u slots.Run) bool {
	if !l.ring.Revoke(u, l.conn.id) {
		return false
	}
	faultpoint.Here("revoke.after")
	l.abort(u)
	return true
}

func (l *lane) abort(u slots.Run) {
	faultpoint.Here("abort.before")
	l.due.credit(u.Len)
	l.ring.Abort(u)
	l.freed(u.Len)
	faultpoint.Here("abort.after")
}
