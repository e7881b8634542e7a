package tcp

import (
	"context"
	"errors"
	"net/netip"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/rdmad/rdmad/internal/fabric"
	"github.com/rdmad/rdmad/shm"
)

// phase is the life of an endpoint as seen from any goroutine.
type phase uint8

const (
	phaseNew phase = iota
	phaseConnecting
	phaseConnected
	phaseActive
	phaseClosed
)

// linkState is the life of an endpoint as its agent sees it.
type linkState uint8

const (
	// linkOpen: work is accepted.
	linkOpen linkState = iota
	// linkRefusing: what the peer sent ended the connection. The frame that
	// is under way, the answers to earlier requests and the NAK, if there is
	// one, still go out; nothing is read or accepted.
	linkRefusing
	// linkDown: the work requests that are left are being reported.
	linkDown
	// linkGone: nothing is left to report.
	linkGone
)

// Endpoint implements fabric.Endpoint. The methods that may be called from any
// goroutine are Address and Connect, and Close until Activate if nothing was posted; the rest
// belongs to the agent of the CQ.
type Endpoint struct {
	dev  *Device
	pd   *protectionDomain
	cq   *cq
	tag  uint64
	peer string // the node at the other end, for Security
	addr address

	// ended is done when the endpoint or its device is closed.
	ended   context.Context
	end     context.CancelFunc
	arrived chan arrival

	mu    sync.Mutex
	phase phase // guarded by mu
	fd    int   // guarded by mu until Activate, then the agent's; -1: none
	// sec is the connection's TLS, nil if it has none. It is set with mu held, before
	// Activate, and its fields are the agent's from then on.
	sec *secured
	own netip.Addr // guarded by mu; the address of the connection's end here

	// Everything below belongs to the agent.

	link     linkState
	active   bool
	closing  bool // the end was asked for by Close: no OpDisconnect
	reported bool // OpDisconnect was reported
	cause    fabric.Status
	vendor   uint32
	culprit  *sendEntry // the work request that the peer has refused

	readable bool   // the socket may have bytes
	starved  bool   // an arrival waits for a posted receive
	cramped  bool   // a completion of the last turn found no room
	stuck    bool   // the socket takes no bytes until it is writable
	spent    bool   // the last flush has left something to another turn
	severed  bool   // the connection is gone; reading will find out why
	broke    error  // what a write said of that, nil if none was told
	events   uint32 // what the poller watches

	queued bool      // in cq's ready list, or having its turn
	next   *Endpoint // in cq's ready list

	sq    sendQueue
	rq    recvQueue
	rx    receiver
	tx    sender
	stats Stats
}

// Stats are an endpoint's counters since it was made.
type Stats struct {
	// Reads and Writes are system calls on the socket, in vain or not.
	Reads, Writes uint64
	// BytesIn and BytesOut are bytes on the wire, headers included, but for what TLS
	// adds.
	BytesIn, BytesOut uint64
	// FramesIn and FramesOut are whole frames.
	FramesIn, FramesOut uint64
	// Starved counts how often an arrival found no posted receive, and Stuck
	// how often the socket did not take all bytes.
	Starved, Stuck uint64
	// Refused is 1 when the connection ended because the peer's request was
	// refused.
	Refused uint64
}

// Stats returns the counters. It belongs to the agent like PostSend.
func (e *Endpoint) Stats() Stats { return e.stats }

// CreateEndpoint implements fabric.ProtectionDomain. The queues, the receive
// buffer and everything else the data path needs are allocated here.
func (p *protectionDomain) CreateEndpoint(a fabric.EndpointAttr) (fabric.Endpoint, error) {
	d := p.dev
	q, ok := a.CQ.(*cq)
	if !ok || q == nil || q.dev != d {
		return nil, fabric.ErrInvalid
	}
	if a.SendDepth < 0 || a.SendDepth > maxDepth || a.RecvDepth < 0 || a.RecvDepth > maxDepth {
		return nil, fabric.ErrInvalid
	}
	select {
	case <-d.life.Done():
		return nil, fabric.ErrClosed
	default:
	}
	ended, end := context.WithCancel(d.life)
	e := &Endpoint{
		dev:     d,
		pd:      p,
		cq:      q,
		tag:     a.Tag,
		peer:    a.Peer,
		addr:    address{host: d.host, port: d.port, token: newToken(), tls: d.cfg.Security != nil},
		ended:   ended,
		end:     end,
		arrived: make(chan arrival, 1),
		fd:      -1,
		sq:      newSendQueue(a.SendDepth),
		rq:      newRecvQueue(a.RecvDepth),
		rx:      receiver{buf: make([]byte, d.cfg.ReceiveBuffer)},
		tx:      newSender(),
	}
	d.expect(e)
	return e, nil
}

// Address implements fabric.Endpoint.
func (e *Endpoint) Address() []byte { return e.addr.encode() }

