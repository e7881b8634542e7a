//go:build verbs && cgo && linux

package verbs

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

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
	// linkFlushing: the queue pair is in its error state and flushes.
	linkFlushing
	// linkDead: the queue pair is destroyed, or the device reports nothing any
	// more: what is outstanding is reported as flushed.
	linkDead
	// linkGone: nothing is left to report.
	linkGone
)

// Endpoint implements fabric.Endpoint with a reliable-connection queue pair.
// Address, Connect and, until Activate, Close may be called from any goroutine; the
// rest belongs to the owner of the CQ.
type Endpoint struct {
	dev    *Device
	pd     *protectionDomain
	cq     *cq
	tag    uint64
	serial uint32 // of its completions
	room   int    // that it has reserved in the CQ
	lib    pair
	inline int // bytes that a work request can carry
	qpn    uint32
	addr   address

	state atomic.Uint32 // a phase, changed with mu held
	ended chan struct{} // closed by Close
	// heard is closed when the peer has said that it is ready, lost when the
	// peer is known to be gone.
	heard, lost chan struct{}

	mu        sync.Mutex
	made      bool    // the queue pair is there, or was
	destroyed bool    // it is destroyed, or is not to be made any more
	stuck     error   // why it is there all the same
	peer      address // set by Connect
	met       token   // of the peer that was heard
	isHeard   bool
	isLost    bool
	// turning: the kernel is making the queue pair ready, and turned tells when it has.
	turning bool
	turned  sync.Cond
	ready   bool  // the queue pair takes messages of the peer
	to      route // where control messages go
	// gidIndex is where the device has its GID, as far as this end knows.
	gidIndex int
	cm       *cmEnd

	// Everything below belongs to the owner of the CQ.

	link    linkState
	drained bool // the marker behind the last work request has come back
	active  bool
	// held and told are what came before Activate. Until then the queues belong
	// to whoever made the endpoint.
	held   []cWC
	told   []notice
	cause  fabric.Status
	vendor uint32
	sq     ledger.Ring[sendEntry]
	rq     ledger.Ring[uint64] // the IDs of posted receives
	// quiet is how many work requests in a row were posted unsignaled.
	quiet, maxQuiet int
	sends           []cSend
	recvs           []cRecv
	stats           Stats
}

// Stats are an endpoint's counters since it was made.
type Stats struct {
	// SendCalls and RecvCalls are calls into C that post work requests, Sends
	// and Recvs the work requests.
	SendCalls, RecvCalls, Sends, Recvs uint64
	// Inline counts the work requests that carried their data, Signaled those
	// with a completion.
	Inline, Signaled uint64
}

// Stats returns the counters. It belongs to the owner like PostSend.
func (e *Endpoint) Stats() Stats { return e.stats }

// sendEntry is a work request in the send queue.
type sendEntry struct {
	id uint64
	op fabric.Op
	// report: it is signaled for the caller, and not only to free its room.
	report bool
}

// A work request's identification for the device is the endpoint's serial number,
// a bit that tells receives from sends, and the low 31 bits of its position.
const (
	recvBit = 1 << 31
	posBits = recvBit - 1
)

func (e *Endpoint) workID(pos uint32, kind uint32) cUint64 {
	return cUint64(e.serial)<<32 | cUint64(pos&posBits|kind)
}

// CreateEndpoint implements fabric.ProtectionDomain. Everything the data path needs
// is allocated here. Errors: *LimitError and *CallError.
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
		dev: d, pd: p, cq: q, tag: a.Tag,
		// One more for the marker behind the last work request.
		room:  a.SendDepth + a.RecvDepth + 1,
		ended: make(chan struct{}), heard: make(chan struct{}), lost: make(chan struct{}),
		sq: ledger.NewRing[sendEntry](a.SendDepth + 1), rq: ledger.NewRing[uint64](a.RecvDepth),
		maxQuiet: max(1, (a.SendDepth+1)/2),
		sends:    make([]cSend, max(1, a.SendDepth)), recvs: make([]cRecv, max(1, a.RecvDepth)),
	}
	e.turned.L = &e.mu
	e.gidIndex = d.gid.Index
	e.sends, e.recvs = e.sends[:a.SendDepth], e.recvs[:a.RecvDepth]
	if err := q.admit(e); err != nil {
		return nil, err
	}
	if err := e.create(); err != nil {
		q.forget(e)
		q.unreserve(e.room)
		return nil, err
	}
	return e, nil
}

// create makes the queue pair, in the state in which it takes receives. Who closes the completion queue knows of the endpoint
// already, and waits for it, or was faster.
func (e *Endpoint) create() error {
	d := e.dev
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.destroyed {
		return fabric.ErrClosed
	}
	lid, activeMTU, err := d.portNow()
	if err != nil {
		return err
	}
	lib, inline, err := lessInline(d.inline, func(ask int) (pair, error) {
		return createPair(e.pd.pd, e.cq.lib, len(e.sends)+1, max(1, len(e.recvs)), ask)
	})
	if err != nil {
		if errors.Is(err, unix.ENOMEM) {
			err = &LimitError{What: "queue pair with work requests", Asked: uint64(len(e.sends) + len(e.recvs)), Limit: uint64(d.info.Limits.MaxQPWR),
				Hint: fmt.Sprintf("the device has %d queue pairs; raise RLIMIT_MEMLOCK if they are not used up", d.info.Limits.MaxQP), Err: err}
		}
		return err
	}
	e.lib, e.inline = lib, min(inline, lib.inline())
	if err := e.lib.toInit(d.port.Number, d.cfg.PKeyIndex, d.limits.Atomics); err != nil {
		return errors.Join(err, e.lib.destroy())
	}
	e.made = true
	e.qpn = e.lib.number()
	e.addr = address{
		mode: wireOOB, linkLayer: d.port.LinkLayer, gidType: d.gid.Type, gid: d.gid.Addr, lid: lid, mtu: d.pathMTU(activeMTU),
		reads: d.reads(), grh: d.port.LinkLayer == linkInfiniBand && d.port.GRHRequired, token: newToken(),
	}
	if d.cm != nil {
		e.addr.mode, e.addr.listen = wireCM, d.cm.listen
	} else {
		e.addr.qpn, e.addr.psn = e.qpn, random24()
		e.addr.ctlQPN, e.addr.ctlSecret = d.ctl.qpn, d.ctl.secret
	}
	d.mu.Lock()
	d.endpoints[e.addr.token] = e
	d.mu.Unlock()
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
	e.state.Store(uint32(phaseActive))
	e.active = true
	if len(e.held)+len(e.told) > 0 {
		e.cq.woken = append(e.cq.woken, e)
	}
	return nil
}

