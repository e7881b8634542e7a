package daemon

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"time"

	"github.com/rdmad/rdmad/internal/attach"
	"github.com/rdmad/rdmad/internal/fabrics"
	"github.com/rdmad/rdmad/internal/peerauth"
	"github.com/rdmad/rdmad/internal/peerproto"
	"github.com/rdmad/rdmad/internal/printable"
	"github.com/rdmad/rdmad/internal/turnstile"
	"github.com/rdmad/rdmad/shm"
)

// session is an established bootstrap connection to a peer.
type session struct {
	link        *link
	conn        *peerauth.Channel
	reader      *bufio.Reader
	incarnation string
	core        int64  // which core of the incarnation
	id, lost    uint64 // see peerproto.Hello
	fabric      *fabrics.Fabric
	offered     []string // the fabrics that this node has offered for it
	dialler     string   // the name of the node that dialled
	clock       peerClock
	traces      bool // the peer answers to a trace
	carries     bool // the peer knows slots.FlagCarry
	// done: nothing comes over it any more; forgotten, later: its lanes rest, and its link
	// has none or another one.
	done, forgotten chan struct{}
	// life ends as soon as somebody ends the session, or its connection does.
	life    context.Context
	endLife context.CancelFunc

	// repeated: what the peer knew of this node's regions has been said again;
	// resumed: the peer has said its part, and named, which has room for one: it is at it.
	repeated, resumed, named chan struct{}

	// cut: it has ended while this node drained, and the peer may wait for answers; guarded by conductor.mu.
	cut bool

	// opening bounds the lanes that the peer has opened at a time, and asking those that
	// this node opens: fewer, so that the peer always reads the answers to its own.
	opening, asking chan struct{}
	// breaking does the same for those that it says are broken, and draining for what there is to do each time it says
	// that it takes no requests any more, or takes them again.
	breaking, draining chan struct{}

	writing    sync.Mutex // one frame at a time
	publishing sync.Mutex // one directory at a time
	// They belong to publishing. saidDrain is the number of the drain that the peer has been told of, 0 if it knows the node
	// in service; nextDirectory: not before this is it told again what the node serves.
	saidDrain     uint64
	nextDirectory time.Time
	// stale has room for one: what this node serves has changed, and a goroutine is to tell the peer.
	stale chan struct{}

	// listed and changed are when the peer has last said what it serves, and whether it takes requests. They belong to who reads.
	listed, changed time.Time

	mu      sync.Mutex
	known   bool // resumed is closed
	err     error
	seq     uint64
	pending map[uint64]chan *peerproto.Message
	// forsaken has the openings whose answers nobody waits for any more, by their numbers: see forsake.
	forsaken map[uint64]*peerproto.Lane
	// awaited has for each connection that is just being made how to give that up.
	awaited map[awaitedEnd]context.CancelCauseFunc
	// answers are the frames that a goroutine is to write, if there are any, and unread is how many bytes those and the ones
	// have that it is writing.
	answers []byte
	unread  int
}

const (
	maxOpening = 32
	maxAsking  = 16
)

// hello introduces this node to the peer of l.
func (c *conductor) hello(l *link) *peerproto.Message {
	return &peerproto.Message{Type: peerproto.TypeHello, Hello: &peerproto.Hello{
		Magic: peerproto.Magic, Protocol: peerproto.Version, ABI: shm.ABIVersion, Node: c.node,
		Incarnation: c.incarnation, Core: c.core, Fabrics: l.offers(), Now: shm.Nanotime(), Traces: true, Clocks: true,
	}}
}

// checkPeer judges a hello.
func (c *conductor) checkPeer(m *peerproto.Message) (*peerproto.Hello, error) {
	h := m.Hello
	switch {
	case m.Type == peerproto.TypeReject:
		return nil, fmt.Errorf("the peer refuses: %s", printable.Limited(m.Reason, peerauth.MaxText))
	case m.Type != peerproto.TypeHello || h == nil || h.Magic != peerproto.Magic:
		return nil, fmt.Errorf("%w: not the hello of an rdmad", peerproto.ErrFrame)
	case h.Protocol != peerproto.Version:
		return nil, fmt.Errorf("%w: node %s has peer protocol %d, node %s has %d", attach.ErrVersion, printable.Text(h.Node), h.Protocol, c.node, peerproto.Version)
	}
	if err := shm.CheckABI(h.ABI); err != nil {
		return nil, fmt.Errorf("%w: node %s has %s, node %s has %s", attach.ErrVersion, printable.Text(h.Node), abiText(h.ABI), c.node, abiText(shm.ABIVersion))
	}
	return h, nil
}

