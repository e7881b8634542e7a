//go:build libfabric && cgo && linux

package libfabric

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/rdmad/rdmad/internal/fabric"
	"github.com/rdmad/rdmad/internal/fabric/ledger"
)

// phase is the life of an endpoint as seen from any goroutine.
type phase uint32

const (
	phaseNew phase = iota
	phaseConnecting
	phaseConnected
	phaseActive
	phaseClosed
)

// linkState is the life of an endpoint as the owner of its CQ sees it.
type linkState uint8

const (
	// linkOpen: work is accepted.
	linkOpen linkState = iota
	// linkDead: the library's endpoint is closed; what is outstanding is reported as flushed.
	linkDead
	// linkGone: nothing is left to report.
	linkGone
)

// Endpoint implements fabric.Endpoint with a reliable-datagram endpoint that has one peer.
// Address, Connect and, until Activate, Close may be called from any goroutine; the rest
// belongs to the owner of the CQ.
type Endpoint struct {
	dev    *Device
	pd     *protectionDomain
	cq     *cq
	tag    uint64
	serial uint32 // of its completions
	lib    wire
	addr   address

	state atomic.Uint32 // a phase, changed with mu held
	ended chan struct{} // closed by Close
	lost  chan struct{} // closed when the peer is known to be gone

	mu        sync.Mutex
	made      bool    // the library's endpoint is there, or was
	destroyed bool    // it is closed, or is not to be made any more
	stuck     error   // why it is there all the same
	joined    bool    // it is polled; see cq.join
	name      string  // that it has taken; see names.go
	unmapped  bool    // see files.go
	peer      address // set by Connect
	isLost    bool
	greeted   greeting
	control   *controlPeer // of the peer's device; nil if it need not be told
	held      []cWC        // what came before Activate
	// late is a neighbour that has ended and is closed together with this endpoint; guarded
	// by neighbours.mu.
	late *Endpoint

	// Everything below belongs to the owner of the CQ. Until Activate that is whoever
	// made the endpoint.

	link   linkState
	told   []notice // before Activate
	cause  fabric.Status
	vendor uint32

	sendDepth, recvDepth int
	// sq are the work requests, of which those before next have been given to the library,
	// which needs no order to complete them; sends are the same for C.
	sq    ledger.Ring[sendEntry]
	next  uint32
	sends []cSend
	// spare is where the data of those that must be copied, and had to wait, is copied to.
	spare *pinnedBytes
	// quiet are receives without memory, which take immediates. loud are those with memory,
	// which take sends; those before given are the library's.
	quiet, loud ledger.Ring[recvEntry]
	given       uint32
	recvs       []cRecv
	posted      uint64 // receives so far
	// takesSends: there have been receives with memory. Until then, if there are others or cannot be any, a send is
	// caught by a trap.
	takesSends, trapped bool
	// early are immediates that wait for a receive.
	early queue[arrival]
	// pushing: it is in cq.pushing.
	pushing bool
	stats   Stats
}

// Stats are an endpoint's counters since it was made.
type Stats struct {
	// SendCalls and RecvCalls are calls into C that post work requests, Sends and Recvs the
	// work requests that the library has taken.
	SendCalls, RecvCalls, Sends, Recvs uint64
	// Again counts the calls for which the library had no room.
	Again uint64
}

// Stats returns the counters. It belongs to the owner like PostSend.
func (e *Endpoint) Stats() Stats { return e.stats }

// compactFrom is how many items may be taken out of a queue before those that are left are moved to its front.
const compactFrom = 1024

// queue is a queue of any length whose memory is used again.
type queue[T any] struct {
	items []T
	first int
}

func (q *queue[T]) len() int { return len(q.items) - q.first }

func (q *queue[T]) push(v T) {
	if q.first > 0 && q.first == len(q.items) {
		q.items, q.first = q.items[:0], 0
	} else if q.first > compactFrom && q.first > len(q.items)/2 {
		// It may never be empty: what was taken out is given back all the same.
		q.items, q.first = q.items[:copy(q.items, q.items[q.first:])], 0
	}
	q.items = append(q.items, v)
}

