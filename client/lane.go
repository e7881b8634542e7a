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
	// calls holds the future of each outstanding request at its first slot.
	calls []atomic.Pointer[Future]
	// claimers lets one goroutine at a time sleep for free slots, so that a
	// full ring blocks one thread of the process and not one per goroutine.
	claimers chan struct{}
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

// publish hands a written request to the daemon. It returns slots.ErrClosed,
// having freed the run, if the lane was closed meanwhile.
func (l *lane) publish(u slots.Run) error {
	if !l.ring.Publish(u, l.conn.id) {
		return fmt.Errorf("%w: slot %d was overwritten by another process of the domain", ErrNotExecuted, u.Index)
	}
	if l.conn.session.Bells.MarkLane(l.id) {
		l.conn.session.Bell.Ring()
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
