package daemon

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/rdmad/rdmad/internal/agent"
	"github.com/rdmad/rdmad/internal/peerauth"
	"github.com/rdmad/rdmad/internal/peerproto"
	"github.com/rdmad/rdmad/internal/printable"
)

// sessionOf returns the session of a connection: agents only pass it on.
func sessionOf(o agent.Opening) *session { return o.Session.(*session) }

// tellBroken tells the peer that this node's end of the connection is gone. A
// reliable connection of an RDMA device does not: its other end learns it when it
// sends, and one that only waits never does. incoming: this node's end is the one
// that requests come in by.
func (d *domain) tellBroken(o agent.Opening, l *laneInfo, incoming bool, why string) {
	s := sessionOf(o)
	err := s.send(&peerproto.Message{
		Type: peerproto.TypeBroken, Seq: o.Seq, Reason: why, Lane: &peerproto.Lane{Domain: d.name, Class: l.Class, Number: l.Number, Incoming: incoming},
	})
	if err != nil {
		s.end(fmt.Errorf("cannot tell of a lane's end: %w", err))
	}
}

// awaitedEnd names a connection whose other end is waited for by the question that it is made with: of this node, or of the peer.
type awaitedEnd struct {
	own bool
	seq uint64
}

// awaits notes how to give up waiting for the peer's end of a connection, in case it says that there will be none: also before
// what it has answered is read. It returns what is to be called when that is over.
func (s *session) awaits(e awaitedEnd, giveUp context.CancelCauseFunc) (over func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.awaited[e] = giveUp
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.awaited, e)
	}
}

// giveUp gives up waiting for the peer's end of a connection, if anybody does.
func (s *session) giveUp(e awaitedEnd, why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if giveUp := s.awaited[e]; giveUp != nil {
		giveUp(why)
	}
}

// maxForsaken bounds the openings whose answers nobody waits for: of a peer that never answers the last ones.
const maxForsaken = 64

// forsake notes that nobody waits any more for the answer to a question, and returns false if that has come already. A peer that
// accepts a connection later waits for this node's end of it, and is told that there will be none.
func (s *session) forsake(m *peerproto.Message) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pending[m.Seq] == nil {
		return false
	}
	delete(s.pending, m.Seq)
	if m.Type != peerproto.TypeOpen {
		return true
	}
	if len(s.forsaken) == maxForsaken {
		delete(s.forsaken, slices.Min(slices.Collect(maps.Keys(s.forsaken))))
	}
	s.forsaken[m.Seq] = &peerproto.Lane{Domain: m.Lane.Domain, Class: m.Lane.Class, Number: m.Lane.Number, Bulk: m.Lane.Bulk}
	return true
}

// tellForsaken tells a peer that has accepted an opening too late.
func (s *session) tellForsaken(l *peerproto.Lane, seq uint64) error {
	return s.answer(&peerproto.Message{Type: peerproto.TypeBroken, Seq: seq, Reason: "accepted too late", Lane: l})
}

// errTold is wrapped by why an end of a lane is taken down of which the peer's end has gone.
var errTold = errors.New("the peer has closed the lane")

// laneBroken takes this node's end of a connection down after the peer's end has
// gone, or does not wait for that any more. Connections that were opened since are left alone.
func (c *conductor) laneBroken(s *session, m *peerproto.Message) {
	if m.Lane.Bulk {
		c.bulkBroken(s, m)
		return
	}
	d := c.domainNamed(m.Lane.Domain)
	if d == nil {
		return
	}
	key := laneKey{s.link.name, m.Lane.Class, m.Lane.Number}
	gone := agent.Opening{Session: s, Seq: m.Seq}
	c.mu.Lock()
	out, in := d.outs[key], d.ins[key]
	c.mu.Unlock()
	why := fmt.Errorf("%w: %s", errTold, printable.Limited(m.Reason, peerauth.MaxText))
	switch {
	case m.Lane.Incoming && out != nil:
		s.giveUp(awaitedEnd{own: true, seq: m.Seq}, why)
		d.agent.Commands.Call(func() {
			if l := out.lane; l.End != nil && l.End.Opening == gone {
				l.Fail("connection lost", why)
			}
		})
	case !m.Lane.Incoming && in != nil:
		s.giveUp(awaitedEnd{seq: m.Seq}, why)
		d.agent.Commands.Call(func() {
			if l := in.lane; l.End != nil && l.End.Opening == gone {
				l.Fail("connection lost", why)
			}
		})
	}
}
