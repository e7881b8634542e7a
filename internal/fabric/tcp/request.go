package tcp

import (
	"encoding/binary"

	"github.com/rdmad/rdmad/internal/fabric"
	"github.com/rdmad/rdmad/shm"
)

// begin checks the frame f, of which only the header has been used, and prepares
// the place for its payload. It returns false when f has to wait for a posted
// receive or ended the connection. No byte of memory changes before it.
func (e *Endpoint) begin(f *frame) bool {
	rx := &e.rx
	if f.op.isRequest() && f.seq != rx.expect {
		e.reject(VendorSequence)
		return false
	}
	rx.dst, rx.region = nil, nil
	ok := true
	switch f.op {
	case wireWrite, wireWriteImm:
		rx.dst, rx.region, ok = e.reachable(f, uint64(f.length), fabric.AccessRemoteWrite)
	case wireRead:
		ok = e.beginRead(f)
	case wireCompareSwap, wireFetchAdd:
		rx.dst = rx.operand[:operandSize]
	case wireSend:
		ok = e.beginSend(f)
	case wireReadAnswer, wireAtomicAnswer:
		ok = e.beginAnswer(f)
	case wireNak:
		e.refused(f)
		return false
	}
	if ok && f.op.isRequest() {
		rx.expect++
	}
	return ok
}

// reachable returns the n bytes that f names if the peer may do with them what
// access says; otherwise it refuses f.
func (e *Endpoint) reachable(f *frame, n uint64, access fabric.Access) ([]byte, *region, bool) {
	if n == 0 {
		return nil, nil, true
	}
	r := e.pd.find(f.key)
	if r == nil || r.access&access == 0 {
		e.refuse(f.seq, fabric.StatusRemoteAccess)
		return nil, nil, false
	}
	mem, ok := r.slice(f.addr, n)
	if !ok || !r.acquire() {
		e.refuse(f.seq, fabric.StatusRemoteAccess)
		return nil, nil, false
	}
	r.release()
	return mem, r, true
}

// beginRead queues the answer to a read.
func (e *Endpoint) beginRead(f *frame) bool {
	mem, r, ok := e.reachable(f, uint64(f.length), fabric.AccessRemoteRead)
	if !ok {
		return false
	}
	a := e.answer(&frame{op: wireReadAnswer, seq: f.seq, length: f.length})
	if a == nil {
		e.refuse(f.seq, fabric.StatusRemoteInvalid)
		return false
	}
	a.payload, a.region = mem, r
	return true
}

// beginSend takes the next posted receive as the place for a send.
func (e *Endpoint) beginSend(f *frame) bool {
	if e.rq.len() == 0 {
		e.starve()
		return false
	}
	r := e.rq.at(e.rq.head)
	if uint64(f.length) > uint64(len(r.mem)) {
		e.rx.short = true
		e.refuse(f.seq, fabric.StatusRemoteInvalid)
		return false
	}
	e.rx.dst, e.rx.region = r.mem[:f.length], r.region
	return true
}

// beginAnswer finds the place for an answer. Answers come in the order of their
// requests, and nothing else is acceptable.
func (e *Endpoint) beginAnswer(f *frame) bool {
	s := e.waiting()
	if s == nil || s.seq != f.seq || (s.op == fabric.OpRead) != (f.op == wireReadAnswer) ||
		s.op == fabric.OpRead && int(f.length) != len(s.dst) {
		e.reject(VendorUnexpected)
		return false
	}
	if f.op == wireReadAnswer {
		e.rx.dst, e.rx.region = s.dst, s.dstRegion
		if len(s.dst) == 0 {
			e.rx.region = nil
		}
	} else {
		e.rx.dst = e.rx.operand[:atomicSize]
	}
	return true
}

// waiting returns the oldest work request that waits for its answer.
func (e *Endpoint) waiting() *sendEntry {
	if e.tx.reads == 0 {
		return nil
	}
	for seq := e.sq.head; seq != e.sq.next; seq++ {
		if s := e.sq.at(seq); s.state == sendWaiting {
			return s
		}
	}
	return nil
}

// finish carries out the frame f, whose payload is in place. It returns how many
// completions it stored in c and false when f has to wait or ended the connection.
func (e *Endpoint) finish(f *frame, c []fabric.Completion) (int, bool) {
	switch f.op {
	case wireWriteImm:
		return e.arrive(c, fabric.Completion{Tag: e.tag, Op: fabric.OpRecvImm, Imm: f.imm, Len: f.length})
	case wireSend:
		return e.arrive(c, fabric.Completion{Tag: e.tag, Op: fabric.OpRecv, Len: f.length})
	case wireCompareSwap, wireFetchAdd:
		return 0, e.atomic(f)
	case wireReadAnswer, wireAtomicAnswer:
		return 0, e.answered(f)
	}
	return 0, true
}

// arrive consumes a posted receive and reports done with its ID.
func (e *Endpoint) arrive(c []fabric.Completion, done fabric.Completion) (int, bool) {
	if e.rq.len() == 0 {
		e.starve()
		return 0, false
	}
	if len(c) == 0 {
		e.cramped = true
		return 0, false
	}
	done.ID = e.rq.at(e.rq.head).id
	e.rq.head++
	c[0] = done
	return 1, true
}

// atomic carries out a compare-and-swap or fetch-and-add and queues its answer.
func (e *Endpoint) atomic(f *frame) bool {
	mem, r, ok := e.reachable(f, atomicSize, fabric.AccessRemoteAtomic)
	if !ok {
		return false
	}
	if (f.addr-r.base+r.skew)%atomicSize != 0 {
		e.refuse(f.seq, fabric.StatusRemoteInvalid)
		return false
	}
	// Before there is an answer, whose header promises a value.
	if !r.acquire() {
		e.refuse(f.seq, fabric.StatusRemoteAccess)
		return false
	}
	defer r.release()
	a := e.answer(&frame{op: wireAtomicAnswer, seq: f.seq, length: atomicSize})
	if a == nil {
		e.refuse(f.seq, fabric.StatusRemoteInvalid)
		return false
	}
	compare := binary.LittleEndian.Uint64(e.rx.operand[:])
	swap := binary.LittleEndian.Uint64(e.rx.operand[8:])
	word := shm.Uint64At(mem, 0)
	var old uint64
	if f.op == wireFetchAdd {
		old = word.Add(swap) - swap
	} else {
		for old = word.Load(); old == compare && !word.CompareAndSwap(old, swap); {
			old = word.Load()
		}
	}
	binary.LittleEndian.PutUint64(a.head[headerSize:], old)
	a.used += atomicSize
	return true
}

// answered ends the work request that f answers.
func (e *Endpoint) answered(f *frame) bool {
	s := e.waiting()
	if s == nil {
		e.reject(VendorUnexpected)
		return false
	}
	if f.op == wireAtomicAnswer {
		if !s.dstRegion.acquire() {
			e.fail(fabric.StatusLocalProtection, VendorRegionClosed)
			return false
		}
		binary.NativeEndian.PutUint64(s.dst, binary.LittleEndian.Uint64(e.rx.operand[:]))
		s.dstRegion.release()
	}
	s.state = sendDone
	e.tx.reads--
	return true
}
