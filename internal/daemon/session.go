package daemon

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/rdmad/rdmad/internal/attach"
	"github.com/rdmad/rdmad/shm"
)

// session is an established bootstrap connection to a peer.
type session struct {
	link        *link
	conn        net.Conn
	reader      *bufio.Reader
	incarnation string
	dialler     string // the name of the node that dialled
	clock       int64  // what to add to the peer's clock to get ours
	done        chan struct{}

	// opening bounds the lanes that the peer has opened at a time.
	opening chan struct{}

	writing    sync.Mutex // one frame at a time
	publishing sync.Mutex // one directory at a time

	mu      sync.Mutex
	err     error
	seq     uint64
	pending map[uint64]chan *peerMessage
}

const (
	handshakeTimeout = 5 * time.Second
	peerWriteTimeout = 5 * time.Second
	maxOpening       = 32
)

func (c *conductor) hello() *peerMessage {
	return &peerMessage{Type: peerHello, Hello: &helloBody{
		Magic: peerMagic, Protocol: peerProtocol, ABI: shm.ABIVersion, Node: c.node,
		Incarnation: c.incarnation, Fabric: c.provider, Now: shm.Nanotime(),
	}}
}

// checkPeer judges a hello.
func (c *conductor) checkPeer(m *peerMessage) (*helloBody, error) {
	h := m.Hello
	switch {
	case m.Type == peerReject:
		return nil, fmt.Errorf("the peer refuses: %s", printable(m.Reason))
	case m.Type != peerHello || h == nil || h.Magic != peerMagic:
		return nil, fmt.Errorf("%w: not the hello of an rdmad", errFrame)
	case h.Protocol != peerProtocol:
		return nil, fmt.Errorf("%w: peer protocol %d, this daemon speaks %d", attach.ErrVersion, h.Protocol, peerProtocol)
	case h.Fabric != c.provider:
		return nil, fmt.Errorf("node %s uses fabric %q, this node %q: see rdmad doctor on both, or give both the same fabric.provider", printable(h.Node), printable(h.Fabric), c.provider)
	}
	if err := shm.CheckABI(h.ABI); err != nil {
		return nil, fmt.Errorf("%w: the peer has %w", attach.ErrVersion, err)
	}
	return h, nil
}

// dial connects to the link's peer and does the handshake.
func (l *link) dial(ctx context.Context) (*session, error) {
	ctx, cancel := context.WithTimeout(ctx, handshakeTimeout)
	defer cancel()
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", l.address)
	if err != nil {
		return nil, err
	}
	s, err := l.handshake(conn)
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	return s, nil
}

func (l *link) handshake(conn net.Conn) (*session, error) {
	if err := conn.SetDeadline(time.Now().Add(handshakeTimeout)); err != nil {
		return nil, err
	}
	c := l.conductor
	sent := shm.Nanotime()
	if err := writePeer(conn, c.hello()); err != nil {
		return nil, err
	}
	r := bufio.NewReader(conn)
	m, err := readPeer(r, maxHello)
	if err != nil {
		return nil, err
	}
	h, err := c.checkPeer(m)
	if err != nil {
		return nil, err
	}
	if h.Node != l.name {
		return nil, fmt.Errorf("the node at %s is %q, the config calls it %q", l.address, printable(h.Node), l.name)
	}
	// The peer read its clock somewhere between our two readings.
	clock := (sent+shm.Nanotime())/2 - h.Now
	if err := writePeer(conn, &peerMessage{Type: peerReady, Clock: -clock}); err != nil {
		return nil, err
	}
	return newSession(l, conn, r, h.Incarnation, c.node, clock)
}

func newSession(l *link, conn net.Conn, r *bufio.Reader, incarnation, dialler string, clock int64) (*session, error) {
	if err := conn.SetDeadline(time.Time{}); err != nil {
		return nil, err
	}
	if t, ok := conn.(*net.TCPConn); ok {
		// The kernel notices a dead peer; no timer of ours runs while idle.
		if err := t.SetKeepAliveConfig(net.KeepAliveConfig{Enable: true, Idle: 5 * time.Second, Interval: 2 * time.Second, Count: 3}); err != nil {
			return nil, err
		}
	}
	return &session{
		link: l, conn: conn, reader: r, incarnation: incarnation, dialler: dialler, clock: clock,
		done: make(chan struct{}), opening: make(chan struct{}, maxOpening), pending: make(map[uint64]chan *peerMessage),
	}, nil
}

