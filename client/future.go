package client

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rdmad/rdmad/internal/attach"
	"github.com/rdmad/rdmad/internal/faultpoint"
	"github.com/rdmad/rdmad/slots"
)

// Future is the outcome-to-be of a request. Its methods are safe for concurrent
// use, except Release.
type Future struct {
	// What each request uses comes first, in three lines of a cache of the four that there are.
	m     *Method
	route *route
	lane  *lane
	run   slots.Run
	done  atomic.Bool
	// shared says that somebody wants ch closed.
	shared atomic.Bool
	// counted: lane.open counts it. ordered: it cannot be taken back, because the
	// next one of its order relies on it.
	counted, ordered bool
	// carries: something goes with it.
	carries bool
	// moved: the answer, or what is left of it, is not in the slots, which are not
	// its request's any more.
	moved bool
	// idle: it is in the pool, and no request's.
	idle bool
	sink
	// res and err are written before done is stored, and not after, but for res of one that is arrived: under the list's mu.
	res []byte
	err error
	// waiter is the goroutine that waits for this future while another leads.
	waiter atomic.Pointer[follower]
	// block is what res is in, if that is a large answer to be read in place; nil when the
	// future is let go.
	block *attach.Block

	// tries, if not nil, is the request that this is the outcome of, by whichever try;
	// the future is in no lane's table then.
	tries *pursuit
	// arrived: it is in the list of the connection's arrived answers, between before and after. All are guarded by the list's mu.
	before, after *Future
	arrived       bool
	// forsaken: it was a part, and has been given up. An exchange that the answer is about is closed.
	forsaken bool

	closed  bool // ch is closed
	watched bool // Done's goroutine runs
	// stop ends the fetching of the rest of an answer. quit says that it is to end:
	// nobody wants the answer any more.
	quit bool
	stop context.CancelFunc
	ch   chan struct{}
	mu   sync.Mutex // guards what is above it, from closed on
	// epoch tells the answers apart that were read in place through this future.
	epoch atomic.Uint32
}

// sink says what becomes of an answer.
type sink struct {
	// dst is the buffer to append to, from its start; nil for a new slice.
	dst []byte
	// queue, if not nil, gets the outcome under tag. Nobody waits for the future,
	// which goes back into the pool.
	queue *Queue
	tag   uint64
	// again, if not nil, gets the outcome, and may send the request once more. Nobody
	// waits for the future, which goes back into the pool.
	again *pursuit
	// large, if it has an id, is the request's exchange, which is over when its handler has
	// returned: if it does not run, the exchange is to be closed.
	large exchangeName
	// inPlace leaves the answer in the slots: res is shared memory, and whoever
	// waits for the future frees the slots with letGo. It holds the connection's
	// gate from before the request is sent until then.
	inPlace bool
	// pending: that is so from when somebody waits for it, who enters the gate then. Until then
	// the answer may be moved out of the slots.
	pending bool
	// part: the request is a part of an exchange, and so is its answer.
	part bool
	// receipt: the answer says that the handler has returned, and has no data.
	receipt bool
}

func (f *Future) reset(m *Method, d *draft, to *sink) {
	f.m, f.route, f.lane = m, d.route, d.l
	// Field by field: to copy them as a whole the processor would have to wait for those that
	// have just been stored.
	f.run.Index, f.run.Len, f.run.Ticket = d.u.Index, d.u.Len, d.u.Ticket
	f.dst, f.inPlace, f.pending, f.part, f.receipt = to.dst, to.inPlace, to.pending, to.part, to.receipt
	f.queue, f.tag, f.again, f.large = to.queue, to.tag, to.again, to.large
	f.ordered, f.carries = d.h.Order != 0, d.extra > 0
	f.res, f.err = nil, nil
	f.stop, f.quit, f.moved, f.forsaken = nil, false, false, false
	if f.waiter.Load() != nil {
		f.waiter.Store(nil)
	}
	if !f.shared.Load() {
		// Nobody else looks at it before it is in the table.
		f.done = atomic.Bool{}
		f.idle = false
		return
	}
	// The last use had a channel, and its completer may still be about to
	// close it.
	f.mu.Lock()
	f.ch, f.closed, f.watched = nil, false, false
	f.shared.Store(false)
	f.done.Store(false)
	f.mu.Unlock()
	f.idle = false
}

