package client

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

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
	ring  *slots.Ring
	// single is the capacity of one slot.
	single int
	// calls holds the outstanding requests, each at its first slot.
	calls []call
	// claimers lets one goroutine at a time sleep for free slots, so that a
	// full ring blocks one thread of the process and not one per goroutine.
	claimers chan struct{}
}

// call is an outstanding request, or none. Whoever takes it completes its future,
// and nobody looks at the future without having taken it.
type call struct {
	// ticket is twice the run's ticket plus one, noCall, or callTaken.
	ticket atomic.Uint64
	future *Future
}

const (
	noCall    = 0
	callTaken = 2 // its taker has not fetched the future yet
)

// put enters a request whose future is ready to be completed.
func (l *lane) put(f *Future) {
	c := &l.calls[f.run.Index]
	// SYNC POINT (call taken): it is noCall, for the last request's taker stored
	// that before it freed the slots that are this request's now. The load says
	// so to the race detector, which knows nothing of slots.
	_ = c.ticket.Load()
	c.future = f
	// SYNC POINT (call): the future is visible to whoever takes it. A release is
	// enough: to be sure that failAll sees the request, commit looks at ended
	// after the swap that publishes it.
	shm.StoreRelease(&c.ticket, f.run.Ticket<<1|1)
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
	// SYNC POINT (call taken): pairs with put.
	shm.StoreRelease(&c.ticket, noCall)
	return f
}

// claim takes a run of k slots, waiting for room unless noWait is set.
func (l *lane) claim(ctx context.Context, k int, noWait bool) (slots.Run, error) {
	if l.conn.ended.Load() {
		return slots.Run{}, ErrClosed // nobody closes the lanes of a dead daemon
	}
	u, err := l.ring.Claim(l.conn.id, k)
	if err == nil || !errors.Is(err, slots.ErrFull) {
		return u, err
	}
	if noWait {
		return u, ErrBackpressure
	}
	select {
	case l.claimers <- struct{}{}:
		defer func() { <-l.claimers }()
	case <-ctx.Done():
		return u, fmt.Errorf("%w: no free slots in the ring to %s: %w", ErrDeadline, l.peer, ctx.Err())
	case <-l.conn.session.Done():
		return u, ErrClosed
	}
	var nap shm.Nap
	for {
		bell := l.ring.WaitFree()
		u, err := l.ring.Claim(l.conn.id, k)
		if err == nil || !errors.Is(err, slots.ErrFull) {
			return u, err
		}
		if l.conn.ended.Load() {
			return u, ErrClosed
		}
		if ctx.Err() != nil {
			return u, fmt.Errorf("%w: no free slots in the ring to %s: %w", ErrDeadline, l.peer, ctx.Err())
		}
		// Answers of this process that nobody fetches hold slots too: take
		// them out, unless another goroutine is doing just that.
		if l.conn.wait.reapIfFree() {
			continue
		}
		nap.Sleep(l.ring.FreeBell(), bell, freeSleep)
	}
}

// freeSleep is how long a wait for free slots sleeps at a time. Whoever frees
// slots ends it; it bounds how long an answer of this process that arrives
// meanwhile, or the end of a context, goes unnoticed.
const freeSleep = 5 * time.Millisecond

// publish hands a written request to the daemon; unless it does so silently it tells
// the daemon, which announce does otherwise. It returns slots.ErrClosed, having freed
// the run, if the lane was closed meanwhile.
func (l *lane) publish(u slots.Run, silent bool) error {
	if !l.ring.Publish(u, l.conn.id) {
		return fmt.Errorf("%w: slot %d was overwritten by another process of the domain", ErrNotExecuted, u.Index)
	}
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
	if l.conn.session.Bells.MarkLane(l.id) {
		l.conn.session.Bell.Ring()
	}
}

// revoke takes a published request back if the daemon has not taken it.
func (l *lane) revoke(u slots.Run) bool {
	if !l.ring.Revoke(u, l.conn.id) {
		return false
	}
	l.abort(u)
	return true
}

func (l *lane) abort(u slots.Run) {
	l.ring.Abort(u)
	l.ring.WakeFree()
}
