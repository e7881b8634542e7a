package agent

import (
	"context"
	"fmt"

	"github.com/rdmad/rdmad/internal/fabric"
	"github.com/rdmad/rdmad/internal/peerproto"
)

// What the two conductors do about sessions and lanes, step by step, so that anything
// can come between: this follows session.go, link.go, lanes.go and reopen.go, whose own
// goroutines, waits and sockets have no place here.

// simSession is a connection between the two conductors.
type simSession struct {
	cut   bool
	inbox map[*simNode][]simMessage
}

type simMessage struct {
	kind     peerproto.Type
	conn     *simConn
	incoming bool // of broken
	gone     Absence
	number   int // of the lane of gone
}

// simConn is a connection of a lane, from the question for it to its end.
type simConn struct {
	session  *simSession
	seq      uint64
	out, in  *simLane
	p, q     *LaneEndpoint
	asked    uint64
	waiting  []SentRequest
	name     uint64
	verdicts []byte
	// joined: both ends have met. over: the asking end has given it up.
	joined, over bool
}

func (s *simSession) send(to *simNode, m simMessage) {
	if !s.cut {
		s.inbox[to] = append(s.inbox[to], m)
	}
}

// cut ends the present connection between the conductors; they notice when they do.
// What is on its way may get lost.
func (n *simNode) cut() {
	for _, x := range [...]*simNode{n, n.peer} {
		if s := x.session; s != nil && !s.cut {
			s.cut = true
			for _, x := range [...]*simNode{n, n.peer} {
				s.inbox[x] = s.inbox[x][:n.w.n(len(s.inbox[x])+1)]
			}
		}
	}
}

func (n *simNode) cutSession() {
	n.w.log("%s: the session is cut", n.name)
	n.w.count("session: cut")
	n.cut()
}

// linkAct does one thing of the conductor's, or all that can be done when all is calm.
func (n *simNode) linkAct() {
	w := n.w
	if n.core == nil || n.paused > 0 {
		return
	}
	if w.calm {
		for range 4 {
			n.noticeCut()
			n.connect()
			for n.receive() {
			}
			for _, l := range n.lanes {
				n.open(l)
				n.joinIncoming(l)
			}
		}
		return
	}
	for range 1 + w.n(3) {
		switch k := w.n(6); {
		case n.core == nil:
		case k == 0:
			n.noticeCut()
		case k == 1:
			n.connect()
		case k < 4 && n.receive():
		case len(n.lanes) > 0:
			l := n.lanes[w.n(len(n.lanes))]
			if k%2 == 0 {
				n.open(l)
			} else {
				n.joinIncoming(l)
			}
		}
	}
}

// noticeCut follows link.serveSession at the end of a session.
func (n *simNode) noticeCut() {
	if n.session == nil || !n.session.cut || n.core == nil || len(n.session.inbox[n]) > 0 && !n.w.chance(500) {
		return
	}
	n.session = nil
	n.w.log("%s: notices that the session is over", n.name)
	n.do("suspend", func() {
		for _, l := range n.lanes {
			switch {
			case l.toPeer:
				l.out.Suspend()
			case l.fromPeer:
				l.in.Suspend()
			}
		}
	})
	for _, l := range n.lanes {
		n.abandon(l)
	}
}

// abandon gives up what is being made of a lane's connection.
func (n *simNode) abandon(l *simLane) {
	c := l.conn
	if c == nil {
		return
	}
	l.conn = nil
	if n.core == nil {
		c.over = true
		return // the end has gone with the core
	}
	switch {
	case l.toPeer && l.out.End != c.p:
		_ = c.p.Release()
	case l.fromPeer && l.in.End != c.q:
		_ = c.q.Release()
	}
	if l.toPeer {
		c.over = true
	}
}

// connect makes a session if there is none. It follows link.adopt and serveSession.
func (n *simNode) connect() {
	if n.core == nil || n.peer.core == nil || n.peer.paused > 0 || n.session != nil && !n.session.cut {
		return
	}
	for _, x := range [...]*simNode{n, n.peer} {
		if x.session != nil {
			// A newer connection replaces what there was.
			x.session.cut, x.session.inbox[x] = true, nil
			x.noticeCut()
		}
		if x.core == nil {
			return
		}
	}
	n.w.count("session: made")
	n.w.log("a session")
	s := &simSession{inbox: make(map[*simNode][]simMessage)}
	for _, x := range [...]*simNode{n, n.peer} {
		x.session = s
		again := x.known != 0 && x.known != x.peer.incarnation
		x.known = x.peer.incarnation
		if again && !x.lost("started anew") {
			return
		}
	}
}

