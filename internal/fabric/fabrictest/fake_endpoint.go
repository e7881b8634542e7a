package fabrictest

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/rdmad/rdmad/internal/fabric"
	"github.com/rdmad/rdmad/shm"
)

const pollIn = unix.EPOLLIN

var errFakeAddress = errors.New("not an address of a fake endpoint")

// fakeEndpoint implements fabric.Endpoint. Everything is guarded by the Fake's
// lock except the fields that never change.
type fakeEndpoint struct {
	net  *Fake
	pd   *fakePD
	cq   *fakeCQ
	id   uint64
	attr fabric.EndpointAttr

	want   uint64        // the peer's id, once Connect was called
	role   fabric.Role   // likewise
	joined chan struct{} // closed when both sides have connected
	ended  chan struct{} // closed by Close
	peer   *fakeEndpoint
	active bool

	sq   []fakeSend
	rq   []fabric.RecvWR
	busy int // work requests that count against SendDepth

	down     bool // the connection is gone; queues are being flushed
	closed   bool
	reported bool // OpDisconnect is queued, or will never be
	cause    fabric.Status
	short    bool // the next receive was too small
}

// fakeSend is a queued work request. data is the memory to send from or the
// place for an answer.
type fakeSend struct {
	fabric.SendWR
	data []byte
}

func (p *fakePD) CreateEndpoint(a fabric.EndpointAttr) (fabric.Endpoint, error) {
	d := p.dev
	q, ok := a.CQ.(*fakeCQ)
	if !ok || q == nil || q.dev != d || a.SendDepth < 0 || a.SendDepth > fakeDepth || a.RecvDepth < 0 || a.RecvDepth > fakeDepth {
		return nil, fabric.ErrInvalid
	}
	d.net.mu.Lock()
	defer d.net.mu.Unlock()
	e := &fakeEndpoint{
		net: d.net, pd: p, cq: q, id: d.net.next(), attr: a,
		joined: make(chan struct{}), ended: make(chan struct{}),
	}
	d.net.endpoints[e.id] = e
	q.endpoints = append(q.endpoints, e)
	return e, nil
}

// Address implements fabric.Endpoint.
func (e *fakeEndpoint) Address() []byte { return fakeAddress(e.id) }

// Connect implements fabric.Endpoint.
func (e *fakeEndpoint) Connect(ctx context.Context, peer []byte, role fabric.Role) error {
	if len(peer) != 16 || binary.LittleEndian.Uint64(peer) != fakeMagic {
		return &fabric.ConnectError{Peer: "?", Err: errFakeAddress}
	}
	id := binary.LittleEndian.Uint64(peer[8:])
	name := fmt.Sprintf("fake %d", id)
	e.net.mu.Lock()
	if e.closed || e.want != 0 {
		e.net.mu.Unlock()
		return &fabric.ConnectError{Peer: name, Err: fabric.ErrClosed}
	}
	e.want, e.role = id, role
	if p := e.net.endpoints[id]; p != nil && p != e && p.want == e.id && p.role != role {
		e.peer, p.peer = p, e
		close(e.joined)
		close(p.joined)
	}
	e.net.mu.Unlock()
	select {
	case <-e.joined:
		return nil
	case <-e.ended:
		return &fabric.ConnectError{Peer: name, Err: fabric.ErrClosed}
	case <-ctx.Done():
		return &fabric.ConnectError{Peer: name, Err: ctx.Err()}
	}
}

// Activate implements fabric.Endpoint.
func (e *fakeEndpoint) Activate() error {
	e.net.mu.Lock()
	defer e.net.mu.Unlock()
	switch {
	case e.closed:
		return fabric.ErrClosed
	case e.peer == nil || e.active:
		return fabric.ErrInvalid
	}
	e.active = true
	e.advance()
	return nil
}