// recycle puts a settled future that nobody else knows back into the pool.
func (f *Future) recycle() {
	f.sink = sink{}
	f.idle = true
	futures.Put(f)
}

// settled reports whether the outcome is known.
func (f *Future) settled() bool { return f.done.Load() }

// Wait waits for the outcome until ctx ends, in which case it returns a
// *DeadlineError and the future goes on: it may be waited for again. Any number
// of goroutines may wait, any number of times.
func (f *Future) Wait(ctx context.Context) ([]byte, error) {
	if !f.settled() {
		present(ctx)
		c := f.m.conn
		if c.gate.enter() {
			c.wait.until(ctx, f)
			c.gate.leave()
		} else {
			c.outcome(ctx, f)
		}
		if !f.settled() {
			return nil, f.m.late(ctx, true)
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
// true if it did so: the outcome is then ErrNotExecuted. Otherwise the answering node is
// asked to drop the request if its handler has not started, and the outcome tells: it is
// ErrNotExecuted if it was dropped. Ordered requests always go on.
func (f *Future) Cancel() bool {
	c := f.m.conn
	if f.settled() || !c.gate.enter() {
		return false
	}
	defer c.gate.leave()
	if f.tries != nil {
		return f.tries.cancel()
	}
	if !f.takeBack() {
		return false
	}
	f.complete(nil, f.m.cancelled())
	c.session.Wake() // whoever leads, and waits for this one, sleeps on the bell
	return true
}

// takeBack reports whether the request is taken back; the caller then completes the
// future. The caller holds the gate.
func (f *Future) takeBack() bool {
	if f.ordered {
		return false
	}
	s := &f.m.conn.spills
	s.mu.Lock()
	taken, revoked := f.withdraw()
	s.mu.Unlock()
	f.withdrawn(taken, revoked)
	return revoked
}

// withdrawn asks for what withdraw did not do itself. The future is not completed
// meanwhile, or the caller keeps it from being used again.
func (f *Future) withdrawn(taken, revoked bool) {
	switch {
	case revoked:
		f.notRun()
	case taken:
		f.m.conn.wait.recheck()
		f.callOff()
	}
}

// withdraw revokes the request and takes the future out of its lane's table, after which
// the caller completes it, unless it is too late for that. taken: nobody else was
// completing it. The caller holds spills.mu: answers that the daemon has moved are looked
// up in the table, but not while the future may come back to it.
func (f *Future) withdraw() (taken, revoked bool) {
	if f.lane.hold(f.run.Index, f.run.Ticket) == nil {
		return f.m.conn.spills.stray(f), false
	}
	if f.lane.revoke(f.run) {
		f.lane.drop(f)
		return true, true
	}
	f.lane.letGo(f)
	return true, false
}

func (m *Method) cancelled() error {
	return fmt.Errorf("%s: %w: cancelled", m.name, ErrNotExecuted)
}

// Between two looks whether a request that somebody had in hand is to be had.
const (
	firstLook = time.Millisecond
	lastLook  = 100 * time.Millisecond
)

// giveUp ends a call whose context has ended: it takes the request back, or
// leaves the future behind to receive the answer and free the slots. Nobody
// touches the caller's buffer after it has returned.
func (f *Future) giveUp(ctx context.Context) ([]byte, error) {
	c, sent := f.m.conn, true
	var held bool
	for pause := firstLook; ; pause = min(2*pause, lastLook) {
		c.spills.mu.Lock() // as in takeBack
		held = f.lane.hold(f.run.Index, f.run.Ticket) != nil
		if held || c.spills.stray(f) {
			break
		}
		c.spills.mu.Unlock()
		f.stopFetching()
		select {
		case <-f.channel(): // somebody is completing it at this moment
			if errors.Is(f.err, errUnwanted) {
				return nil, f.m.late(ctx, true)
			}
			if f.pending {
				return nil, f.err // its answer may be moved at this moment: Pending.Wait looks for it
			}
			return f.res, f.err
		case <-time.After(pause): // or was about to, and it was no answer
		}
	}
	f.mu.Lock()
	f.quit = true // the rest of a large answer is not fetched
	f.mu.Unlock()
	part, inside := f.part, f.inPlace // the caller holds the gate, which may be shut behind it
	f.sink, f.forsaken = sink{large: f.large}, part
	entered := inside || c.gate.enter()
	if entered && held {
		sent = f.ordered || !f.lane.revoke(f.run)
	}
	switch {
	case !held:
	case entered && sent:
		f.lane.letGo(f)
	default:
		f.lane.drop(f)
	}
	c.spills.mu.Unlock()
	if entered {
		if sent {
			c.wait.recheck()
			if !part && !errors.Is(ctx.Err(), context.DeadlineExceeded) { // which is known on the way
				f.callOff()
			}
		} else {
			f.notRun()
		}
		if !inside {
			c.gate.leave()
		}
	}
	return nil, f.m.late(ctx, sent)
}

// Release lets the library use the future again, which saves an allocation. It is
// called once, after the outcome was seen, by the last user; the answer slice stays
// valid. Before the outcome is known it does nothing, nor does a second call as long
// as no other request has the future; later a call, like any use of the future, would
// be about that request.
func (f *Future) Release() {
	if f.idle || f.tries != nil || !f.settled() {
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
// f out of the lane's table and calls the lane's freed afterwards.
func (f *Future) finish() {
	f.end(f.read())
}

// end completes the future with what was read.
func (f *Future) end(res []byte, err error) {
	if more, ok := err.(*moreError); ok {
		f.fetchRest(more)
		return
	}
	faultpoint.Here("answer.read")
	if f.large.id != 0 && errors.Is(err, ErrNotExecuted) {
		f.notRun()
	}
	if err == nil && f.pending && f.inPlace && !f.moved {
		if f.m.conn.arrived.settle(f, res) {
			return
		}
		res, f.inPlace = append([]byte{}, res...), false
	}
	if err != nil || !f.inPlace {
		f.consume()
		faultpoint.Here("answer.consumed")
	}
	f.complete(res, err)
}

// consume frees the slots, if they are still the request's.
func (f *Future) consume() {
	if !f.moved {
		f.lane.due.credit(f.run.Len)
		f.lane.ring.Consume(f.run)
	}
}

// letGo frees the slots of an answer that was read in place, or the block of a large one.
func (f *Future) letGo() {
	f.block.Release()
	f.block = nil
	if f.inPlace && !f.moved {
		f.lane.due.credit(f.run.Len)
		f.lane.ring.Consume(f.run)
		f.lane.freed(f.run.Len)
	}
	f.res = nil
	f.recycle()
}

// complete must be the last use of f by whoever has taken it.
func (f *Future) complete(res []byte, err error) {
	if q, tag := f.queue, f.tag; q != nil {
		f.recycle()
		q.push(tag, Result{res, err})
		return
	}
	if p := f.again; p != nil {
		p.over(f, res, err)
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

// abandoned gives the outcome of a request whose daemon is gone. The caller holds
// spills.mu.
func (f *Future) abandoned(cause error) {
	switch l := f.lane; {
	case l.ring.Acquire(f.run, f.m.conn.id):
		n := f.run.Len
		f.finish()
		l.freed(n)
	case f.m.conn.spills.has(f):
		f.finishMoved()
	case l.revoke(f.run), cause == errLaneLost && l.ring.Word(f.run.Index) == slots.MakeWord(slots.Claim, f.run.Len, f.m.conn.id, f.run.Ticket):
		// SYNC POINT (lane closed): laneClosed has stored the state before this look at the word. Who publishes the request
		// after it finds the lane closed and takes the request back, from a lane that no daemon looks at.
		f.complete(nil, fmt.Errorf("%s: %w: %w", f.m.name, ErrNotExecuted, cause))
	default:
		f.complete(nil, fmt.Errorf("%s: %w: %w", f.m.name, ErrMaybeExecuted, cause))
	}
}
