package agent

import (
	"errors"

	"github.com/rdmad/rdmad/internal/event"
	"github.com/rdmad/rdmad/internal/fabric"
	"github.com/rdmad/rdmad/shm"
	"github.com/rdmad/rdmad/slots"
)

const (
	// bulkDepth is how many work requests a connection for operations has under
	// way, and bulkWindow about how many bytes. Any more would only make the
	// small operations of others wait behind them; without any, it is roomyWindow.
	bulkDepth   = 128
	bulkWindow  = 4 * chunkSize
	roomyWindow = 2 * roomyChunk
	// fenceSize is from which size on a write has a fence of its own, so that the
	// next one can be posted while others are under way.
	fenceSize = 64 << 10
)

// ActiveEnd is this node's end of a connection by which its handlers operate on the
// regions of a peer. The agent makes use of it; the conductor makes it.
//
// A write is complete when its bytes are in the peer's memory: an answer that goes
// another way must not overtake them. The completion of a write does not say that on
// every fabric, the completion of a read that was posted after it does. So there is
// a fence, a read of one byte, behind writes: one for all that are posted at once,
// and one for each large one. Only what answers is signaled.
type ActiveEnd struct {
	agent    *Agent
	mover    *mover // once it is connected
	tag      uint64
	PD       fabric.ProtectionDomain
	Endpoint fabric.Endpoint
	// words is where atomic operations put what they found.
	words    fabric.MemoryRegion
	wordsSeg *shm.Segment
	Opening  Opening
	// OnBroken is as that of an InLane.
	OnBroken func(error)
	// Atomics: the devices of both nodes can do atomic operations. Until the peer has said so, this one's.
	Atomics bool

	// locals are the regions of this node's workers that are registered, asked
	// those that are being registered.
	locals map[*Region]fabric.MemoryRegion
	asked  map[*Region]bool
	// leaving: it is closed, and its registrations are being closed. lent are those that Forget has given away to be closed.
	leaving bool
	lent    int

	// posts are the work requests that are not complete, by the number modulo
	// bulkDepth: done, the first of them (that of a LaneEndpoint is the last that is complete),
	// to next-1. The last ones are still in wrs.
	posts      [bulkDepth]bulkPost
	next, done uint64
	inFlight   int // bytes
	wrs        []fabric.SendWR
	// unfenced: the last one is a write. Its address is that of the fence.
	unfenced bool
	Over     bool
}

// bulkPost is a work request under way: a chunk of an operation, or a fence.
type bulkPost struct {
	op    *operation
	local *Region
	size  int
	// off and localOff are where, in the peer's region and in local.
	off, localOff uint64
	// Of what is to be done again, see redo.go: sent, it may have been done; loose, it may still
	// be done; abandoned, it is not to be done after all; and how often it was tried before.
	sent, loose, abandoned bool
	tries                  uint8
}

// NewActiveEnd makes an unconnected end of a connection with the node peer. It is called on any goroutine.
func NewActiveEnd(a *Agent, dev fabric.Device, cq fabric.CQ, tag uint64, peer string) (_ *ActiveEnd, err error) {
	e := &ActiveEnd{
		agent: a, tag: tag, next: 1, done: 1, Atomics: dev.Caps().Atomics,
		locals: make(map[*Region]fabric.MemoryRegion), asked: make(map[*Region]bool),
		wrs: make([]fabric.SendWR, 0, bulkDepth),
	}
	if e.PD, err = dev.AllocPD(); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			e.Over = true
			e.Release()
		}
	}()
	e.wordsSeg, err = shm.Create(shm.CreateOptions{Name: "rdmad-atomics", Kind: shm.KindRegion, Size: shm.HeaderSize + bulkDepth*slots.AtomicSize})
	if err != nil {
		return nil, err
	}
	if e.words, err = e.PD.Register(e.wordsSeg.Bytes()[shm.HeaderSize:], 0); err != nil {
		return nil, err
	}
	e.Endpoint, err = e.PD.CreateEndpoint(fabric.EndpointAttr{CQ: cq, Tag: tag, SendDepth: bulkDepth, Peer: peer})
	if err != nil {
		return nil, err
	}
	return e, nil
}