func (q *queue[T]) pop() T {
	v := q.items[q.first]
	q.first++
	return v
}

// sendEntry is a work request in the send queue.
type sendEntry struct {
	id     uint64
	op     fabric.Op
	report bool // also in case of success
	done   bool
	status fabric.Status
	vendor uint32
}

// recvEntry is a posted receive. number says when it was posted.
type recvEntry struct {
	id, number uint64
	done       bool
	status     fabric.Status
	vendor     uint32
	len        uint32
}

// arrival is an immediate that has come.
type arrival struct{ imm, len uint32 }

// maxEarly bounds the immediates that wait for receives. It is more than a peer that keeps
// the rules of lanes can have under way.
const maxEarly = 1 << 17

// CreateEndpoint implements fabric.ProtectionDomain. Everything the data path needs is
// allocated here.
func (p *protectionDomain) CreateEndpoint(a fabric.EndpointAttr) (fabric.Endpoint, error) {
	d := p.dev
	q, ok := a.CQ.(*cq)
	if !ok || q == nil || q.dev != d {
		return nil, fabric.ErrInvalid
	}
	if a.SendDepth < 0 || a.SendDepth > d.limits.MaxSendDepth || a.RecvDepth < 0 || a.RecvDepth > d.limits.MaxRecvDepth {
		return nil, fabric.ErrInvalid
	}
	e := &Endpoint{
		dev: d, pd: p, cq: q, tag: a.Tag, ended: make(chan struct{}), lost: make(chan struct{}),
		sendDepth: a.SendDepth, recvDepth: a.RecvDepth,
		sq: ledger.NewRing[sendEntry](a.SendDepth), quiet: ledger.NewRing[recvEntry](a.RecvDepth), loud: ledger.NewRing[recvEntry](a.RecvDepth),
	}
	e.sends, e.recvs = make([]cSend, e.sq.Cap()), make([]cRecv, e.loud.Cap())
	if err := q.admit(e); err != nil {
		return nil, err
	}
	if err := e.create(); err != nil {
		q.forget(e)
		return nil, err
	}
	return e, nil
}

// create makes the library's endpoint. Who closes the completion queue knows of this one already, and waits for it, or was faster.
func (e *Endpoint) create() error {
	d := e.dev
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.destroyed {
		return fabric.ErrClosed
	}
	lib, err := openWire(e.pd.pd, e.sq.Cap(), e.loud.Cap(), e.serial, e.cq.poller != nil, d.info.Limits.Key)
	if err != nil {
		return explainMemory(err, d.cfg.Provider)
	}
	e.lib = lib
	name, err := lib.name()
	if err == nil && (len(name) == 0 || len(name) > maxName) {
		err = fmt.Errorf("libfabric: address of %d bytes", len(name))
	}
	if err == nil && e.recvDepth == 0 { // there will be no receives
		e.trapped = true
		if code := lib.trap(true); code != 0 {
			err = callError("fi_recv", code)
		}
	}
	if err != nil {
		return errors.Join(err, lib.close())
	}
	e.made = true
	e.addr = address{
		dataSize: d.dataSize(), version: d.info.version, host: d.host, token: newToken(),
		provider: d.info.Provider, name: name, control: d.ctlName,
	}
	e.addr.anchorAddr, e.addr.anchorKey = lib.anchor()
	d.mu.Lock()
	d.endpoints[e.addr.token] = e
	first := len(d.endpoints) == 1
	d.mu.Unlock()
	if first {
		d.bell.Ring() // the device's goroutine did not look for messages while nobody could get any
	}
	e.pd.open.Add(1)
	e.settleIn()
	return nil
}

// Address implements fabric.Endpoint.
func (e *Endpoint) Address() []byte { return e.addr.encode() }

