package client

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// pursuit is a request of a method with Idempotent for whose outcome nobody waits on the
// goroutine that sends it: a copy of it, and what it takes to send that again.
type pursuit struct {
	m   *Method
	req []byte
	// to says what becomes of the outcome: it goes to the queue, or else completes outer.
	to    sink
	outer *Future
	// ctx ends with the deadline of the request, with the connection, and by stop.
	ctx  context.Context
	stop context.CancelFunc
	// tries belongs to whoever makes a try, and then to whoever completes it.
	tries tries

	mu sync.Mutex
	// under is the try that is under way, if one is. Whoever completes it takes it out
	// before anything else can use the future.
	under     *Future
	cancelled bool
}

// pursue sends a request, as often as it takes, and returns the future of its outcome; nil
// if a queue gets it. An error means that the request was not accepted.
func (m *Method) pursue(ctx context.Context, req []byte, to *sink) (*Future, error) {
	present(ctx)
	c := m.conn
	if err := m.checkAgain(); err != nil {
		return nil, err
	}
	if !c.gate.enter() {
		return nil, m.closed()
	}
	defer c.gate.leave()
	if err := c.kept.take(ctx, m, len(req)); err != nil {
		return nil, err
	}
	p := &pursuit{m: m, req: append([]byte(nil), req...), to: *to}
	if end, ok := ctx.Deadline(); ok {
		p.ctx, p.stop = context.WithDeadline(c.life, end)
	} else {
		p.ctx, p.stop = context.WithCancel(c.life)
	}
	if to.queue != nil {
		to.queue.expect()
	} else {
		p.outer = &Future{m: m, tries: p}
	}
	outer := p.outer
	if err := p.tries.repeat(ctx, m, func(m *Method) error { return p.send(ctx, m) }); err != nil {
		p.stop()
		c.kept.give(len(p.req))
		if to.queue != nil {
			to.queue.forget()
		}
		c.session.Wake() // whoever leads, and waits for room for a copy, sleeps on the bell
		return nil, err
	}
	return outer, nil
}

// send makes a try. The caller holds the gate.
func (p *pursuit) send(ctx context.Context, m *Method) error {
	_, err := m.send(ctx, p.req, &sink{dst: p.to.dst, receipt: p.to.receipt, again: p})
	return err
}

// began notes the future of a try, which is about to be sent.
func (p *pursuit) began(f *Future) {
	p.mu.Lock()
	p.under = f
	p.mu.Unlock()
}

// unsent takes began back.
func (p *pursuit) unsent() { p.began(nil) }

// over takes the outcome of a try. The leader calls it: it must not block.
func (p *pursuit) over(f *Future, res []byte, err error) {
	r := f.route
	p.mu.Lock()
	p.under = nil
	cancelled := p.cancelled
	p.mu.Unlock()
	f.recycle()
	switch {
	case err == nil || cancelled || !p.tries.failed(r, err):
		p.settle(res, p.tries.outcome(err))
	case !p.m.conn.gate.enter():
		p.settle(nil, p.tries.outcome(p.m.lostConn())) // there is no other try
	default:
		go p.again(err)
	}
}

// again is a goroutine that makes further tries until one is under way. It holds the gate,
// and p.ctx ends its waits.
func (p *pursuit) again(last error) {
	c := p.m.conn
	defer c.gate.leave()
	err := p.tries.pause(p.ctx, p.m, last)
	if err == nil {
		err = p.tries.repeat(p.ctx, p.m.patient(), func(m *Method) error { return p.send(p.ctx, m) })
	}
	if err == nil {
		return
	}
	if errors.Is(err, ErrDeadline) && errors.Is(p.ctx.Err(), context.Canceled) {
		// It is no deadline that has ended it.
		if err = p.m.cancelled(); c.ended.Load() {
			err = p.m.lostConn()
		}
	}
	p.settle(nil, p.tries.outcome(err))
	c.wait.recheck() // whoever leads, and waits for this one, sleeps on the bell
}

// settle gives the request its outcome.
func (p *pursuit) settle(res []byte, err error) {
	p.stop()
	// The copy is not needed any more, though the future that has it may be kept for long.
	n := len(p.req)
	p.req, p.to.dst = nil, nil
	p.m.conn.kept.give(n)
	if q := p.to.queue; q != nil {
		q.push(p.to.tag, Result{res, err})
		return
	}
	p.outer.complete(res, err)
}

// cancel is Future.Cancel: it takes back the try that is under way, and there is no other.
func (p *pursuit) cancel() bool {
	// In this order, because answers that were moved are delivered with spills.mu held;
	// and p.mu keeps the try from being completed and used again.
	s := &p.m.conn.spills
	s.mu.Lock()
	p.mu.Lock()
	p.cancelled = true
	f, taken, revoked := p.under, false, false
	if f != nil {
		taken, revoked = f.withdraw()
	}
	s.mu.Unlock()
	if f != nil {
		f.withdrawn(taken, revoked)
	}
	p.mu.Unlock()
	if !revoked {
		p.stop() // a wait between tries, if it is in one
		return false
	}
	maybe := p.tries.maybe
	f.complete(nil, p.m.cancelled())
	p.m.conn.session.Wake() // as in Future.Cancel
	return !maybe
}

const (
	// keptMost bounds the copies of requests that a connection keeps, in bytes.
	keptMost = 64 << 20
	// keptLeast is what a copy counts at least.
	keptLeast = 1 << 10
)

// kept bounds the copies of requests that a connection keeps for sending them again: while
// none of its tries is under way a request holds no slots, and would be bounded by nothing.
type kept struct {
	mu    sync.Mutex
	bytes int
	// room is settled when there is room for more; nil if nobody waits.
	room *Future
}

// take waits until a copy of n bytes may be kept, of which there may always be one. The
// caller holds the gate.
func (k *kept) take(ctx context.Context, m *Method, n int) error {
	n = max(n, keptLeast)
	c := m.conn
	for {
		k.mu.Lock()
		if k.bytes == 0 || k.bytes+n <= keptMost {
			k.bytes += n
			k.mu.Unlock()
			return nil
		}
		if k.room == nil {
			k.room = new(Future)
		}
		room := k.room
		k.mu.Unlock()
		if m.opts.noWait {
			return fmt.Errorf("client: %s: %w: this process keeps %d bytes of requests to send again", m.name, ErrBackpressure, keptMost)
		}
		// Whoever gives room back ends the wait: this one leads meanwhile, if nobody
		// else does, so that answers are taken in.
		either, stop := context.WithCancel(ctx)
		unhook := context.AfterFunc(c.life, stop)
		c.wait.until(either, room)
		unhook()
		stop()
		switch {
		case c.ended.Load():
			return m.closed()
		case ctx.Err() != nil:
			return m.late(ctx, false)
		}
	}
}

// give says that a copy of n bytes is kept no more.
func (k *kept) give(n int) {
	k.mu.Lock()
	k.bytes -= max(n, keptLeast)
	room := k.room
	k.room = nil
	k.mu.Unlock()
	if room != nil {
		room.complete(nil, nil)
	}
}