// acceptPeers takes bootstrap connections of peers.
func (c *conductor) acceptPeers(ln net.Listener) {
	// Connections that have not said who they are yet are bounded in number
	// and in time.
	pending := make(chan struct{}, 64)
	for {
		conn, err := ln.Accept()
		if err != nil {
			if c.acceptAgain("peers", err) {
				continue
			}
			return
		}
		select {
		case pending <- struct{}{}:
		default:
			c.refused.Add(1)
			_ = conn.Close()
			continue
		}
		if !c.spawn(func() {
			s, err := c.welcome(conn)
			<-pending
			if err != nil {
				c.refused.Add(1)
				c.log.Warn().Err(err).Stringer("from", conn.RemoteAddr()).Msg("bootstrap connection refused")
				_ = conn.Close()
				return
			}
			s.link.adopt(s)
		}) {
			_ = conn.Close()
		}
	}
}

// welcome does the accepting side of the handshake.
func (c *conductor) welcome(conn net.Conn) (*session, error) {
	stop := context.AfterFunc(c.ctx, func() { _ = conn.Close() })
	defer stop()
	if err := conn.SetDeadline(time.Now().Add(handshakeTimeout)); err != nil {
		return nil, err
	}
	r := bufio.NewReader(conn)
	m, err := readPeer(r, maxHello)
	if err != nil {
		return nil, err
	}
	h, err := c.checkPeer(m)
	if err == nil && c.links[h.Node] == nil {
		err = fmt.Errorf("node %q is not a [[peer]] of node %s", printable(h.Node), c.node)
	}
	if err != nil {
		_ = writePeer(conn, &peerMessage{Type: peerReject, Reason: err.Error()})
		return nil, err
	}
	if err := writePeer(conn, c.hello()); err != nil {
		return nil, err
	}
	if m, err = readPeer(r, maxHello); err != nil {
		return nil, err
	}
	if m.Type != peerReady {
		return nil, fmt.Errorf("%w: %q instead of ready", errFrame, printable(string(m.Type)))
	}
	return newSession(c.links[h.Node], conn, r, h.Incarnation, h.Node, m.Clock)
}

// send writes one message.
func (s *session) send(m *peerMessage) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	if err := s.conn.SetWriteDeadline(time.Now().Add(peerWriteTimeout)); err != nil {
		return err
	}
	return writePeer(s.conn, m)
}

// ask sends a question and waits for its answer.
func (s *session) ask(ctx context.Context, m *peerMessage) (*peerMessage, error) {
	answer := make(chan *peerMessage, 1)
	s.mu.Lock()
	if s.err != nil {
		defer s.mu.Unlock()
		return nil, s.err
	}
	s.seq++
	m.Seq = s.seq
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
	select {
	case a := <-answer:
		if a.Type == peerRefuse {
			return nil, fmt.Errorf("node %s refuses: %s", s.link.name, printable(a.Reason))
		}
		return a, nil
	case <-s.done:
		return nil, s.reason()
	case <-ctx.Done():
		return nil, fmt.Errorf("no answer from node %s: %w", s.link.name, ctx.Err())
	}
}

func (s *session) reason() error {
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
	_ = s.conn.Close()
}

// serve handles the peer's messages until the session ends.
func (s *session) serve() {
	var err error
	for err == nil {
		var m *peerMessage
		if m, err = readPeer(s.reader, maxFrame); err == nil {
			err = s.handle(m)
		}
	}
	s.end(fmt.Errorf("bootstrap connection: %w", err))
	close(s.done)
}

func (s *session) handle(m *peerMessage) error {
	c := s.link.conductor
	switch m.Type {
	case peerDirectory:
		return s.link.learn(s, m.Directory)
	case peerDrain:
		c.spawn(func() { s.link.peerDrains(s) })
	case peerDrained:
		s.link.peerDrained(s)
	case peerOpen:
		if m.Lane == nil {
			return fmt.Errorf("%w: open without a lane", errFrame)
		}
		s.opening <- struct{}{} // what is being opened takes openTimeout at most
		if !c.spawn(func() {
			defer func() { <-s.opening }()
			c.acceptLane(s, m)
		}) {
			return errStopping
		}
	case peerBroken:
		if m.Lane == nil {
			return fmt.Errorf("%w: broken without a lane", errFrame)
		}
		if !c.spawn(func() { c.laneBroken(s, m) }) {
			return errStopping
		}
	case peerExport, peerUnexport, peerRevoke:
		return c.peerRegion(s, m)
	case peerPing:
		return s.send(&peerMessage{Type: peerPong, Seq: m.Seq})
	case peerAccept, peerRefuse, peerPong, peerExported, peerUnexported:
		s.mu.Lock()
		answer := s.pending[m.Seq]
		delete(s.pending, m.Seq)
		s.mu.Unlock()
		if answer != nil {
			answer <- m
		}
	default:
		return fmt.Errorf("%w: unknown message %q", errFrame, printable(string(m.Type)))
	}
	return nil
}
