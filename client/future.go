package client

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/rdmad/rdmad/slots"
)

// Future is the outcome-to-be of a request. Its methods are safe for concurrent
// use, except Release.
type Future struct {
	m    *Method
	lane *lane
	run  slots.Run
	sink
	// res and err are written once, before done is stored.
	res  []byte
	err  error
	done atomic.Bool
	// waiter is the goroutine that waits for this future while another leads.
	waiter atomic.Pointer[follower]

	// shared says that somebody wants ch closed; mu guards the rest.
	shared  atomic.Bool
	mu      sync.Mutex
	ch      chan struct{}
	closed  bool // ch is closed
	watched bool // Done's goroutine runs
}

// sink says what becomes of an answer.
type sink struct {
	// dst is the buffer to append to, from its start; nil for a new slice.
	dst []byte
	// inPlace leaves the answer in the slots: res is shared memory, and whoever
	// waits for the future frees the slots with letGo. It holds the connection's
	// gate from before the request is sent until then.
	inPlace bool
	// queue, if not nil, gets the outcome under tag. Nobody waits for the future,
	// which goes back into the pool.
	queue *Queue
	tag   uint64
}

func (f *Future) reset(m *Method, d *draft, to *sink) {
	f.m, f.lane, f.run, f.sink = m, d.l, d.u, *to
	f.res, f.err = nil, nil
	if f.waiter.Load() != nil {
		f.waiter.Store(nil)
	}
	if !f.shared.Load() {
		// Nobody else looks at it before it is in the table.
		f.done = atomic.Bool{}
		return
	}
	// The last use had a channel, and its completer may still be about to
	// close it.
	f.mu.Lock()
	f.ch, f.closed, f.watched = nil, false, false
	f.shared.Store(false)
	f.done.Store(false)
	f.mu.Unlock()
}

// recycle puts a settled future that nobody else knows back into the pool.
func (f *Future) recycle() {
	f.sink = sink{}
	futures.Put(f)
}

// settled reports whether the outcome is known.
func (f *Future) settled() bool { return f.done.Load() }

// Wait waits for the outcome until ctx ends, in which case it returns a
// *DeadlineError and the future goes on: it may be waited for again. Any number
// of goroutines may wait, any number of times.
func (f *Future) Wait(ctx context.Context) ([]byte, error) {
	if !f.settled() {
		c := f.m.conn
		if c.gate.enter() {
			c.wait.until(ctx, f)
			c.gate.leave()
		} else {
			select {
			case <-c.over:
			case <-ctx.Done():
			}
		}
		if !f.settled() {
			return nil, &DeadlineError{Target: f.m.name, Sent: true, Cause: context.Cause(ctx)}
		}
	}
	return f.res, f.err
}

// await returns the outcome of a future that nobody else knows and that is not used
// afterwards, or gives the request up when ctx ends.
func (f *Future) await(ctx context.Context) ([]byte, error) {
	answer, err := f.Wait(ctx)
	if err != nil && !f.settled() {
		return f.giveUp(ctx)
	}
	f.recycle()
	return answer, err
}

// Result returns the outcome if it is known. ok is false if it is not: the
// answer may have arrived and only be noticed by the next Wait.
func (f *Future) Result() (answer []byte, err error, ok bool) {
	if !f.settled() {
		return nil, nil, false
	}
	return f.res, f.err, true
}

// Done returns a channel that is closed when the outcome is known. The first
// call starts a goroutine that waits for it.
func (f *Future) Done() <-chan struct{} {
	ch := f.channel()
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.watched && !f.closed {
		f.watched = true
		go func() { _, _ = f.Wait(context.Background()) }()
	}
	return ch
}

// channel returns the channel that complete closes.
func (f *Future) channel() chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ch == nil {
		f.ch = make(chan struct{})
		f.shared.Store(true)
	}
	f.closeIfDone()
	return f.ch
}

// closeIfDone runs with mu held. done is looked at again because the future may
// be in use for another request by now.
func (f *Future) closeIfDone() {
	if f.ch != nil && !f.closed && f.done.Load() {
		f.closed = true
		close(f.ch)
	}
}

// Cancel takes the request back if the daemon has not taken it yet. It returns
// true if it did so: the outcome is then ErrNotExecuted. Otherwise the request
// goes on.
func (f *Future) Cancel() bool {
	c := f.m.conn
	if f.settled() || !c.gate.enter() {
		return false
	}
	defer c.gate.leave()
	return f.cancel()
}

func (f *Future) cancel() bool {
	// Whoever takes the future out of the table completes it.
	if f.lane.take(f.run.Index, f.run.Ticket) == nil {
		return false
	}
	if !f.lane.revoke(f.run) {
		f.lane.put(f)
		f.m.conn.wait.recheck()
		return false
	}
	f.complete(nil, fmt.Errorf("%s: %w: cancelled", f.m.name, ErrNotExecuted))
	return true
}