// start lets completions flow.
func (e *ActiveEnd) start() error {
	e.agent.ends[e.tag] = e
	return e.Endpoint.Activate()
}

// Close ends the connection: nothing it was told to do happens after this.
func (e *ActiveEnd) Close() {
	delete(e.agent.ends, e.tag)
	e.Over = true
	if err := e.Endpoint.Close(); err != nil {
		event.EndpointClose.On(&e.agent.log).Err(err).Msg("closing an endpoint")
	}
	e.Endpoint = nil
	e.unregister()
	e.Release()
}

// unregister closes the registrations of a connection whose endpoint is closed, so that nobody comes to memory by them. They may be
// a thousand, each a system call: another goroutine does it, and until then no region is unmapped that is registered.
func (e *ActiveEnd) unregister() {
	locals := e.locals
	e.locals = nil
	if len(locals) == 0 {
		return
	}
	e.leaving = true
	for r := range locals {
		r.hold()
	}
	closeAll := func() {
		for _, mr := range locals {
			if err := mr.Close(); err != nil {
				event.RegistrationClose.On(&e.agent.log).Err(err).Msg("closing a region's registration")
			}
		}
	}
	closed := func() {
		e.leaving = false
		for r := range locals {
			r.release()
		}
		e.Release()
	}
	if m := e.mover; m == nil || m.Spawn == nil || !m.Spawn(func() { closeAll(); e.agent.Commands.Call(closed) }) {
		closeAll()
		closed()
	}
}

// Release gives up the device's resources, once no registration is under way, in either direction.
func (e *ActiveEnd) Release() {
	if !e.Over || e.leaving || e.lent > 0 || len(e.asked) > 0 || e.PD == nil {
		return
	}
	var errs []error
	if e.Endpoint != nil {
		errs = append(errs, e.Endpoint.Close())
	}
	if e.words != nil {
		errs = append(errs, e.words.Close())
	}
	errs = append(errs, e.PD.Close())
	if e.wordsSeg != nil {
		errs = append(errs, e.wordsSeg.Close())
	}
	e.PD, e.locals = nil, nil
	if err := errors.Join(errs...); err != nil {
		event.EndpointClose.On(&e.agent.log).Err(err).Msg("closing a connection for operations")
	}
}

// Forget takes a region that nothing needs any more out of those that are
// registered. The caller closes what it returns, if that is not nil, on another goroutine, and says so with Closed.
func (e *ActiveEnd) Forget(r *Region) fabric.MemoryRegion {
	mr := e.locals[r]
	if mr != nil {
		delete(e.locals, r)
		e.lent++
	}
	return mr
}

// Closed takes note that a registration that Forget has returned is closed.
func (e *ActiveEnd) Closed() {
	e.lent--
	e.Release()
}

// room reports whether another chunk may be posted, with the fences it may need.
func (e *ActiveEnd) room() bool {
	window := bulkWindow
	if e.agent.alone() {
		window = roomyWindow
	}
	return e.next-e.done <= bulkDepth-3 && e.inFlight < window
}

// post queues a work request for a chunk of an operation. False: its local memory is
// not registered yet, and mover.Registered will tell.
func (e *ActiveEnd) post(m *mover, p *bulkPost) bool {
	o := p.op
	slot := e.next % bulkDepth
	wr := fabric.SendWR{ID: e.next, RemoteAddr: o.far.key.Addr + p.off, RemoteKey: o.far.key.Key}
	if o.kind.Atomic() {
		wr.Local = fabric.Local{Region: e.words, Offset: slot * slots.AtomicSize, Len: slots.AtomicSize}
		wr.Compare, wr.Swap = o.compare, o.swap
	} else {
		mr := e.locals[p.local]
		if mr == nil {
			e.ask(m, p.local)
			return false
		}
		wr.Local = fabric.Local{Region: mr, Offset: p.localOff, Len: uint32(p.size)}
	}
	switch o.kind {
	case slots.OpRead:
		wr.Op = fabric.OpRead
	case slots.OpCompareSwap:
		wr.Op = fabric.OpCompareSwap
	case slots.OpFetchAdd:
		wr.Op = fabric.OpFetchAdd
	default:
		wr.Op = fabric.OpWrite
	}
	e.unfenced = wr.Op == fabric.OpWrite
	if !e.unfenced && p.size >= fenceSize {
		wr.Flags = fabric.FlagSignaled
	}
	e.wrs = append(e.wrs, wr)
	e.posts[slot] = *p
	e.next++
	e.inFlight += p.size
	e.agent.Count.RegionBytes += uint64(p.size)
	if e.unfenced && p.size >= fenceSize {
		e.fence()
	}
	return true
}