// Close implements fabric.Endpoint. It destroys the queue pair: when it returns, the
// device does not touch memory of this endpoint's work requests any more, and no
// request of the peer reaches a region through it. The peer is told. Until Activate
// it may be called from any goroutine, and ends a Connect.
func (e *Endpoint) Close() error {
	e.mu.Lock()
	before := e.phase()
	if before == phaseClosed {
		defer e.mu.Unlock()
		return e.destroy()
	}
	e.state.Store(uint32(phaseClosed))
	close(e.ended)
	err := e.destroy()
	e.mu.Unlock()
	err = errors.Join(err, e.dev.leave(e))
	e.cq.forget(e)
	e.cq.notify(notice{e: e, end: endClosed})
	return err
}

// destroy ends the queue pair; e.mu is held, but not while the kernel makes the queue pair ready. What the device refuses is
// tried again: as long as the queue pair is there, it may touch memory.
func (e *Endpoint) destroy() error {
	for e.turning {
		e.turned.Wait()
	}
	if e.destroyed && e.stuck == nil {
		return nil
	}
	e.destroyed = true
	if e.made {
		e.stuck = e.lib.destroy()
	}
	return e.stuck
}

// fail ends the connection; kind is not endClosed. Only the first cause counts.
func (e *Endpoint) fail(why fabric.Status, vendor uint32, kind endKind) {
	if e.link >= linkFlushing {
		if kind == endBroken && e.link == linkFlushing {
			e.abandon()
		}
		return
	}
	e.link, e.cause, e.vendor = linkFlushing, why, vendor
	e.cq.ending = append(e.cq.ending, e)
	if kind == endBroken || !e.flush() {
		e.abandon()
	}
	if kind != endRefused {
		e.dev.depart(e)
	}
}

// flush makes the device complete everything that is outstanding. Work requests
// that were carried out unsignaled never complete, so a marker is posted behind the
// last one: when it comes back, the send queue is done.
func (e *Endpoint) flush() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.destroyed {
		return true // Close was faster; its notice is on its way
	}
	if err := e.lib.toError(); err != nil {
		return false
	}
	marker := [1]cSend{{id: e.workID(e.sq.Tail, 0), op: cUint8(fabric.OpWrite), flags: sendSignaled}}
	n, _ := e.lib.postSend(marker[:])
	if n == 1 {
		*e.sq.At(e.sq.Tail) = sendEntry{}
		e.sq.Tail++
	}
	return n == 1
}

// abandon stops waiting for the device. The queue pair goes, so that it touches no
// memory of what is then reported as flushed.
func (e *Endpoint) abandon() {
	e.link = linkDead
	e.mu.Lock()
	defer e.mu.Unlock()
	// A broken device may refuse, which Close tells.
	_ = e.destroy()
}

// Describe says in one line what connects the endpoint. It may be called from any
// goroutine.
func (e *Endpoint) Describe() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := fmt.Sprintf("queue pair %#x of %s port %d, GID %d %s", e.qpn, e.dev.name, e.dev.port.Number, e.gidIndex, e.dev.gid.Addr)
	if e.peer.mode != 0 {
		s += fmt.Sprintf(", to %s, MTU %d", e.peer, min(e.addr.mtu, e.peer.mtu))
	}
	return s
}

// InlineLimit implements fabric.Inliner.
func (e *Endpoint) InlineLimit() int { return e.inline }

// Explain implements fabric.Explainer. It may be called from any goroutine.
func (e *Endpoint) Explain(c fabric.Completion) error {
	if c.Status == fabric.StatusSuccess {
		return nil
	}
	e.mu.Lock()
	peer := e.peer
	if e.isLost && c.Status == fabric.StatusFlushed {
		c.Vendor = VendorPeerClosed // the device's own only says that it was flushed
	}
	e.mu.Unlock()
	err := &CompletionError{
		Completion: c, Peer: "none", QPN: e.qpn, GID: e.dev.gid.Addr, Device: e.dev.name,
		Timeout: e.dev.cfg.Timeout, RetryCount: e.dev.cfg.RetryCount, RNRRetry: e.dev.cfg.RNRRetry,
	}
	if peer.mode != 0 {
		err.Peer = peer.String()
	}
	err.Cause, err.Next = likely(c, e.dev.name)
	return err
}

var (
	_ fabric.Endpoint  = (*Endpoint)(nil)
	_ fabric.Explainer = (*Endpoint)(nil)
	_ fabric.Inliner   = (*Endpoint)(nil)
)