// lost follows conductor.lanesLost. False: the core has died.
func (n *simNode) lost(why string) bool {
	n.w.log("%s: gives up what is under way to and from its peer: %s", n.name, why)
	for _, l := range n.lanes {
		l.losses++
		if l.toPeer {
			l.forgotten = true
		}
	}
	for _, l := range n.peer.lanes {
		if l.toPeer {
			l.forgotten = true // it finds another mirror
		}
	}
	return n.do("lost", func() {
		for _, l := range n.lanes {
			if l.toPeer {
				l.out.Down(why)
			}
		}
		for _, l := range n.lanes {
			if l.fromPeer {
				l.in.Down()
			}
		}
	})
}

// holdOut is the end of node.link_hold at one end.
func (n *simNode) holdOut() {
	n.noticeCut()
	if n.core == nil || n.session != nil {
		return
	}
	n.w.count("hold: over")
	n.lost("link_hold")
}

// open follows outgoing.open until the question is sent.
func (n *simNode) open(l *simLane) {
	w := n.w
	if n.core == nil || !l.toPeer || n.session == nil || n.session.cut || l.out.End != nil {
		return
	}
	late := l.conn // broken has not been there yet
	if late != nil && !late.joined {
		return
	}
	w.names++
	c := &simConn{session: n.session, seq: w.names, out: l, p: n.endpoint(l)}
	l.conn = c
	n.do("ask", func() { c.waiting, c.asked = l.out.Outstanding(), l.out.Mirror.Load() })
	if n.core == nil {
		return
	}
	w.log("%v: asks for mirror %d, %d requests wait", l, c.asked, len(c.waiting))
	c.session.send(n.peer, simMessage{kind: peerproto.TypeOpen, conn: c})
	if late != nil {
		late.over = true
		late.session.send(n.peer, simMessage{kind: peerproto.TypeBroken, conn: late})
	}
}

func (n *simNode) endpoint(l *simLane) *LaneEndpoint {
	n.core.tag++
	p, err := NewLaneEndpoint(n.core.dev, n.core.a.CQs[0], n.core.tag, l.ring, "")
	if err != nil {
		panic(err)
	}
	p.Endpoint.(*simEnd).lane = l
	return p
}

// receive handles a message of the peer's.
func (n *simNode) receive() bool {
	if n.core == nil || n.session == nil || len(n.session.inbox[n]) == 0 {
		return false
	}
	in := n.session.inbox[n]
	m := in[0]
	n.session.inbox[n] = in[1:]
	switch m.kind {
	case peerproto.TypeOpen:
		n.accept(m.conn)
	case peerproto.TypeAccept:
		n.accepted(m.conn)
	case peerproto.TypeBroken:
		n.broken(m.conn, m.incoming)
	case peerproto.TypeGone:
		n.gone(&m)
	}
	return true
}

// accept follows conductor.openIncoming and domain.findOrMakeMirror.
func (n *simNode) accept(c *simConn) {
	w := n.w
	waiting, err := DecodeSent(EncodeSent(c.waiting), simGeometry)
	if err != nil || fmt.Sprint(waiting) != fmt.Sprint(c.waiting) {
		w.fail("names of requests: %v, %v", waiting, err)
	}
	var l *simLane
	for _, have := range n.lanes {
		if have.fromPeer && have.number == c.out.number && !have.dropping {
			l = have
		}
	}
	w.names++
	name := w.names<<1 | 1
	if w.mutant == mutNameKept {
		name = 1
	}
	if l != nil && !n.answerQuery(c, l, waiting, name) {
		return
	}
	if l == nil || l.dropping {
		l = n.newLane(c.out.number)
		l.fromPeer, l.mirror = true, name
		if !n.do("new mirror", func() {
			l.in = NewInLane(n.core.d, l.id, l.ring, l.vault, n.core.a.GroupMax)
			l.in.Fresh(name)
			n.core.d.AddIn(l.in)
		}) {
			return
		}
	}
	n.abandon(l) // an older accept that never became a connection
	c.in, c.name, l.conn = l, l.mirror, c
	c.q = n.endpoint(l)
	w.log("%v: accepts as mirror %d, verdicts %v", l, c.name, c.verdicts)
	c.session.send(n.peer, simMessage{kind: peerproto.TypeAccept, conn: c})
}