// dial connects to the link's peer and does the handshake.
func (l *link) dial(ctx context.Context) (*session, error) {
	ctx, cancel := context.WithTimeout(ctx, peerauth.Handshake)
	defer cancel()
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", l.dialled())
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(l.conductor.ctx, func() { _ = conn.Close() })
	defer stop()
	s, err := l.handshake(ctx, conn)
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	return s, nil
}

func (l *link) handshake(ctx context.Context, conn net.Conn) (*session, error) {
	deadline, _ := ctx.Deadline()
	if err := conn.SetDeadline(deadline); err != nil {
		return nil, err
	}
	c := l.conductor
	ch, err := c.guard.Outgoing(ctx, conn, peerauth.Dialled{Node: l.name, Address: l.dialled()})
	if err != nil {
		return nil, err
	}
	hello := c.hello(l)
	hello.Hello.Session = rand.Uint64() | 1
	c.mu.Lock()
	hello.Hello.Lost = l.lost
	c.mu.Unlock()
	sent := hello.Hello.Now
	// A peer that refuses this node's certificate says so after the handshake of
	// TLS, perhaps before this is written.
	werr := peerproto.Write(ch, hello)
	r := bufio.NewReader(ch)
	m, err := peerproto.Read(r, peerproto.MaxHello)
	back := shm.Nanotime()
	if err != nil {
		return nil, peerauth.ExplainAnswer(l.name, ch, err)
	}
	h, err := c.checkPeer(m)
	if err != nil {
		return nil, err
	}
	if werr != nil {
		return nil, werr
	}
	if h.Node != l.name {
		return nil, fmt.Errorf("the node at %s is %q, the config calls it %q", l.dialled(), printable.Text(h.Node), l.name)
	}
	clock := peerproto.EstimateClock(sent, back, h.Now)
	if h.Clocks {
		if clock, err = peerproto.RefineClock(ch, r, clock); err != nil {
			return nil, err
		}
	}
	if err := peerproto.Write(ch, &peerproto.Message{Type: peerproto.TypeReady, Clock: -clock.Offset}); err != nil {
		return nil, err
	}
	return newSession(l, ch, r, h, hello.Hello, clock.Offset)
}

// newSession makes the session that the handshake has agreed on: h is what the peer
// said, mine what this node did.
func newSession(l *link, ch *peerauth.Channel, r *bufio.Reader, h, mine *peerproto.Hello, clock int64) (*session, error) {
	dialled, taken := mine, h
	if mine.Session == 0 {
		dialled, taken = h, mine
	}
	f, err := l.conductor.commonFabric(dialled, taken)
	if err != nil {
		return nil, err
	}
	if err := ch.SetDeadline(time.Time{}); err != nil {
		return nil, err
	}
	if t, ok := ch.Raw.(*net.TCPConn); ok {
		if err := watchPeer(t); err != nil {
			return nil, err
		}
	}
	life, endLife := context.WithCancel(context.Background())
	s := &session{
		link:        l,
		conn:        ch,
		life:        life,
		endLife:     endLife,
		reader:      r,
		incarnation: h.Incarnation,
		core:        h.Core,
		id:          dialled.Session,
		lost:        h.Lost,
		dialler:     dialled.Node,
		fabric:      f,
		offered:     mine.Fabrics,
		traces:      h.Traces,
		carries:     shm.MinorOf(h.ABI) >= carryMinor,
		done:        make(chan struct{}),
		forgotten:   make(chan struct{}),
		repeated:    make(chan struct{}),
		resumed:     make(chan struct{}),
		named:       make(chan struct{}, 1),
		stale:       make(chan struct{}, 1),
		opening:     make(chan struct{}, maxOpening),
		asking:      make(chan struct{}, maxAsking),
		breaking:    make(chan struct{}, maxOpening),
		draining:    make(chan struct{}, maxOpening),
		pending:     make(map[uint64]chan *peerproto.Message),
		forsaken:    make(map[uint64]*peerproto.Lane),
		awaited:     make(map[awaitedEnd]context.CancelCauseFunc),
	}
	s.clock.offset, s.clock.compared = clock, shm.Nanotime()
	return s, nil
}