// PostSend implements fabric.Endpoint.
func (e *fakeEndpoint) PostSend(wrs []fabric.SendWR) (int, error) {
	e.net.mu.Lock()
	defer e.net.mu.Unlock()
	if e.down || e.closed {
		return 0, fabric.ErrClosed
	}
	for i, w := range wrs {
		if e.busy >= e.attr.SendDepth {
			return i, fabric.ErrQueueFull
		}
		data, ok := e.pd.local(w.Local)
		atomic := w.Op == fabric.OpCompareSwap || w.Op == fabric.OpFetchAdd
		if !ok || w.Op < fabric.OpWrite || w.Op > fabric.OpFetchAdd || atomic && len(data) != 8 {
			return i, fabric.ErrInvalid
		}
		if w.Flags&fabric.FlagInline != 0 {
			if len(data) > fakeInline || atomic || w.Op == fabric.OpRead {
				return i, fabric.ErrInvalid
			}
			data = slices.Clone(data)
		}
		e.busy++
		e.sq = append(e.sq, fakeSend{SendWR: w, data: data})
		e.advance()
	}
	return len(wrs), nil
}

// PostRecv implements fabric.Endpoint.
func (e *fakeEndpoint) PostRecv(wrs []fabric.RecvWR) (int, error) {
	e.net.mu.Lock()
	defer e.net.mu.Unlock()
	if e.down || e.closed {
		return 0, fabric.ErrClosed
	}
	for i, w := range wrs {
		if len(e.rq) >= e.attr.RecvDepth {
			return i, fabric.ErrQueueFull
		}
		if _, ok := e.pd.local(w.Local); !ok {
			return i, fabric.ErrInvalid
		}
		e.rq = append(e.rq, w)
		e.advance()
	}
	return len(wrs), nil
}

// Close implements fabric.Endpoint.
func (e *fakeEndpoint) Close() error {
	e.net.mu.Lock()
	defer e.net.mu.Unlock()
	e.end()
	return nil
}

// end closes e. No OpDisconnect follows.
func (e *fakeEndpoint) end() {
	if e.closed {
		return
	}
	e.closed, e.reported = true, true
	close(e.ended)
	delete(e.net.endpoints, e.id)
	e.fail(fabric.StatusFlushed)
	if e.peer != nil {
		e.peer.fail(fabric.StatusFlushed)
	}
}

// fail takes e's side of the connection down.
func (e *fakeEndpoint) fail(why fabric.Status) {
	if e.down {
		return
	}
	e.down, e.cause = true, why
	e.advance()
}

// advance does what has become possible on both sides of e's connection.
func (e *fakeEndpoint) advance() {
	e.step()
	if e.peer != nil {
		e.peer.step()
	}
}

func (e *fakeEndpoint) step() {
	if e.down {
		e.drain()
		return
	}
	for len(e.sq) > 0 && !e.down && e.active && e.peer.active && e.execute(&e.sq[0]) {
	}
}

// complete takes the first work request off the send queue.
func (e *fakeEndpoint) complete(s fabric.Status) {
	w := e.sq[0]
	e.sq = e.sq[1:]
	if s == fabric.StatusSuccess && w.Flags&fabric.FlagSignaled == 0 {
		e.busy--
		return
	}
	e.cq.add(fakeCompletion{fabric.Completion{Tag: e.attr.Tag, ID: w.ID, Op: w.Op, Status: s}, e})
}

// drain flushes the queues as far as there is room.
func (e *fakeEndpoint) drain() {
	if e.cq.closed {
		return
	}
	for len(e.sq) > 0 && e.cq.room() {
		e.complete(fabric.StatusFlushed)
	}
	for len(e.sq) == 0 && len(e.rq) > 0 && e.cq.room() {
		c := fabric.Completion{Tag: e.attr.Tag, ID: e.rq[0].ID, Op: fabric.OpRecv, Status: fabric.StatusFlushed}
		if e.short {
			e.short, c.Status = false, fabric.StatusLocalLength
		}
		e.rq = e.rq[1:]
		e.cq.add(fakeCompletion{Completion: c})
	}
	if len(e.sq)+len(e.rq) > 0 || !e.cq.room() {
		return
	}
	if !e.reported {
		e.reported = true
		e.cq.add(fakeCompletion{Completion: fabric.Completion{Tag: e.attr.Tag, Op: fabric.OpDisconnect, Status: e.cause}})
	}
	if i := slices.Index(e.cq.endpoints, e); i >= 0 {
		e.cq.endpoints = slices.Delete(e.cq.endpoints, i, i+1)
	}
}