// answerQuery decides whether the mirror goes on. False: the core has died.
func (n *simNode) answerQuery(c *simConn, l *simLane, waiting []SentRequest, name uint64) bool {
	quiet := false
	alive := n.do("query", func() {
		if n.w.mutant != mutOldConnectionOpen {
			l.in.Suspend()
		}
		if c.asked != 0 && c.asked == l.in.Mirror.Load() {
			if v, ok := l.in.Query(waiting); ok {
				c.verdicts = n.mutateVerdicts(l, v)
				return
			}
		}
		l.in.Down()
		if quiet = l.in.Busy == 0; quiet {
			l.in.Fresh(name)
		}
	})
	switch {
	case !alive:
		return false
	case c.verdicts != nil:
	case quiet:
		l.mirror = name
	default:
		l.dropping = true
	}
	return true
}

// accepted follows outgoing.open from the answer on.
func (n *simNode) accepted(c *simConn) {
	l, w := c.out, n.w
	if l.conn != c || l.out.End != nil {
		return
	}
	learned := n.do("learn", func() {
		if c.asked == c.name {
			if err := CheckVerdicts(c.verdicts, len(c.waiting)); err != nil {
				w.fail("%v: %v", l, err)
			}
			return
		}
		if c.asked != 0 && !l.forgotten {
			w.fail("%v: the mirror %d is %d, and nobody has had reason to forget anything", l, c.asked, c.name)
		}
		l.losses++
		l.out.Lost("the peer knows nothing of it any more")
		l.out.Mirror.Store(c.name)
	})
	if !learned {
		return
	}
	c.p.remote = c.q.MR.Remote()
	c.p.Endpoint.(*simEnd).seq, c.q.Endpoint.(*simEnd).seq = c.seq, c.seq
	if err := c.p.Endpoint.Connect(context.Background(), c.q.Endpoint.Address(), fabric.Active); err != nil || w.chance(w.rate.reset) {
		w.count("connection: not made")
		n.abandon(l)
		return
	}
	c.joined = true
	c.q.remote = c.p.MR.Remote()
	l.forgotten = false
	w.count("connection: made")
	w.log("%v: up, %d verdicts", l, len(c.verdicts))
	for _, v := range c.verdicts {
		w.count([...]string{"verdict: not seen", "verdict: executing", "verdict: answered"}[v])
	}
	var told []Absence
	n.do("up", func() {
		if err := l.out.Up(c.p); err == nil && c.verdicts != nil {
			l.out.Resync(c.waiting, c.verdicts)
		}
		told = l.out.Absences()
	})
	if n.core != nil {
		n.tellGone(told)
	}
}

// joinIncoming follows domain.raiseOrDiscard.
func (n *simNode) joinIncoming(l *simLane) {
	c := l.conn
	if n.core == nil || !l.fromPeer || c == nil || l.in.End == c.q {
		return
	}
	if w := n.w; w.mutant == mutOldConnectionOpen && c.joined && l.in.End != nil {
		l.in.End.close(n.core.a)
		l.in.End = nil
	}
	switch {
	case c.joined && l.in.End == nil && !l.dropping:
		n.do("up", func() { _ = l.in.Up(c.q) })
	case c.joined, c.over:
		_ = c.q.Release()
		l.conn = nil
		c.session.send(n.peer, simMessage{kind: peerproto.TypeBroken, conn: c, incoming: true})
	}
}

// notice follows outgoing.broken and its like, after anything that the core did.
func (n *simNode) notice() {
	if n.core == nil {
		return
	}
	for _, l := range n.lanes {
		c := l.conn
		switch {
		case c == nil || !c.joined || n.w.chance(800):
		case l.toPeer && l.out.End == nil:
			l.conn, c.over = nil, true
			c.session.send(n.peer, simMessage{kind: peerproto.TypeBroken, conn: c})
		case l.fromPeer && l.in.End == nil && c.q.Endpoint.(*simEnd).closed:
			l.conn = nil
			c.session.send(n.peer, simMessage{kind: peerproto.TypeBroken, conn: c, incoming: true})
		}
	}
}

// broken follows conductor.laneBroken.
func (n *simNode) broken(c *simConn, incoming bool) {
	n.do("broken", func() {
		switch {
		case incoming && c.out.conn == c && c.out.out.End == c.p:
			c.out.out.Fail("the peer has closed the lane", nil)
		case !incoming && c.in != nil && c.in.conn == c && c.in.in.End == c.q:
			c.in.in.Fail("the peer has closed the lane", nil)
		}
	})
}
