package daemon

import (
	"context"
	"fmt"
	"time"

	"github.com/rdmad/rdmad/internal/agent"
	"github.com/rdmad/rdmad/internal/event"
	"github.com/rdmad/rdmad/internal/faultpoint"
)

// lanesOf returns the lanes between the domain and a peer.
func (d *domain) lanesOf(peer string) (outs []*outgoing, ins []*incoming) {
	d.conductor.mu.Lock()
	defer d.conductor.mu.Unlock()
	for k, o := range d.outs {
		if k.peer == peer {
			outs = append(outs, o)
		}
	}
	for k, in := range d.ins {
		if k.peer == peer {
			ins = append(ins, in)
		}
	}
	return outs, ins
}

// lanesSuspended closes the connections of all lanes to and from a peer, whose link is
// lost: what is under way waits for the link to come back.
//
// Those for operations on regions go first: once a call has its outcome, nothing of
// them lands any more.
func (c *conductor) lanesSuspended(peer string) {
	c.bulksWith(peer, (*bulk).suspend)
	for _, d := range c.allDomains() {
		outs, ins := d.lanesOf(peer)
		for _, o := range outs {
			o.mu.Lock()
			o.session = nil
			d.agent.Commands.Call(func() { o.lane.Suspend() })
			faultpoint.Here("suspend.out")
			o.mu.Unlock()
		}
		for _, in := range ins {
			d.agent.Commands.Call(func() { in.lane.Suspend() })
			faultpoint.Here("suspend.in")
		}
	}
}

// lanesLost gives everything up that is under way to and from a peer: it does not come
// back, or it knows nothing of it any more. Operations on regions end first.
func (c *conductor) lanesLost(peer, why string) {
	c.bulksWith(peer, (*bulk).lose)
	for _, d := range c.allDomains() {
		if !d.use() {
			continue // everything in it has its outcome
		}
		outs, ins := d.lanesOf(peer)
		for _, o := range outs {
			o.mu.Lock()
			d.agent.Commands.Call(func() {
				if o.lane.End == nil { // else the peer is back just now
					o.lane.Down(why)
				}
			})
			o.mu.Unlock()
		}
		for _, in := range ins {
			var notices []agent.Notice
			d.agent.Commands.Call(func() {
				if !in.lane.Dropped && in.lane.End == nil {
					notices = in.lane.Down()
				}
			})
			d.notify(notices)
		}
		d.using.RUnlock()
	}
}

// lanesReopened opens the suspended lanes to a peer whose link is back.
func (c *conductor) lanesReopened(s *session) {
	for _, d := range c.allDomains() {
		outs, _ := d.lanesOf(s.link.name)
		for _, o := range outs {
			c.spawn(func() { o.reopen(d, s) })
		}
	}
}

// reopen opens the lane again if it is suspended, until it is open, the session has
// ended, or what waits in it has waited long enough.
func (o *outgoing) reopen(d *domain, s *session) {
	c := d.conductor
	// This node's own regions may take long to register again, during which nobody fails to answer.
	if s.awaitRepeated(c.ctx) != nil {
		return
	}
	until := time.Now().Add(c.live().Node.LinkHold)
	// A peer that does not answer is not asked for longer than that, but once for
	// as long as an answer may take.
	ctx, cancel := context.WithTimeout(c.ctx, max(c.live().Node.LinkHold, answerTimeout))
	defer cancel()
	for wait := firstRetry; !o.closed(d); wait = min(2*wait, lastRetry) {
		err := o.open(ctx, d, s)
		if err == nil || s.Reason() != nil || c.ctx.Err() != nil {
			return
		}
		o.note(d, err)
		if time.Now().After(until) {
			if !d.use() {
				return // and its memory may be unmapped
			}
			defer d.using.RUnlock()
			o.mu.Lock()
			defer o.mu.Unlock()
			d.agent.Commands.Call(func() {
				if o.lane.End == nil {
					o.lane.Down("the lane could not be opened again: " + err.Error())
				}
			})
			return
		}
		select {
		case <-s.done:
			return
		case <-time.After(jitter(wait)):
		case <-c.ctx.Done():
			return
		}
	}
}

// closed reports whether nothing waits in the lane.
func (o *outgoing) closed(d *domain) bool {
	if !d.use() {
		return true
	}
	defer d.using.RUnlock()
	return o.lane.IsClosed()
}

// refusedHold is how long the loss of a link is held out while the peer's address refuses
// connections: its daemon is gone, and what it knew with it, unless somebody starts
// it again at once who has kept its memory. However long the link was lost before for another reason, that may be just now.
const refusedHold = 2 * time.Second

// hold gives up what waits for the link if it is not back in time. lost is the session
// that has ended.
func (l *link) hold(lost *session) {
	c := l.conductor
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if l.holding == lost {
			l.holding = nil // nothing waits for it any more
		}
	}()
	end := time.NewTimer(c.live().Node.LinkHold)
	defer end.Stop()
	for over := false; ; {
		c.mu.Lock()
		again, changed := l.holding != lost, c.changed
		refused := l.gone // an attempt that finds it so wakes this
		c.mu.Unlock()
		switch {
		case again:
			return
		case refused:
			c.lanesLost(l.name, fmt.Sprintf("node %s is gone: %v", l.name, lost.Reason()))
			return
		case over:
			event.LinkGivenUp.On(&c.log).Str("peer", l.name).Dur("hold", c.live().Node.LinkHold).Msg("the link does not come back; giving up what waits for it")
			c.lanesLost(l.name, fmt.Sprintf("node %s disconnected: %v", l.name, lost.Reason()))
			return
		}
		select {
		case <-changed:
		case <-end.C:
			over = true // unless it is back by now
		case <-c.ctx.Done():
			return
		}
	}
}