// giveUp ends a call whose context has ended: it takes the request back, or
// leaves the future behind to receive the answer and free the slots. Nobody
// touches the caller's buffer after it has returned.
func (f *Future) giveUp(ctx context.Context) ([]byte, error) {
	c, sent := f.m.conn, true
	if f.lane.take(f.run.Index, f.run.Ticket) == nil {
		<-f.channel() // somebody is completing it at this moment
		return f.res, f.err
	}
	inside := f.inPlace // the caller holds the gate, which may be shut behind it
	f.sink = sink{}
	if inside || c.gate.enter() {
		if sent = !f.lane.revoke(f.run); sent {
			f.lane.put(f)
			c.wait.recheck()
		}
		if !inside {
			c.gate.leave()
		}
	}
	return nil, &DeadlineError{Target: f.m.name, Sent: sent, Cause: context.Cause(ctx)}
}

// Release lets the library use the future again, which saves an allocation. It
// must be called at most once, after the outcome was seen, by the last user;
// the answer slice stays valid.
func (f *Future) Release() {
	if !f.settled() {
		return
	}
	if f.shared.Load() {
		f.mu.Lock()
		watched := f.watched
		f.mu.Unlock()
		if watched {
			return // Done's goroutine may still look at it
		}
	}
	f.recycle()
}

// finish takes the answer out of the slots and frees them, or leaves an answer that
// is to be read in place where it is, and completes the future. The caller has taken
// f out of the lane's table and calls WakeFree of the ring afterwards.
func (f *Future) finish() {
	res, err := f.read()
	if err != nil || !f.inPlace {
		f.lane.ring.Consume(f.run)
	}
	f.complete(res, err)
}

// letGo frees the slots of an answer that was read in place.
func (f *Future) letGo() {
	f.lane.ring.Consume(f.run)
	f.lane.ring.WakeFree()
	f.res = nil
	f.recycle()
}

// read copies the answer, unless it is to be read in place. The header was checked by the daemon; it is checked
// again because other processes of the domain can write to the slots.
func (f *Future) read() ([]byte, error) {
	var h slots.Header
	r := f.lane.ring
	if !h.Decode(r.Header(f.run)) {
		return nil, f.corrupt(slots.ErrProtocol)
	}
	if err := h.CheckAnswer(r.Geometry(), f.run.Len, f.run.Ticket); err != nil {
		return nil, f.corrupt(err)
	}
	p := r.Payload(f.run)[:h.Length]
	switch h.Status {
	case slots.StatusOK:
		if f.inPlace {
			return p[:len(p):len(p)], nil
		}
		if f.dst == nil {
			return append(make([]byte, 0, len(p)), p...), nil
		}
		return append(f.dst[:0], p...), nil
	case slots.StatusRemote:
		return nil, &RemoteError{Target: f.m.name, Text: string(p)}
	case slots.StatusTooLarge:
		return nil, &TooLargeError{Target: f.m.name, What: "answer", Limit: int(h.Answer)}
	case slots.StatusDeadline:
		return nil, &DeadlineError{Target: f.m.name, Cause: errPeerDeadline}
	case slots.StatusNoService:
		f.m.route.p.Store(nil) // the next call looks again
		return nil, fmt.Errorf("%s: %w: %w: %s", f.m.name, ErrNotExecuted, ErrNoService, p)
	case slots.StatusNotExported:
		return nil, fmt.Errorf("%s: %w: %w: %s", f.m.name, ErrNotExecuted, ErrNotExported, p)
	case slots.StatusNotExecuted, slots.StatusInvalid:
		return nil, fmt.Errorf("%s: %w: %s", f.m.name, ErrNotExecuted, p)
	}
	return nil, fmt.Errorf("%s: %w: %s", f.m.name, ErrMaybeExecuted, p)
}

func (f *Future) corrupt(err error) error {
	return fmt.Errorf("%s: %w: the answer was damaged in shared memory: %w", f.m.name, ErrMaybeExecuted, err)
}

// complete must be the last use of f by whoever has taken it.
func (f *Future) complete(res []byte, err error) {
	if q, tag := f.queue, f.tag; q != nil {
		f.recycle()
		q.push(tag, Result{res, err})
		return
	}
	f.res, f.err = res, err
	// SYNC POINT (future): res and err are visible to whoever loads done. The
	// store comes before the loads of waiter and shared; those who wait store
	// there before they look at done a last time.
	f.done.Store(true)
	if w := f.waiter.Load(); w != nil {
		w.poke()
	}
	if f.shared.Load() {
		f.mu.Lock()
		f.closeIfDone()
		f.mu.Unlock()
	}
}

// abandoned gives the outcome of a request whose daemon is gone.
func (f *Future) abandoned() {
	switch l := f.lane; {
	case l.ring.Answered(f.run, f.m.conn.id):
		f.finish()
		l.ring.WakeFree()
	case l.revoke(f.run):
		f.complete(nil, fmt.Errorf("%s: %w: %w", f.m.name, ErrNotExecuted, ErrClosed))
	default:
		f.complete(nil, fmt.Errorf("%s: %w: %w", f.m.name, ErrMaybeExecuted, ErrClosed))
	}
}
