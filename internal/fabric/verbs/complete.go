//go:build verbs && cgo && linux

package verbs

import "github.com/rdmad/rdmad/internal/fabric"

// complete handles a completion of the device.
func (e *Endpoint) complete(w *cWC) {
	if !e.active {
		e.held = append(e.held, *w)
		return
	}
	if e.link >= linkDead {
		return // what it is about is reported as flushed
	}
	low := uint32(w.id)
	if low&recvBit != 0 {
		e.received(w, low)
	} else {
		e.sent(w, low)
	}
}

// sent retires the work request at a position, and with it the earlier ones, which
// were carried out unsignaled.
func (e *Endpoint) sent(w *cWC, low uint32) {
	pos, ok := e.sq.Find(low, posBits)
	if !ok {
		e.fail(fabric.StatusFatal, VendorUnexpected, endBroken)
		return
	}
	status := wcStatus(w.status)
	for ; e.sq.Head != pos; e.sq.Head++ {
		// A signaled one without a completion would be the device's fault.
		if s := e.sq.At(e.sq.Head); s.report {
			e.emit(s.id, s.op, fabric.StatusFlushed, VendorUnexpected)
		}
	}
	s := e.sq.At(pos)
	e.sq.Head++
	if s.op == 0 {
		e.drained = true
		return
	}
	if status == fabric.StatusSuccess {
		if s.report {
			e.emit(s.id, s.op, status, 0)
		}
		return
	}
	e.emit(s.id, s.op, status, uint32(w.vendor))
	e.failed(status, uint32(w.vendor))
}

// received takes the first of the posted receives, which arrivals use in order.
func (e *Endpoint) received(w *cWC, low uint32) {
	pos, ok := e.rq.Find(low, posBits)
	if !ok || pos != e.rq.Head {
		e.fail(fabric.StatusFatal, VendorUnexpected, endBroken)
		return
	}
	c := fabric.Completion{Tag: e.tag, ID: *e.rq.At(pos), Op: fabric.OpRecv, Status: wcStatus(w.status)}
	e.rq.Head++
	if c.Status != fabric.StatusSuccess {
		c.Vendor = uint32(w.vendor)
		e.cq.out.Emit(c)
		e.failed(c.Status, c.Vendor)
		return
	}
	c.Len = uint32(w.len)
	if w.opcode == opRecvImmediate {
		c.Op, c.Imm = fabric.OpRecvImm, uint32(w.imm)
	}
	e.cq.out.Emit(c)
}

// failed ends the connection because of a completion. One that was flushed without
// a cause of this side is the device's answer to a request of the peer that it has
// refused.
func (e *Endpoint) failed(status fabric.Status, vendor uint32) {
	if status == fabric.StatusFlushed {
		e.fail(fabric.StatusFatal, vendor, endRefused)
		return
	}
	e.fail(status, vendor, endPeer)
}

// wake handles what came before Activate.
func (e *Endpoint) wake() {
	for i := range e.held {
		e.complete(&e.held[i])
	}
	for _, n := range e.told {
		e.noticed(n)
	}
	e.held, e.told = nil, nil
}

// noticed handles what another goroutine has found out.
func (e *Endpoint) noticed(n notice) {
	if n.end != endClosed && !e.active {
		e.told = append(e.told, n)
		return
	}
	if n.end != endClosed {
		e.fail(n.why, n.vendor, n.end)
		return
	}
	if e.link < linkFlushing {
		e.cq.ending = append(e.cq.ending, e)
	}
	if e.link != linkGone {
		e.link = linkDead
	}
	// Its room may be used when what is left of it in the queue was polled.
	e.cq.released += e.room
}

// over reports whether the device says nothing more of an ended endpoint.
func (e *Endpoint) over() bool { return e.link == linkDead || e.drained && e.rq.Len() == 0 }

// finish reports what is left of an ended endpoint, and returns true when nothing
// is. Send queue first, then receives, then OpDisconnect.
func (e *Endpoint) finish() bool {
	if !e.over() {
		return false
	}
	for ; e.sq.Head != e.sq.Tail; e.sq.Head++ {
		if s := e.sq.At(e.sq.Head); s.op != 0 {
			e.emit(s.id, s.op, fabric.StatusFlushed, e.vendor)
		}
	}
	for ; e.rq.Head != e.rq.Tail; e.rq.Head++ {
		e.emit(*e.rq.At(e.rq.Head), fabric.OpRecv, fabric.StatusFlushed, e.vendor)
	}
	if e.phase() != phaseClosed {
		e.emit(0, fabric.OpDisconnect, e.cause, e.vendor)
	}
	e.link = linkGone
	return true
}

func (e *Endpoint) emit(id uint64, op fabric.Op, status fabric.Status, vendor uint32) {
	e.cq.out.Emit(fabric.Completion{Tag: e.tag, ID: id, Op: op, Status: status, Vendor: vendor})
}
