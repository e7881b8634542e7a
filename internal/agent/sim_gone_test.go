package agent

import "github.com/rdmad/rdmad/internal/peerproto"

// tellGone follows conductor.tellGone.
func (n *simNode) tellGone(told []Absence) {
	if n.session == nil {
		return
	}
	for _, a := range told {
		for _, l := range n.lanes {
			if l.id == a.Lane && a.Mirror != 0 {
				n.w.count("caller gone: told")
				n.session.send(n.peer, simMessage{kind: peerproto.TypeGone, gone: a, number: l.number})
			}
		}
	}
}

// gone follows domain.callerGone.
func (n *simNode) gone(m *simMessage) {
	w := n.w
	list, err := DecodeSent(EncodeSent(m.gone.Sent), simGeometry)
	if err != nil {
		w.fail("names of requests: %v", err)
	}
	for _, l := range n.lanes {
		if !l.fromPeer || l.number != m.number || l.dropping || l.in.Mirror.Load() != m.gone.Mirror {
			continue
		}
		w.log("%v: caller %d is gone, %d requests", l, m.gone.Caller, len(list))
		if !n.do("gone", func() { l.in.Gone(uint16(m.gone.Caller), list) }) {
			return
		}
		w.count("caller gone: heard")
		for _, s := range list {
			if rec := &l.in.records[s.index]; !rec.seen || rec.ticket != s.ticket {
				continue // a later core does not know that it is to be dropped when it arrives
			}
			for _, c := range w.calls {
				if c.lane.node == n.peer && c.lane.toPeer && c.lane.number == l.number && !c.abandoned && c.run.Index == s.index && c.run.Ticket == s.ticket && c.stage == published {
					c.forsake()
				}
			}
		}
	}
}

// forsaken notes that a caller of a local lane is gone.
func (l *simLane) forsaken(caller int) {
	for _, c := range l.node.w.calls {
		if c.lane == l && c.client.id == caller && c.orphan && c.stage == published {
			c.forsake()
		}
	}
}

// forsake notes that the answering end knows that nobody waits for the request: it must not
// start any more, unless it is to be executed all the same.
func (c *simCall) forsake() {
	w := c.lane.node.w
	if !c.orphan {
		w.fail("%v: its client is taken for dead", c)
	}
	if c.started == 0 && !c.oneway && c.order == 0 {
		w.count("caller gone: dropped")
		c.forsaken = true
	}
}
