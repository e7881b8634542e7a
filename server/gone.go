package server

import (
	"context"
	"time"

	"github.com/rdmad/rdmad/internal/attach"
	"github.com/rdmad/rdmad/shm"
	"github.com/rdmad/rdmad/slots"
)

// caller is who makes requests: the lane by which they come, and the attach id at the
// other end of it.
type caller struct {
	lane uint16
	id   uint16
}

// openName makes the name of a request, never 0, that Call.open has while the handler
// runs: the lane, the slot and the lower bits of the ticket. It comes back when the slot
// has been used as often as these bits can count.
func openName(lane uint16, slot int, ticket uint64) uint64 {
	return 1<<63 | uint64(lane)<<51 | uint64(slot)<<27 | ticket&(1<<27-1)
}

// callerGone deals with the end of a caller, of which the daemon has told: nobody waits
// for its handlers and streams. It runs on the goroutine that reads what the daemon says.
func (s *Server) callerGone(lane uint16, g attach.Gone) {
	s.attached()
	if len(g.Calls) >= slots.NameSize {
		names := make(map[uint64]bool)
		for list := g.Calls; len(list) >= slots.NameSize; list = list[slots.NameSize:] {
			slot, ticket := slots.ReadName(list)
			names[openName(lane, slot, ticket)] = true
		}
		for _, c := range s.pool.calls() {
			c.callerGone(names)
		}
	}
	s.exchanges.callerGone(caller{lane, g.Caller}, g.At)
}

// calls returns those that the pool's workers use.
func (p *pool) calls() (list []*Call) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, b := range p.batches {
		if c := b.call.Load(); c != nil {
			list = append(list, c)
		}
	}
	return list
}

// callerGone ends the call's context if its request is one of those named.
func (c *Call) callerGone(names map[uint64]bool) {
	c.ending.Lock()
	defer c.ending.Unlock()
	name := c.open.Load()
	if name == 0 || !names[name] {
		return
	}
	c.gone.Store(name)
	if c.open.Load() != name {
		c.gone.Store(0) // the next one must not be taken for it
		return
	}
	if c.giveUp != nil {
		c.giveUp(ErrGivenUp)
	}
}

// makeContext makes the context of the call, whose handler runs.
func (c *Call) makeContext() {
	base, stop := c.server.base, context.CancelFunc(nil)
	if c.header.Deadline != 0 {
		base, stop = context.WithTimeout(base, time.Duration(c.header.Deadline-shm.Nanotime()))
	}
	ctx, giveUp := context.WithCancelCause(base)
	c.ctx = ctx
	c.cancel = func() {
		giveUp(nil)
		if stop != nil {
			stop()
		}
	}
	c.ending.Lock()
	defer c.ending.Unlock()
	if c.gone.Load() == c.open.Load() {
		giveUp(ErrGivenUp)
		return
	}
	c.giveUp = giveUp
}

// noMore ends the context that makeContext has made, if it has, when the handler has
// returned.
func (c *Call) noMore() {
	c.ending.Lock()
	c.giveUp = nil
	c.gone.Store(0)
	c.ending.Unlock()
	if c.cancel != nil {
		c.cancel()
	}
}

// callerGone ends the exchanges that the caller began before the time at, but for one-way messages that are all there: their handlers
// are run, by a request that is on its way, or the lease ends.
func (x *exchanges) callerGone(from caller, at int64) {
	x.mu.Lock()
	var list []*serverExchange
	for _, e := range x.open {
		switch {
		case e.from != from || e.began > at:
		case e.oneWay && e.request.whole(e.bytes):
			e.leftAt = shm.Nanotime()
		default:
			list = append(list, e)
		}
	}
	x.mu.Unlock()
	for _, e := range list {
		x.close(e)
	}
}
