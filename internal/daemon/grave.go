package daemon

import (
	"errors"
	"sync/atomic"

	"github.com/rdmad/rdmad/internal/agent"
	"github.com/rdmad/rdmad/internal/event"
)

// A region that a peer could reach is given back when its registration is closed. With some devices what the peer has
// begun goes on after that (fabric.Caps.LateAccess), also where meanwhile other memory would be. So there stays memory of
// nobody's until the connection is closed by which the peer could have come.

// grave is the place of such a region.
type grave struct {
	left atomic.Int32 // who still needs it
	end  func() error
}

// maxGraves is how many of them a connection may have: each may be a mapping, of which a process has 65,530 unless the system
// is told otherwise. The peer makes another connection before, when nothing is under way (agent.RenewAfter); one that does
// not is cut off, and what is under way to it counts as on a connection that breaks.
var maxGraves = 2 * agent.RenewAfter

// leave is called by each who does not need it any more.
func (g *grave) leave(c *conductor) {
	if g.left.Add(-1) > 0 {
		return
	}
	if err := g.end(); err != nil {
		event.RegistrationClose.On(&c.log).Err(err).Msg("unmapping the place of a region")
	}
}

// visit is how a peer could still come to a region: in a session, over the connection there for its operations.
type visit struct {
	bulk    *bulk
	session *session
}

// bury gives up the memory of a region to which the visits lead.
func (r *region) bury(visits []visit) error {
	if len(visits) == 0 {
		return r.seg.Close()
	}
	c := r.domain.conductor
	end, err := r.seg.Shroud()
	if err != nil { // then nobody may come; and what is at the addresses now is not known
		for _, v := range visits {
			v.bulk.cutOff(v.session)
		}
		return err
	}
	g := &grave{end: end}
	g.left.Store(1)
	for _, v := range visits {
		v.bulk.inter(v.session, g)
	}
	g.leave(c)
	return nil
}

// inter keeps a grave until the connection is closed that the peer has in this session.
func (b *bulk) inter(s *session, g *grave) {
	b.mu.Lock()
	if b.session != s { // it is closed
		b.mu.Unlock()
		return
	}
	g.left.Add(1)
	b.graves = append(b.graves, g)
	full := len(b.graves) >= maxGraves
	b.mu.Unlock()
	if full {
		b.cutOff(s)
	}
}

// exhume gives up the graves of a session that are not needed once the connection is closed that there is in it. Called
// before that is done, it returns what is to be called afterwards.
func (b *bulk) exhume(s *session) (closed func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.session != s {
		return func() {}
	}
	graves := b.graves
	b.graves = nil
	return func() {
		for _, g := range graves {
			g.leave(b.domain.conductor)
		}
	}
}

// closePassive closes the connection that the peer has in a session, and returns it, or nil.
func (b *bulk) closePassive(s *session) (last *agent.PassiveEnd) {
	closed := b.exhume(s)
	b.domain.agent.Commands.Call(func() {
		if p := b.view.Passive; p != nil && p.Opening.Session == agent.Conversation(s) {
			p.Close(b.domain.agent)
			b.view.Passive, last = nil, p
		}
	})
	closed()
	return last
}

var errTooManyGraves = errors.New("regions were freed that this connection might still be used for: it is made anew")

// endAccept ends the making of a connection that the peer has asked for, if there is one.
func (b *bulk) endAccept() {
	b.mu.Lock()
	a := b.accept
	b.mu.Unlock()
	if a != nil {
		a.cancel()
		<-a.over
	}
}

// cutOff closes the peer's connection, also one that is just being made, which it could use already. The peer makes another
// one when it needs one.
func (b *bulk) cutOff(s *session) {
	b.endAccept()
	if last := b.closePassive(s); last != nil {
		b.domain.tellBulkBroken(last.Opening, true, errTooManyGraves)
	}
}
