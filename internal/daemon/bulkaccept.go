package daemon

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/rdmad/rdmad/internal/agent"
	"github.com/rdmad/rdmad/internal/fabric"
	"github.com/rdmad/rdmad/internal/peerauth"
	"github.com/rdmad/rdmad/internal/peerproto"
	"github.com/rdmad/rdmad/internal/printable"
)

// acceptance is the making of the answering end of a peer's connection for operations.
type acceptance struct {
	session *session
	seq     uint64
	cancel  context.CancelFunc
	over    chan struct{}
}

// errOutdated is returned for a connection after which the peer has asked for another.
var errOutdated = errors.New("the peer has asked for a newer connection")

// accepting begins to make the answering end of a connection. The peer asks for one when it has none: the last one
// is over when accepting returns, made or not, and what was sent by it does not happen any more when the peer hears that
// there is another.
func (b *bulk) accepting(s *session, seq uint64, cancel context.CancelFunc) (*acceptance, error) {
	b.mu.Lock()
	last := b.accept
	if last != nil && last.session == s && seq <= last.seq {
		b.mu.Unlock()
		return nil, errOutdated
	}
	a := &acceptance{session: s, seq: seq, cancel: cancel, over: make(chan struct{})}
	b.accept = a
	b.mu.Unlock()
	if last != nil {
		last.cancel()
		<-last.over
	}
	b.closePassive(s)
	return a, nil
}

// acceptBulk makes the answering end of a peer's connection for operations.
func (c *conductor) acceptBulk(s *session, m *peerproto.Message) error {
	d := c.domainNamed(m.Lane.Domain)
	if d == nil {
		return fmt.Errorf("node %s has no domain %q", c.node, printable.Text(m.Lane.Domain))
	}
	if len(m.Lane.Address) > fabric.MaxAddress {
		return fmt.Errorf("%w: a connection without a usable address", peerproto.ErrFrame)
	}
	ctx, cancel := s.within(c.ctx, openTimeout)
	defer cancel()
	ctx, giveUp := context.WithCancelCause(ctx)
	defer giveUp(nil)
	b := c.bulkWith(d, s.link.name)
	a, err := b.accepting(s, m.Seq, cancel)
	if err != nil {
		return err
	}
	accepted := sync.OnceFunc(func() { close(a.over) })
	defer accepted()
	e := &agent.PassiveEnd{Agent: d.agent, Tag: c.tags.Add(1), Opening: agent.Opening{Session: s, Seq: m.Seq}}
	b.mu.Lock()
	err = b.prepare(s)
	if err == nil {
		e.Endpoint, err = b.pd.CreateEndpoint(fabric.EndpointAttr{CQ: d.agent.CQs[s.fabric.Number], Tag: e.Tag, SendDepth: 1, Peer: b.peer})
	}
	if err == nil {
		b.connecting.Add(1) // not after suspend: the session has ended then, and prepare says so
	}
	b.mu.Unlock()
	if err != nil {
		return err
	}
	connected := sync.OnceFunc(b.connecting.Done)
	defer connected()
	defer s.awaits(awaitedEnd{seq: m.Seq}, giveUp)()
	fabric.Expect(e.Endpoint, m.Lane.Address)
	err = s.send(&peerproto.Message{Type: peerproto.TypeAccept, Seq: m.Seq, Lane: &peerproto.Lane{
		Address: e.Endpoint.Address(), NoAtomics: !s.fabric.Device.Caps().Atomics,
	}})
	if err == nil {
		if err = e.Endpoint.Connect(ctx, m.Lane.Address, fabric.Passive); errors.Is(err, context.Canceled) {
			err = context.Cause(ctx)
		}
	}
	if err == nil {
		e.OnBroken = func(err error) { c.spawn(func() { d.tellBulkBroken(e.Opening, true, err) }) }
		d.agent.Commands.Call(func() {
			if err = context.Cause(ctx); err == nil { // else the peer's end may be gone already
				err = b.view.Accept(e)
			}
		})
	}
	if err != nil {
		d.agent.Commands.Call(func() { _ = e.Endpoint.Close() })
		connected()
		accepted() // before the peer is told, which may not read it
		d.tellBulkBroken(e.Opening, true, err)
	}
	return nil
}

// tellBulkBroken is tellBroken for a connection for operations.
func (d *domain) tellBulkBroken(o agent.Opening, incoming bool, why error) {
	s := sessionOf(o)
	err := s.send(&peerproto.Message{
		Type: peerproto.TypeBroken, Seq: o.Seq, Reason: why.Error(), Lane: &peerproto.Lane{Domain: d.name, Class: laneBulk, Bulk: true, Incoming: incoming},
	})
	if err != nil {
		s.end(fmt.Errorf("cannot tell of a connection's end: %w", err))
	}
}

// bulkBroken is laneBroken for a connection for operations.
func (c *conductor) bulkBroken(s *session, m *peerproto.Message) {
	d := c.domainNamed(m.Lane.Domain)
	if d == nil {
		return
	}
	b := c.bulkWith(d, s.link.name)
	gone := agent.Opening{Session: s, Seq: m.Seq}
	why := errors.New("the peer has closed it: " + printable.Limited(m.Reason, peerauth.MaxText))
	s.giveUp(awaitedEnd{own: m.Lane.Incoming, seq: m.Seq}, why)
	d.agent.Commands.Call(func() {
		switch end, p := b.view.Mover.End, b.view.Passive; {
		case m.Lane.Incoming && end != nil && end.Opening == gone:
			b.view.Mover.Broken(why)
		case !m.Lane.Incoming && p != nil && p.Opening == gone:
			p.Close(d.agent)
			b.view.Passive = nil
		}
	})
}
