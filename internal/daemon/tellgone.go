package daemon

import (
	"context"
	"fmt"
	"time"

	"github.com/rdmad/rdmad/internal/agent"
	"github.com/rdmad/rdmad/internal/attach"
	"github.com/rdmad/rdmad/internal/faultpoint"
	"github.com/rdmad/rdmad/internal/peerproto"
	"github.com/rdmad/rdmad/slots"
)

// When a worker has been buried, what it has asked others for is nobody's any more. Its
// node tells the nodes that have requests of it, and they their processes: so its slots
// are not in use until handlers have finished that nobody waits for. A message that is
// lost costs time and nothing else. See docs/protocol.md.

// goneTimeout is how long the id of a caller that is gone is kept for a peer that does not
// say that it has heard.
const goneTimeout = 10 * time.Second

// tellGone tells the answering ends of lanes of callers that are gone. The ids of those
// callers are not used again before the peers have heard: what one that had it has begun
// must not be taken for another's.
func (c *conductor) tellGone(d *domain, told []agent.Absence, notices []agent.Notice) {
	d.notify(notices)
	type message struct {
		session *session
		caller  int
		m       *peerproto.Message
	}
	var list []message
	c.mu.Lock()
	for _, a := range told {
		info := d.lanes[a.Lane]
		if info == nil || a.Mirror == 0 {
			continue
		}
		l := c.links[info.Peer]
		if l == nil || l.session == nil {
			continue // what is left is told when the lane is open again
		}
		d.leaving[a.Caller]++
		list = append(list, message{l.session, a.Caller, &peerproto.Message{Type: peerproto.TypeGone, Caller: a.Caller, Lane: &peerproto.Lane{
			Domain: d.name, Class: info.Class, Number: info.Number, Mirror: a.Mirror, Sent: agent.EncodeSent(a.Sent),
		}}})
	}
	c.mu.Unlock()
	for _, g := range list {
		done := func() {
			c.mu.Lock()
			if d.leaving[g.caller]--; d.leaving[g.caller] == 0 {
				delete(d.leaving, g.caller)
			}
			c.mu.Unlock()
		}
		if !c.spawn(func() {
			defer done()
			ctx, cancel := context.WithTimeout(c.ctx, goneTimeout)
			defer cancel()
			if _, err := g.session.ask(ctx, g.m); err != nil {
				c.over(g.session)
			}
		}) {
			done()
		}
	}
}

// over waits until a session that has ended is not its link's any more: its lanes are
// suspended.
func (c *conductor) over(s *session) {
	for {
		c.mu.Lock()
		current, changed := s.link.session == s, c.changed
		c.mu.Unlock()
		if !current || s.Reason() == nil {
			return
		}
		select {
		case <-changed:
		case <-c.ctx.Done():
			return
		}
	}
}

// notify tells service processes of callers that are gone. One that does not read is told
// nothing.
func (d *domain) notify(notices []agent.Notice) {
	for _, n := range notices {
		d.conductor.mu.Lock()
		w := d.workers[n.Worker.ID]
		d.conductor.mu.Unlock()
		if w == nil || w.view != n.Worker {
			continue
		}
		err := w.conn.Offer(&attach.Message{Type: attach.TypeGone, Lane: &attach.Lane{ID: n.Lane}, Gone: &attach.Gone{
			Caller: n.Caller, At: n.At, Calls: agent.EncodeSent(n.Calls),
		}})
		if err != nil {
			d.conductor.log.Debug().Err(err).Int("worker", w.id).Msg("a process is not told that a caller is gone")
		}
	}
}

// peerGone deals with a peer's message that a caller is gone. It is answered when nothing
// of that caller is taken for another's any more.
func (c *conductor) peerGone(s *session, m *peerproto.Message) error {
	if m.Lane == nil || m.Caller < 1 || m.Caller > slots.MaxOwner {
		return fmt.Errorf("%w: gone without a caller or a lane", peerproto.ErrFrame)
	}
	faultpoint.Here("gone.heard")
	if d := c.domainNamed(m.Lane.Domain); d != nil && d.use() {
		err := d.callerGone(s, m)
		d.using.RUnlock()
		if err != nil {
			return err
		}
	}
	return s.answer(&peerproto.Message{Type: peerproto.TypeNoted, Seq: m.Seq})
}

// callerGone does what the message says, unless it is about another end of the lane.
func (d *domain) callerGone(s *session, m *peerproto.Message) error {
	c, key := d.conductor, laneKey{s.link.name, m.Lane.Class, m.Lane.Number}
	c.mu.Lock()
	in := d.ins[key]
	c.mu.Unlock()
	if in == nil {
		return nil
	}
	list, err := agent.DecodeSent(m.Lane.Sent, in.info.Geometry)
	if err != nil {
		return err
	}
	var notices []agent.Notice
	d.agent.Commands.Call(func() {
		if !in.lane.Dropped && in.lane.Mirror.Load() == m.Lane.Mirror && !d.view.Retired {
			notices = in.lane.Gone(uint16(m.Caller), list)
		}
	})
	d.notify(notices)
	faultpoint.Here("gone.notified")
	return nil
}