// acceptPeers takes bootstrap connections of peers.
func (c *conductor) acceptPeers(ln net.Listener) {
	// Connections that have not said who they are yet are bounded in number
	// and in time.
	var waiting turnstile.Lobby
	var gate turnstile.Turnstile
	for {
		conn, err := ln.Accept()
		if err != nil {
			if c.acceptAgain("peers", err) {
				continue
			}
			return
		}
		if !gate.Enter(conn.RemoteAddr()) {
			c.note(conn.RemoteAddr(), "bootstrap connection refused", peerauth.ErrTooOften)
			_ = conn.Close()
			continue
		}
		waiting.Enter(conn, turnstile.HostOf(conn.RemoteAddr()), peerauth.MaxWaiting)
		if !c.spawn(func() {
			defer waiting.Leave(conn)
			s, err := c.welcome(conn)
			if err != nil {
				c.refuse(conn, err)
				return
			}
			waiting.Leave(conn)
			gate.Return(conn.RemoteAddr())
			c.refusals.Forget(turnstile.HostOf(conn.RemoteAddr()))
			s.link.adopt(s)
		}) {
			waiting.Leave(conn)
			_ = conn.Close()
		}
	}
}

// welcome does the accepting side of the handshake.
func (c *conductor) welcome(conn net.Conn) (*session, error) {
	stop := context.AfterFunc(c.ctx, func() { _ = conn.Close() })
	defer stop()
	if err := conn.SetDeadline(time.Now().Add(peerauth.Handshake)); err != nil {
		return nil, err
	}
	ch, err := c.guard.Incoming(c.ctx, conn)
	if err != nil {
		return nil, err
	}
	r := bufio.NewReader(ch)
	m, err := peerproto.Read(r, peerproto.MaxHello)
	if err != nil {
		return nil, peerauth.ExplainHello(ch, err)
	}
	h, err := c.checkPeer(m)
	if err == nil {
		err = c.admitPeer(h.Node, ch)
	}
	if err != nil {
		_ = peerproto.Write(ch, &peerproto.Message{Type: peerproto.TypeReject, Reason: err.Error()})
		return nil, err
	}
	l := c.allLinks()[h.Node]
	if l == nil { // it was taken out of the configuration just now
		return nil, errNoPeer
	}
	mine := c.hello(l)
	if _, err := c.commonFabric(h, mine.Hello); err != nil {
		_ = peerproto.Write(ch, &peerproto.Message{Type: peerproto.TypeReject, Reason: err.Error()})
		return nil, err
	}
	if err := peerproto.Write(ch, mine); err != nil {
		return nil, err
	}
	if m, err = peerproto.AnswerClocks(ch, r); err != nil {
		return nil, peerauth.ExplainHello(ch, err)
	}
	if m.Type != peerproto.TypeReady {
		return nil, fmt.Errorf("%w: %q instead of ready", peerproto.ErrFrame, printable.Text(string(m.Type)))
	}
	return newSession(l, ch, r, h, mine.Hello, m.Clock)
}

// send writes one message.
func (s *session) send(m *peerproto.Message) error {
	var frame bytes.Buffer
	if err := peerproto.Write(&frame, m); err != nil {
		return err
	}
	return s.write(frame.Bytes())
}

// ask sends a question and waits for its answer.
func (s *session) ask(ctx context.Context, m *peerproto.Message) (*peerproto.Message, error) {
	s.number(m)
	return s.askNumbered(ctx, m)
}

// number gives a question the number that its answer will have.
func (s *session) number(m *peerproto.Message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seq++
	m.Seq = s.seq
}

// askNumbered is ask for a question that has its number.
func (s *session) askNumbered(ctx context.Context, m *peerproto.Message) (*peerproto.Message, error) {
	answer := make(chan *peerproto.Message, 1)
	s.mu.Lock()
	if s.err != nil {
		defer s.mu.Unlock()
		return nil, s.err
	}
	s.pending[m.Seq] = answer
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		delete(s.pending, m.Seq)
		s.mu.Unlock()
	}()
	if err := s.send(m); err != nil {
		return nil, err
	}
	var err error
	var a *peerproto.Message
	select {
	case a = <-answer:
	case <-s.done:
		err = s.Reason()
	case <-ctx.Done():
		err = fmt.Errorf("no answer from node %s: %w", s.link.name, ctx.Err())
	}
	if err != nil && s.forsake(m) {
		return nil, err
	}
	if err != nil {
		a = <-answer // one that has come counts, and is just being handed over: the peer may do something, or wait, because of it
	}
	if a.Type == peerproto.TypeRefuse {
		return nil, fmt.Errorf("node %s refuses: %s", s.link.name, printable.Limited(a.Reason, peerauth.MaxText))
	}
	return a, nil
}