// fence posts a read behind the last write.
func (e *ActiveEnd) fence() {
	last := &e.wrs[len(e.wrs)-1]
	slot := e.next % bulkDepth
	e.wrs = append(e.wrs, fabric.SendWR{
		ID: e.next, Op: fabric.OpRead, Flags: fabric.FlagSignaled, RemoteAddr: last.RemoteAddr, RemoteKey: last.RemoteKey,
		Local: fabric.Local{Region: e.words, Offset: slot * slots.AtomicSize, Len: 1},
	})
	e.posts[slot] = bulkPost{}
	e.next++
	e.unfenced = false
}

// ask has a region registered.
func (e *ActiveEnd) ask(m *mover, r *Region) {
	if e.asked[r] {
		return
	}
	e.asked[r] = true
	r.hold()
	if m.Register == nil || !m.Register(e, r) {
		delete(e.asked, r)
		r.release()
	}
}

// flush posts what is queued with one call. What the device has no room for waits
// for completions.
func (e *ActiveEnd) flush() error {
	if len(e.wrs) == 0 {
		return nil
	}
	if e.unfenced {
		e.fence()
	}
	e.wrs[len(e.wrs)-1].Flags |= fabric.FlagSignaled
	n, err := e.Endpoint.PostSend(e.wrs)
	e.wrs = e.wrs[:copy(e.wrs, e.wrs[n:])]
	if errors.Is(err, fabric.ErrQueueFull) {
		return nil
	}
	return err
}

// immediate implements connectionEnd. Nothing sends one here.
func (e *ActiveEnd) immediate(uint32) {}

// violation implements connectionEnd. Without posted receives nothing arrives.
func (e *ActiveEnd) violation(string) {}

// sent implements connectionEnd: what was posted up to id is complete.
func (e *ActiveEnd) sent(id uint64) bool {
	if id < e.done || id >= e.next {
		return false
	}
	for ; e.done <= id; e.done++ {
		p := &e.posts[e.done%bulkDepth]
		o := p.op
		if o == nil {
			continue // a fence
		}
		e.mover.barren = 0
		if o.kind.Atomic() {
			o.value = nativeUint64(e.words.Bytes()[e.done%bulkDepth*slots.AtomicSize:])
		}
		e.inFlight -= p.size
		if p.local != nil {
			p.local.release()
		}
		*p = bulkPost{}
		if o.posted--; o.posted == 0 && o.done {
			e.mover.domain.complete(o)
		}
	}
	if len(e.wrs) > 0 {
		e.mover.flush()
	}
	return true
}

// broken implements connectionEnd.
func (e *ActiveEnd) broken(c *fabric.Completion) { e.mover.Broken(cause(e.Endpoint, c)) }

// drop takes all work requests off: none will complete.
func (e *ActiveEnd) drop() (left []bulkPost) {
	sent := e.next - uint64(len(e.wrs)) // up to here the device has them
	for ; e.done < e.next; e.done++ {
		if p := e.posts[e.done%bulkDepth]; p.op != nil {
			p.loose = e.done < sent
			p.sent = p.sent || p.loose
			left = append(left, p)
		}
	}
	e.inFlight, e.wrs, e.unfenced = 0, nil, false
	return left
}
