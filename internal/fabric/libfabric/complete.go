//go:build libfabric && cgo && linux

package libfabric

import "github.com/rdmad/rdmad/internal/fabric"

// complete handles a completion of the library.
func (e *Endpoint) complete(w *cWC) {
	if e.link != linkOpen {
		return // what it is about is reported as flushed
	}
	sends, recvs := uint32(e.sq.Cap()), uint32(e.loud.Cap())
	switch i := uint32(w.index); {
	case i == arrived:
		e.arrived(w)
	case i < sends:
		e.sent(w, i)
	case i < sends+recvs:
		e.received(w, i-sends)
	case i == sends+recvs+1:
		// The greeting: Connect has seen that the peer is there.
	case i == unasked:
		e.fail(fabric.StatusLocalLength, VendorUnasked, true)
	default:
		e.fail(status(w), VendorUnexpected, true)
	}
}

// status is never StatusSuccess.
func status(w *cWC) fabric.Status {
	if s := wcStatus(uint32(w.status)); s != fabric.StatusSuccess {
		return s
	}
	return fabric.StatusFatal
}

// sent notes the end of the work request at an index and retires all that have ended, in
// order: the library needs no order.
func (e *Endpoint) sent(w *cWC, index uint32) {
	pos, ok := e.sq.FindIndex(index)
	if !ok || pos-e.sq.Head >= e.next-e.sq.Head || e.sq.At(pos).done {
		e.fail(fabric.StatusFatal, VendorUnexpected, true)
		return
	}
	s := e.sq.At(pos)
	s.done, s.status, s.vendor = true, wcStatus(uint32(w.status)), uint32(w.vendor)
	for e.link == linkOpen && e.sq.Head != e.next && e.sq.At(e.sq.Head).done {
		s := e.sq.At(e.sq.Head)
		e.sq.Head++
		if s.status == fabric.StatusSuccess {
			if s.report {
				e.emit(s.id, s.op, s.status, 0)
			}
			continue
		}
		e.emit(s.id, s.op, s.status, s.vendor)
		e.fail(s.status, s.vendor, true)
	}
}

// received notes the end of the receive at an index and retires all that have ended, in
// order.
func (e *Endpoint) received(w *cWC, index uint32) {
	pos, ok := e.loud.FindIndex(index)
	if !ok || pos-e.loud.Head >= e.given-e.loud.Head || e.loud.At(pos).done {
		e.fail(fabric.StatusFatal, VendorUnexpected, true)
		return
	}
	r := e.loud.At(pos)
	r.done, r.status, r.vendor, r.len = true, wcStatus(uint32(w.status)), uint32(w.vendor), uint32(w.len)
	for e.link == linkOpen && e.loud.Head != e.given && e.loud.At(e.loud.Head).done {
		r := e.loud.At(e.loud.Head)
		e.loud.Head++
		c := fabric.Completion{Tag: e.tag, ID: r.id, Op: fabric.OpRecv, Status: r.status}
		if r.status == fabric.StatusSuccess {
			c.Len = r.len
			e.cq.out.Emit(c)
			continue
		}
		c.Vendor = r.vendor
		e.cq.out.Emit(c)
		e.fail(r.status, r.vendor, true)
	}
}

// arrived takes an immediate.
func (e *Endpoint) arrived(w *cWC) {
	if w.status != 0 {
		s, vendor := status(w), uint32(w.vendor)
		if s == fabric.StatusLocalLength {
			vendor = VendorBadNotice
		}
		e.fail(s, vendor, true)
		return
	}
	if e.early.len() == maxEarly {
		e.fail(fabric.StatusRNRExceeded, VendorTooManyArrivals, true)
		return
	}
	e.early.push(arrival{imm: uint32(w.data), len: uint32(w.len)})
	e.admitEarly()
}

// admitEarly reports immediates as long as there are receives for them.
func (e *Endpoint) admitEarly() {
	for e.early.len() > 0 && e.quiet.Len() > 0 {
		a, r := e.early.pop(), e.quiet.At(e.quiet.Head)
		e.quiet.Head++
		e.cq.out.Emit(fabric.Completion{Tag: e.tag, ID: r.id, Op: fabric.OpRecvImm, Imm: a.imm, Len: a.len})
	}
}

// wake handles what came before Activate, or before there was a receive for it, and pushes what the library had no room for before.
func (e *Endpoint) wake() {
	e.mu.Lock()
	held := e.held
	e.held = nil
	e.mu.Unlock()
	for i := range held {
		e.complete(&held[i])
	}
	told := e.told
	e.told = nil
	for _, n := range told {
		e.cq.notify(n) // what has come before it is reported first
	}
	if e.link == linkOpen {
		e.admitEarly()
	}
	e.push()
}

// noticed handles what another goroutine has found out.
func (e *Endpoint) noticed(n notice) {
	if n.closed {
		if e.link == linkOpen {
			e.link = linkDead
			e.cq.ending = append(e.cq.ending, e)
		}
		return
	}
	if e.phase() != phaseActive {
		e.told = append(e.told, n)
		return
	}
	e.fail(n.why, n.vendor, n.own)
}

// finish reports what is left of an ended endpoint: sends first, then receives, then
// OpDisconnect.
func (e *Endpoint) finish() {
	for ; e.sq.Head != e.sq.Tail; e.sq.Head++ {
		s := e.sq.At(e.sq.Head)
		if status := s.status; s.done && status == fabric.StatusSuccess {
			// It was done, but one before it was not.
			if s.report {
				e.emit(s.id, s.op, status, 0)
			}
			continue
		}
		e.emit(s.id, s.op, fabric.StatusFlushed, e.vendor)
	}
	for e.quiet.Len()+e.loud.Len() > 0 {
		r := &e.quiet
		if r.Len() == 0 || e.loud.Len() > 0 && e.loud.At(e.loud.Head).number < r.At(r.Head).number {
			r = &e.loud
		}
		e.emit(r.At(r.Head).id, fabric.OpRecv, fabric.StatusFlushed, e.vendor)
		r.Head++
	}
	if e.phase() != phaseClosed {
		e.emit(0, fabric.OpDisconnect, e.cause, e.vendor)
	}
	e.link = linkGone
}

func (e *Endpoint) emit(id uint64, op fabric.Op, status fabric.Status, vendor uint32) {
	e.cq.out.Emit(fabric.Completion{Tag: e.tag, ID: id, Op: op, Status: status, Vendor: vendor})
}
