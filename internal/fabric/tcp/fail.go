package tcp

import (
	"errors"

	"golang.org/x/sys/unix"

	"github.com/rdmad/rdmad/internal/fabric"
)

// Values of Completion.Vendor that are not an errno.
const (
	// VendorEndOfStream: the peer has closed the connection.
	VendorEndOfStream uint32 = 0x10000 + iota
	// VendorMalformed: the peer sent a frame that is none.
	VendorMalformed
	// VendorSequence: a request is out of sequence.
	VendorSequence
	// VendorUnexpected: an answer or refusal fits no request.
	VendorUnexpected
	// VendorRegionClosed: a region was closed while bytes of it were under way.
	VendorRegionClosed
	// VendorRefusedPeer: this side has refused a request of the peer.
	VendorRefusedPeer
	// VendorRefusedByPeer: the peer has refused a request of this side.
	VendorRefusedByPeer
	// VendorTLS: what came is not what the peer has encrypted, or the peer says so of
	// what this side has.
	VendorTLS
)

// vendorOf returns the errno of err, or 0.
func vendorOf(err error) uint32 {
	var errno unix.Errno
	if errors.As(err, &errno) {
		return uint32(errno)
	}
	return 0
}

// fail ends the connection for the given reason.
func (e *Endpoint) fail(why fabric.Status, vendor uint32) {
	if e.link >= linkRefusing {
		return
	}
	e.cause, e.vendor = why, vendor
	e.link = linkDown
	// The descriptor was valid and is not in use: nothing can go wrong that
	// anybody could still do something about.
	_ = e.hangUp()
	e.cq.push(e)
}

// refuse answers the peer's request seq with a NAK and ends the connection.
func (e *Endpoint) refuse(seq uint32, why fabric.Status) {
	e.stats.Refused++
	nak := &e.tx.nak
	nak.used, nak.seq = headerSize, seq
	putHeader(nak.head[:], &frame{op: wireNak, status: why, seq: seq})
	e.reject(VendorRefusedPeer)
}

// reject ends the connection because of what the peer sent. Without a NAK there
// is nothing to tell but what is owed for earlier requests.
func (e *Endpoint) reject(vendor uint32) {
	e.cause, e.vendor = fabric.StatusFatal, vendor
	e.link = linkRefusing
	e.cq.push(e)
}

// malformed handles a header that does not parse. If it looks like the next
// request, its poster is told.
func (e *Endpoint) malformed(f *frame) {
	if f.op.isRequest() && f.seq == e.rx.expect {
		e.refuse(f.seq, fabric.StatusRemoteInvalid)
		return
	}
	e.reject(VendorMalformed)
}

// down ends linkRefusing. The socket stays until Close: closing it with unread
// bytes would reset the connection and could destroy the NAK on its way.
func (e *Endpoint) down() {
	e.link = linkDown
	_ = e.unwatch()
	// An error means that the connection is gone, which is the aim.
	_ = unix.Shutdown(e.fd, unix.SHUT_WR)
	e.cq.push(e)
}

// refused handles a NAK: the request it names fails, the connection ends.
func (e *Endpoint) refused(f *frame) {
	q := &e.sq
	// A frame that is under way can have been refused by its header.
	limit := q.next + e.begun()
	back := limit - f.seq
	if back == 0 || back > uint32(len(q.ring)) {
		// Never sent, or long forgotten.
		if back == 0 || back > 1<<31 {
			e.reject(VendorUnexpected)
			return
		}
		e.fail(f.status, VendorRefusedByPeer)
		return
	}
	s := q.at(f.seq)
	// The entry is still the request's own, for lack of a later one, but the
	// completion may have been reported already.
	if s.seq == f.seq && (f.seq-q.head < uint32(q.len()) || !s.signaled) {
		e.culprit = s
	}
	e.fail(f.status, VendorRefusedByPeer)
}

// drain reports what is left after the end of the connection: the refused work
// request, the others in order, posted receives, OpDisconnect.
func (e *Endpoint) drain(c []fabric.Completion) int {
	n := 0
	put := func(d fabric.Completion) bool {
		if n == len(c) {
			return false
		}
		d.Tag, d.Vendor = e.tag, e.vendor
		c[n] = d
		n++
		return true
	}
	if s := e.culprit; s != nil && s.seq-e.sq.head >= uint32(e.sq.len()) {
		// Unsignaled and retired in good faith.
		if !put(fabric.Completion{ID: s.id, Op: s.op, Status: e.cause}) {
			return n
		}
		e.culprit = nil
	}
	for ; e.sq.head != e.sq.tail; e.sq.head++ {
		s := e.sq.at(e.sq.head)
		d := fabric.Completion{ID: s.id, Op: s.op, Status: fabric.StatusFlushed}
		switch {
		case s == e.culprit:
			d.Status = e.cause
		case s.state == sendDone && !s.signaled:
			continue
		case s.state == sendDone:
			d.Status = fabric.StatusSuccess
		}
		if !put(d) {
			return n
		}
		if s == e.culprit {
			e.culprit = nil
		}
	}
	for ; e.rq.head != e.rq.tail; e.rq.head++ {
		d := fabric.Completion{ID: e.rq.at(e.rq.head).id, Op: fabric.OpRecv, Status: fabric.StatusFlushed}
		if e.rx.short {
			d.Status = fabric.StatusLocalLength
		}
		if !put(d) {
			return n
		}
		e.rx.short = false
	}
	if !e.closing && !e.reported {
		if !put(fabric.Completion{Op: fabric.OpDisconnect, Status: e.cause}) {
			return n
		}
		e.reported = true
	}
	e.link = linkGone
	e.cq.drop(e)
	return n
}