// execute carries out w, the first of the send queue, and reports whether it
// could. Room for both completions comes first, so that nothing is half done.
func (e *fakeEndpoint) execute(w *fakeSend) bool {
	p := e.peer
	if p.down || !e.cq.room() || e.cq == p.cq && len(e.cq.queue)+2 > e.cq.depth {
		return false
	}
	consumes := w.Op == fabric.OpWriteImm || w.Op == fabric.OpSend
	if consumes && (len(p.rq) == 0 || !p.cq.room()) {
		return false
	}
	status := e.perform(w)
	if status != fabric.StatusSuccess {
		e.complete(status)
		e.fail(status)
		p.fail(fabric.StatusFatal)
		return false
	}
	if consumes {
		c := fabric.Completion{Tag: p.attr.Tag, ID: p.rq[0].ID, Op: fabric.OpRecv, Len: uint32(len(w.data))}
		if w.Op == fabric.OpWriteImm {
			c.Op, c.Imm = fabric.OpRecvImm, w.Imm
		}
		p.rq = p.rq[1:]
		p.cq.add(fakeCompletion{Completion: c})
	}
	e.complete(fabric.StatusSuccess)
	return true
}

// perform moves the bytes of w.
func (e *fakeEndpoint) perform(w *fakeSend) fabric.Status {
	if w.Op == fabric.OpSend {
		dst, ok := e.peer.pd.local(e.peer.rq[0].Local)
		if !ok || len(w.data) > len(dst) {
			e.peer.short = true
			return fabric.StatusRemoteInvalid
		}
		copy(dst, w.data)
		return fabric.StatusSuccess
	}
	if len(w.data) == 0 {
		return fabric.StatusSuccess
	}
	right := fabric.AccessRemoteWrite
	switch w.Op {
	case fabric.OpRead:
		right = fabric.AccessRemoteRead
	case fabric.OpCompareSwap, fabric.OpFetchAdd:
		right = fabric.AccessRemoteAtomic
	}
	mem, off, ok := e.peer.reachable(w, right)
	if !ok {
		return fabric.StatusRemoteAccess
	}
	switch w.Op {
	case fabric.OpWrite, fabric.OpWriteImm:
		copy(mem[off:], w.data)
	case fabric.OpRead:
		copy(w.data, mem[off:])
	default:
		// Regions of the fake start on a word boundary or have no atomics.
		if off%8 != 0 {
			return fabric.StatusRemoteInvalid
		}
		word := shm.Uint64At(mem, off)
		old := word.Load()
		if w.Op == fabric.OpFetchAdd {
			old = word.Add(w.Swap) - w.Swap
		} else if old == w.Compare {
			word.CompareAndSwap(old, w.Swap)
		}
		binary.NativeEndian.PutUint64(w.data, old)
	}
	return fabric.StatusSuccess
}

// reachable returns the region that w names and w's offset in it.
func (e *fakeEndpoint) reachable(w *fakeSend, right fabric.Access) ([]byte, int, bool) {
	for _, r := range e.pd.regions {
		off := w.RemoteAddr - r.base
		size := uint64(len(r.mem))
		if r.key == w.RemoteKey && !r.closed && r.access&right != 0 && off <= size && uint64(len(w.data)) <= size-off {
			return r.mem, int(off), true
		}
	}
	return nil, 0, false
}

var _ fabric.Endpoint = (*fakeEndpoint)(nil)