func (e *Endpoint) phase() phase { return phase(e.state.Load()) }

// Activate implements fabric.Endpoint. What has completed before is reported by the
// next Poll.
func (e *Endpoint) Activate() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch e.phase() {
	case phaseConnected:
	case phaseClosed:
		return fabric.ErrClosed
	default:
		return fabric.ErrInvalid
	}
	if err := e.cq.join(e); err != nil {
		return err
	}
	e.state.Store(uint32(phaseActive))
	e.cq.woken = append(e.cq.woken, e)
	return nil
}

// Close implements fabric.Endpoint. It closes the library's endpoint: when it returns, the
// library does not touch memory of this endpoint's work requests any more, and no
// request of the peer reaches a region through it. The peer is told. Until Activate
// it may be called from any goroutine, and ends a Connect.
func (e *Endpoint) Close() error {
	e.mu.Lock()
	before := e.phase()
	if before == phaseClosed {
		defer e.mu.Unlock()
		return e.stuck
	}
	if before == phaseActive {
		e.cq.part(e)
	}
	e.state.Store(uint32(phaseClosed))
	close(e.ended)
	err := e.destroy()
	e.mu.Unlock()
	e.dev.leave(e, fabric.StatusSuccess)
	e.dev.mu.Lock()
	delete(e.dev.endpoints, e.addr.token)
	e.dev.mu.Unlock()
	e.cq.forget(e)
	e.cq.notify(notice{e: e, closed: true})
	return err
}

// lost has, for good, the memory of endpoints that the library could not close, and may still read.
var lost sync.Map

// destroy ends the library's endpoint; e.mu is held. If the library refuses, it may touch memory for good, and every call says so:
// of what it has closed of an endpoint nothing can be closed again.
func (e *Endpoint) destroy() error {
	if e.destroyed {
		return e.stuck
	}
	e.destroyed = true
	if !e.made {
		return nil
	}
	err := e.bury()
	e.stuck = err
	e.leaveName()
	switch {
	case e.spare == nil:
	case err == nil:
		e.spare.unpin()
	default:
		lost.Store(e.spare, true)
	}
	return err
}

// fail ends the connection. Only the first cause counts. The library's endpoint goes, so that
// it touches no memory of what is then reported as flushed, and the peer is told unless it
// is the one that has said so.
func (e *Endpoint) fail(why fabric.Status, vendor uint32, tell bool) {
	if e.link != linkOpen {
		return
	}
	e.link, e.cause, e.vendor = linkDead, why, vendor
	e.cq.ending = append(e.cq.ending, e)
	e.mu.Lock()
	if !e.destroyed {
		e.cq.part(e)
	}
	// A provider may refuse, which Close tells.
	_ = e.destroy()
	e.mu.Unlock()
	if !tell {
		why = fabric.StatusSuccess
	}
	e.dev.leave(e, why)
}

// Describe says in one line what connects the endpoint. It may be called from any
// goroutine.
func (e *Endpoint) Describe() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := e.dev.Describe()
	if e.peer.provider != "" {
		s += fmt.Sprintf(", peer's provider %s", versionText(e.peer.version))
	}
	return s
}

// Explain implements fabric.Explainer. It may be called from any goroutine.
func (e *Endpoint) Explain(c fabric.Completion) error {
	if c.Status == fabric.StatusSuccess {
		return nil
	}
	err := &CompletionError{Completion: c, Device: e.dev.Describe(), Peer: "none"}
	e.mu.Lock()
	if e.peer.provider != "" {
		err.Peer = fmt.Sprintf("%s %s", e.peer.provider, versionText(e.peer.version))
	}
	e.mu.Unlock()
	err.Cause, err.Next = likely(c)
	return err
}

var (
	_ fabric.Endpoint  = (*Endpoint)(nil)
	_ fabric.Explainer = (*Endpoint)(nil)
	_ fabric.Expecter  = (*Endpoint)(nil)
)