// Reason returns why the session is over; nil while it lives.
func (s *session) Reason() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// end closes the session; serve then returns.
func (s *session) end(err error) {
	s.mu.Lock()
	if s.err == nil {
		s.err = err
	}
	s.mu.Unlock()
	s.endLife()
	// Not the TLS connection: its farewell would wait for a peer that reads nothing.
	// Frames have lengths, so that a lost end is not taken for an end.
	_ = s.conn.Raw.Close()
}

// within returns a context for what takes the peer's part, and limit at most: it ends with ctx, and with the session,
// for the next one waits until nothing of this one is under way.
func (s *session) within(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	stop := context.AfterFunc(s.life, cancel)
	return ctx, func() {
		stop()
		cancel()
	}
}

// serve handles the peer's messages until the session ends.
func (s *session) serve() {
	var err error
	for err == nil {
		var m *peerproto.Message
		if m, err = peerproto.Read(s.reader, peerproto.MaxFrame); err == nil {
			err = s.handle(m)
		}
	}
	s.end(fmt.Errorf("bootstrap connection: %w", err))
	close(s.done)
}

// spawn has a goroutine do what a message asks for. The peer is not listened to while as many as there is
// room for in some are at it.
func (s *session) spawn(some chan struct{}, do func()) error {
	select {
	case some <- struct{}{}:
	case <-s.life.Done():
		return s.Reason()
	}
	if !s.link.conductor.spawn(func() {
		defer func() { <-some }()
		do()
	}) {
		return errStopping
	}
	return nil
}

func (s *session) handle(m *peerproto.Message) error {
	c := s.link.conductor
	switch m.Type {
	case peerproto.TypeDirectory:
		s.rest(&s.listed, directoryFloor)
		return s.link.learn(s, m.Directory)
	case peerproto.TypeDrain:
		if follow := s.link.peerDrains(s, m.Seq); follow != nil {
			s.rest(&s.changed, serviceFloor)
			return s.spawn(s.draining, follow)
		}
	case peerproto.TypeUndrain:
		if follow := s.link.peerUndrains(s); follow != nil {
			s.rest(&s.changed, serviceFloor)
			return s.spawn(s.draining, follow)
		}
	case peerproto.TypeDrained:
		s.link.peerDrained(s, m.Seq)
	case peerproto.TypeOpen:
		if m.Lane == nil {
			return fmt.Errorf("%w: open without a lane", peerproto.ErrFrame)
		}
		return s.spawn(s.opening, func() { c.acceptLane(s, m) }) // which takes openTimeout at most
	case peerproto.TypeBroken:
		if m.Lane == nil {
			return fmt.Errorf("%w: broken without a lane", peerproto.ErrFrame)
		}
		return s.spawn(s.breaking, func() { c.laneBroken(s, m) }) // which takes a turn of an agent
	case peerproto.TypeExport, peerproto.TypeUnexport, peerproto.TypeRevoke:
		return c.peerRegion(s, m)
	case peerproto.TypeGone:
		return c.peerGone(s, m)
	case peerproto.TypeTrace:
		return c.peerTrace(s, m)
	case peerproto.TypeRepeated:
		c.peerRepeated(s)
	case peerproto.TypePing:
		return s.answer(&peerproto.Message{Type: peerproto.TypePong, Seq: m.Seq, Clock: shm.Nanotime()})
	case peerproto.TypeAccept, peerproto.TypeRefuse, peerproto.TypePong, peerproto.TypeExported, peerproto.TypeUnexported, peerproto.TypeNoted, peerproto.TypeTraced:
		s.mu.Lock()
		answer, lane := s.pending[m.Seq], s.forsaken[m.Seq]
		delete(s.pending, m.Seq)
		delete(s.forsaken, m.Seq)
		s.mu.Unlock()
		switch {
		case answer != nil:
			answer <- m
		case lane != nil && m.Type == peerproto.TypeAccept:
			return s.tellForsaken(lane, m.Seq)
		}
	default:
		return fmt.Errorf("%w: unknown message %q", peerproto.ErrFrame, printable.Text(string(m.Type)))
	}
	return nil
}
