package daemon

import "fmt"

// peerRegion deals with a message about a region of a peer.
func (c *conductor) peerRegion(s *session, m *peerMessage) error {
	switch {
	case m.Region == nil:
		return fmt.Errorf("%w: %s without a region", errFrame, m.Type)
	case m.Type == peerExport:
		return c.imported(s, m)
	case m.Type == peerUnexport:
		return c.returned(s, m)
	}
	if d := c.domainNamed(m.Region.Domain); d != nil {
		b := c.bulkWith(d, s.link.name)
		d.agent.commands.call(func() { b.view.revoked(d.view, m.Region.id()) })
	}
	return nil
}

// imported notes a region that a peer exports to a domain, and answers.
func (c *conductor) imported(s *session, m *peerMessage) error {
	d := c.domainNamed(m.Region.Domain)
	if d == nil {
		return s.send(&peerMessage{Type: peerRefuse, Seq: m.Seq, Reason: fmt.Sprintf("node %s has no domain %q", c.node, printable(m.Region.Domain))})
	}
	b := c.bulkWith(d, s.link.name)
	ok := false
	d.agent.commands.call(func() { ok = b.view.imported(m.Region.id(), m.Region.Key) })
	if !ok {
		return s.send(&peerMessage{Type: peerRefuse, Seq: m.Seq, Reason: fmt.Sprintf("node %s knows %d regions of domain %s already", c.node, maxImports, d.name)})
	}
	select {
	case s.named <- struct{}{}:
	default:
	}
	return s.send(&peerMessage{Type: peerExported, Seq: m.Seq})
}

// returned forgets a region that a peer takes back, and answers when no handler can
// reach it any more.
func (c *conductor) returned(s *session, m *peerMessage) error {
	answer := func() {
		if err := s.send(&peerMessage{Type: peerUnexported, Seq: m.Seq}); err != nil {
			s.end(err)
		}
	}
	d := c.domainNamed(m.Region.Domain)
	if d == nil {
		answer()
		return nil
	}
	b := c.bulkWith(d, s.link.name)
	// As a rule nobody uses it: then this goroutine answers, and listens to a peer no more that does not listen.
	unused := false
	d.agent.commands.call(func() {
		asking := true
		b.view.withdrawn(m.Region.id(), func() {
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
	return nil
}
