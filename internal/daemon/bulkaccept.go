package daemon

import (
	"errors"
	"fmt"

	"github.com/rdmad/rdmad/internal/fabric"
	"github.com/rdmad/rdmad/internal/peerproto"
	"github.com/rdmad/rdmad/internal/printable"
)

// acceptBulk makes the answering end of a peer's connection for operations.
func (c *conductor) acceptBulk(s *session, m *peerproto.Message) error {
	d := c.domainNamed(m.Lane.Domain)
	if d == nil {
		return fmt.Errorf("node %s has no domain %q", c.node, printable.Text(m.Lane.Domain))
	}
	if len(m.Lane.Address) > fabric.MaxAddress {
		return fmt.Errorf("%w: a connection without a usable address", peerproto.ErrFrame)
	}
	b := c.bulkWith(d, s.link.name)
	e := &passiveEnd{agent: d.agent, tag: c.tags.Add(1), opening: opening{s, m.Seq}}
	// The peer opens one when it has none. What it has sent by the last one does not
	// happen any more when it hears that there is another.
	d.agent.commands.call(func() {
		if p := b.view.passive; p != nil && s.reason() == nil {
			p.close(d.agent)
			b.view.passive = nil
		}
	})
	b.mu.Lock()
	err := b.prepare(s)
	if err == nil {
		e.ep, err = b.pd.CreateEndpoint(fabric.EndpointAttr{CQ: d.agent.cqs[s.fabric.number], Tag: e.tag, SendDepth: 1, RecvDepth: 1, Peer: b.peer})
	}
	if err == nil {
		b.accepting.Add(1) // not after suspend: the session has ended then, and prepare says so
	}
	b.mu.Unlock()
	if err != nil {
		return err
	}
	defer b.accepting.Done()
	ctx, cancel := s.within(c.ctx, openTimeout)
	defer cancel()
	err = s.send(&peerproto.Message{Type: peerproto.TypeAccept, Seq: m.Seq, Lane: &peerproto.Lane{Address: e.ep.Address()}})
	if err == nil {
		err = e.ep.Connect(ctx, m.Lane.Address, fabric.Passive)
	}
	if err == nil {
		e.onBroken = func(err error) { c.spawn(func() { e.opening.tellBulkBroken(d, true, err) }) }
		d.agent.commands.call(func() { err = b.view.accept(e) })
	}
	if err != nil {
		d.agent.commands.call(func() { _ = e.ep.Close() })
		e.opening.tellBulkBroken(d, true, err)
	}
	return nil
}

// accept makes e the peer's connection, in place of the last one.
func (p *agentPeer) accept(e *passiveEnd) error {
	if err := e.opening.session.reason(); err != nil {
		return err
	}
	if p.mover.domain.retired {
		return errRetired
	}
	if p.passive != nil {
		p.passive.close(e.agent)
	}
	p.passive = nil
	if err := e.ep.Activate(); err != nil {
		return err
	}
	p.passive = e
	e.agent.ends[e.tag] = e
	return nil
}

// tellBulkBroken is tellBroken for a connection for operations.
func (o opening) tellBulkBroken(d *domain, incoming bool, why error) {
	err := o.session.send(&peerproto.Message{
		Type: peerproto.TypeBroken, Seq: o.seq, Reason: why.Error(), Lane: &peerproto.Lane{Domain: d.name, Class: laneBulk, Bulk: true, Incoming: incoming},
	})
	if err != nil {
		o.session.end(fmt.Errorf("cannot tell of a connection's end: %w", err))
	}
}

// bulkBroken is laneBroken for a connection for operations.
func (c *conductor) bulkBroken(s *session, m *peerproto.Message) {
	d := c.domainNamed(m.Lane.Domain)
	if d == nil {
		return
	}
	b := c.bulkWith(d, s.link.name)
	gone := opening{s, m.Seq}
	why := errors.New("the peer has closed it: " + printable.Limited(m.Reason, maxRefusalText))
	d.agent.commands.call(func() {
		switch end, p := b.view.mover.end, b.view.passive; {
		case m.Lane.Incoming && end != nil && end.opening == gone:
			b.view.mover.broken(why)
		case !m.Lane.Incoming && p != nil && p.opening == gone:
			p.close(d.agent)
			b.view.passive = nil
		}
	})
}