// Activate implements fabric.Endpoint. Work posted before it is sent now.
func (e *Endpoint) Activate() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch e.phase {
	case phaseConnected:
	case phaseClosed:
		return fabric.ErrClosed
	default:
		return fabric.ErrInvalid
	}
	if e.cq.closed {
		return fabric.ErrClosed
	}
	if e.cq.poller != nil {
		if err := e.cq.poller.Add(e.fd, unix.EPOLLIN, e); err != nil {
			return err
		}
		e.events = unix.EPOLLIN
	}
	e.phase, e.active = phaseActive, true
	e.cq.endpoints = append(e.cq.endpoints, e)
	if e.sec != nil {
		// Bytes that came with the end of the handshake wait in crypto/tls, of which
		// the poller knows nothing.
		e.readable = true
		e.cq.push(e)
	}
	e.flush()
	return nil
}

// Ready implements poller.Handler: it only marks, Poll does the work.
func (e *Endpoint) Ready(_ int, events uint32) {
	if events&unix.EPOLLOUT != 0 {
		e.stuck = false
	}
	if events&^uint32(unix.EPOLLOUT) != 0 {
		e.readable = true
	}
	if events&(unix.EPOLLERR|unix.EPOLLHUP|unix.EPOLLRDHUP) != 0 {
		e.severed = true
	}
	e.cq.push(e)
}

// Close implements fabric.Endpoint. What the kernel has taken is still sent
// unless the peer has sent something that was not read. No OpDisconnect follows.
// Until Activate, and without work requests, which the CQ would have to be told of, it may be called from any goroutine, and
// ends a Connect.
func (e *Endpoint) Close() error {
	e.mu.Lock()
	if e.phase == phaseClosed {
		e.mu.Unlock()
		return nil
	}
	e.phase = phaseClosed
	e.mu.Unlock()
	e.end()
	e.dev.forget(e)
	e.closing = true
	err := e.hangUp()
	if e.link != linkGone {
		e.link = linkDown
		if e.active || !e.idle() {
			e.cq.push(e)
		}
	}
	return err
}

// idle reports that no work request is outstanding.
func (e *Endpoint) idle() bool { return e.sq.len() == 0 && e.rq.len() == 0 }

// hangUp gives up the socket.
func (e *Endpoint) hangUp() error {
	if e.fd < 0 {
		return nil
	}
	err := errors.Join(e.unwatch(), unix.Close(e.fd))
	e.fd = -1
	if e.sec != nil {
		e.sec.fd = -1
	}
	return err
}

// unwatch takes the socket from the poller.
func (e *Endpoint) unwatch() error {
	if e.events == 0 {
		return nil
	}
	e.events = 0
	return e.cq.poller.Remove(e.fd)
}

// watch tells the poller what the endpoint waits for.
func (e *Endpoint) watch() {
	if !e.active || e.fd < 0 || e.cq.poller == nil || e.link >= linkDown {
		return
	}
	var events uint32
	if e.link == linkOpen && !e.starved {
		events = unix.EPOLLIN
	}
	if e.starved {
		// Bytes must wait, but not the news of the end.
		events = unix.EPOLLRDHUP
	}
	if e.stuck {
		events |= unix.EPOLLOUT
	}
	if events == 0 {
		// EPOLLERR and EPOLLHUP are always watched. The edge bit tells this
		// from 0, which stands for unwatched.
		events = unix.EPOLLET
	}
	if events == e.events {
		return
	}
	e.events = events
	if err := e.cq.poller.Modify(e.fd, events); err != nil {
		e.fail(fabric.StatusFatal, vendorOf(err))
	}
}

// turn makes what progress one turn allows and returns how many completions it
// stored and whether the endpoint wants another turn without being told.
func (e *Endpoint) turn(c []fabric.Completion) (n int, again bool) {
	e.cramped = false
	if e.link == linkOpen || e.link == linkRefusing {
		e.flush()
	}
	if e.link == linkOpen {
		n = e.retire(c)
		n += e.receive(c[n:])
		e.flush()
		n += e.retire(c[n:])
	}
	if e.link == linkRefusing && e.severed {
		e.down()
	}
	if e.link == linkDown {
		n += e.drain(c[n:])
	}
	e.watch()
	if e.link == linkOpen {
		again = e.cramped || e.readable && !e.starved
	}
	return n, again || e.spent || e.link == linkDown
}

var _ interface {
	fabric.Endpoint
	Ready(int, uint32)
} = (*Endpoint)(nil)

// sender is what flush needs, kept to be reused.
type sender struct {
	vec    shm.Vec
	frames []*txFrame // of the current vec, of which the first done are sent
	done   int
	// partial is the frame of which off bytes are sent, nil if none.
	partial *txFrame
	off     int
	// crowdedOut: the last vec had room for answers only.
	crowdedOut bool
	// answers is a ring of frames the peer waits for.
	answers                 []txFrame
	answerHead, answerCount uint32
	nak                     txFrame // empty: none to send
	// reads counts requests that are sent and wait for their answer.
	reads int
}
