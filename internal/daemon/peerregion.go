package daemon

import (
	"fmt"

	"github.com/rdmad/rdmad/internal/agent"
	"github.com/rdmad/rdmad/internal/peerproto"
	"github.com/rdmad/rdmad/internal/printable"
)

// peerRegion deals with a message about a region of a peer.
func (c *conductor) peerRegion(s *session, m *peerproto.Message) error {
	switch {
	case m.Region == nil:
		return fmt.Errorf("%w: %s without a region", peerproto.ErrFrame, m.Type)
	case m.Type == peerproto.TypeExport:
		return c.imported(s, m)
	case m.Type == peerproto.TypeUnexport:
		c.returned(s, m)
		return nil
	}
	if d := c.domainNamed(m.Region.Domain); d != nil {
		b := c.bulkWith(d, s.link.name)
		d.agent.Commands.Call(func() { b.view.Revoked(m.Region.ID()) })
	}
	return nil
}

// imported notes a region that a peer exports to a domain, and answers if it was asked: a peer that names its regions again
// awaits no answers, and with many on both nodes each would wait for the other to read.
func (c *conductor) imported(s *session, m *peerproto.Message) error {
	answer := func(a peerproto.Message) error {
		if m.Seq == 0 {
			return nil
		}
		a.Seq = m.Seq
		return s.answer(&a)
	}
	d := c.domainNamed(m.Region.Domain)
	if d == nil {
		return answer(peerproto.Message{Type: peerproto.TypeRefuse, Reason: fmt.Sprintf("node %s has no domain %q", c.node, printable.Text(m.Region.Domain))})
	}
	b := c.bulkWith(d, s.link.name)
	ok := false
	d.agent.Commands.Call(func() { ok = b.view.Imported(m.Region.ID(), m.Region.Key) })
	if !ok {
		return answer(peerproto.Message{Type: peerproto.TypeRefuse, Reason: fmt.Sprintf("node %s knows %d regions of domain %s already, or this one with another size, or has not given it back yet", c.node, agent.MaxImports, d.name)})
	}
	select {
	case s.named <- struct{}{}:
	default:
	}
	return answer(peerproto.Message{Type: peerproto.TypeExported})
}

// returned forgets a region that a peer takes back, and answers when no handler can
// reach it any more.
func (c *conductor) returned(s *session, m *peerproto.Message) {
	answer := func() {
		if err := s.answer(&peerproto.Message{Type: peerproto.TypeUnexported, Seq: m.Seq}); err != nil {
			s.end(err)
		}
	}
	d := c.domainNamed(m.Region.Domain)
	if d == nil {
		answer()
		return
	}
	b := c.bulkWith(d, s.link.name)
	// As a rule nobody uses it: then no goroutine is needed, and a peer is listened to no more that leaves very many answers.
	unused := false
	d.agent.Commands.Call(func() {
		asking := true
		b.view.Withdrawn(m.Region.ID(), func() {
			if asking {
				unused = true
			} else {
				c.spawn(answer)
			}
		})
		asking = false
	})
	if unused {
		answer()
	}
}
