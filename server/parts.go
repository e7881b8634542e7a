package server

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/rdmad/rdmad/slots"
)

// serveParts serves the parts that wait behind requests for which no worker is free.
// They want no handler, and handlers may be waiting for them. It reports whether there
// were any. Only the monitor calls it.
func (p *pool) serveParts(c *Call) bool {
	parts, room := p.takeParts()
	if len(parts) == 0 {
		if room {
			p.reported() // the daemon may have kept the parts back for want of it
		}
		return false
	}
	for _, h := range parts {
		p.serve(c, h)
	}
	p.mu.Lock()
	p.relieving = false
	p.unmapRetired()
	for _, h := range parts {
		p.up.Stage(h)
	}
	p.up.Publish()
	p.mu.Unlock()
	p.reported()
	return true
}

// takeParts takes what waits, keeps the requests for the workers, and returns the parts. room says that there
// is more of it for the daemon than before.
func (p *pool) takeParts() (parts []slots.Hint, room bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	closed := p.closed.Load()
	// What was taken out of the batches of workers that are inside handlers comes first, and when the
	// pool is shut what workers have left behind.
	left := p.again
	p.again = nil
	if closed {
		left = append(left, p.waiting...)
		p.waiting = nil
	}
	take := func() (h slots.Hint, ok bool) {
		if len(left) == 0 {
			h, ok = p.down.Pop()
			room = room || ok
			return h, ok
		}
		h, left = left[0], left[1:]
		return h, true
	}
	rescued := len(left)
	var first []slots.Hint // of them: they are older than what waits
	for k := range rescued + slots.HintEntries {
		h, ok := take()
		if !ok {
			break
		}
		switch part, opens := p.server.isPart(h); {
		case part && !(opens && closed), closed && !part && p.server.isRun(h):
			parts = append(parts, h)
		case k < rescued:
			first = append(first, h)
		default:
			p.waiting = append(p.waiting, h)
		}
	}
	if len(first) > 0 {
		p.waiting = append(first, p.waiting...)
	}
	p.sweepWaiting()
	if len(parts) > 0 {
		// Keeps the memory of the lanes. Counted as a worker that serves it would let
		// two workers sleep on the daemon's bell.
		p.relieving = true
	}
	return parts, room
}

// sweepWaiting drops the hints of requests that were taken back, now and then: while all workers are inside handlers there
// is no end to requests that callers make and cancel. mu is held.
func (p *pool) sweepWaiting() {
	if len(p.waiting) < max(slots.HintEntries, 2*p.swept) {
		return
	}
	p.waiting = slices.DeleteFunc(p.waiting, func(h slots.Hint) bool {
		r := p.server.lanes[int(h.Lane())%slots.MaxLanes].Load()
		if r == nil || h.Index() >= r.Geometry().Slots {
			return true
		}
		w := r.AnswerWord(h.Index())
		return w.State() != slots.Recv || w.Owner() != p.server.id || !h.TicketIs(w.Ticket())
	})
	p.swept = len(p.waiting)
}

const (
	// lingerLimit is how long a server that closes waits for callers to ask for the next
	// part of what its handlers have left for them, which on a busy machine takes a while.
	lingerLimit = 3 * time.Second
	// lingerMost bounds the wait for all of it: a caller may ask for little at a time.
	lingerMost = 15 * time.Second
)

// linger goes on serving parts when the pool is shut: the ends of streams, and large
// answers, are fetched by their callers after the handlers have returned. What has not
// begun is left to other processes, or refused where those do not have it: a large request.
func (p *pool) linger(c *Call, t *time.Ticker) {
	t.Reset(tick)
	var over, asked time.Time // when the last handler has returned, and the last part was asked for
	for {
		// In this order: a handler that returns leaves its answer before it is over.
		inside := p.inside()
		left, running := p.server.exchanges.left()
		running = running || inside
		if left == 0 && !running {
			return // else a handler keeps the server from its end, and somebody has to see to what comes
		}
		now := time.Now()
		if !running && over.IsZero() {
			over, asked = now, now
		}
		p.rescue() // what has been answered does not wait for the handler behind it
		// Before the judgement: this process may have been the one that did not run.
		if p.serveParts(c) {
			asked = now
		}
		if !over.IsZero() && (now.Sub(asked) > lingerLimit || now.Sub(over) > lingerMost) {
			return
		}
		select {
		case <-t.C:
		case <-p.server.session.Done():
			return
		}
	}
}

// inside reports whether a worker is inside a handler, which may leave a large answer.
func (p *pool) inside() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.serving > 0
}

// announce tells the daemon of an answer that is given outside a worker's batch.
func (p *pool) announce(h slots.Hint) {
	p.mu.Lock()
	p.up.Push(h)
	p.mu.Unlock()
	p.reported()
}

// entered waits until the exchanges are entered whose first parts had been picked when it was called, or one of the two
// contexts ends. It looks, instead of being told, because who picks has no time to tell anybody.
func (p *pool) entered(ctx, base context.Context) error {
	p.mu.Lock()
	picking := []*atomic.Uint64{&p.picking}
	for _, b := range p.batches {
		picking = append(picking, &b.picking)
	}
	p.mu.Unlock()
	t := time.NewTicker(tick)
	defer t.Stop()
	for _, w := range picking {
		// SYNC POINT (picking): pairs with serve. What is seen to be 0 has entered what it picked before, and what it picks
		// later is not taken from the daemon any more if Withdraw has returned.
		for w.Load() != 0 {
			select {
			case <-t.C:
			case <-base.Done():
				return ErrClosed
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
	return nil
}
