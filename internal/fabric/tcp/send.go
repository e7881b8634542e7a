package tcp

import (
	"encoding/binary"
	"errors"
	"math/bits"

	"golang.org/x/sys/unix"

	"github.com/rdmad/rdmad/internal/fabric"
	"github.com/rdmad/rdmad/shm"
)

const (
	// gatherLimit bounds the bytes of one writev, but for its last frame. More would save
	// little, and the receiver begins with what has come while the rest is written.
	gatherLimit = 128 << 10
	// flushLimit is after how many bytes flush leaves the rest to another turn, and how much of a frame one writev is
	// given. A peer that reads as fast as this side writes would otherwise keep the agent, whom others wait for,
	// through all that it has asked for.
	flushLimit = 1 << 20
)

// txFrame is a frame to send: the used part of head, then payload.
type txFrame struct {
	head    [headerSize + maxInline]byte
	used    int
	payload []byte
	// region is an answer's source, to be acquired while payload is read.
	region *region
	seq    uint32
	answer bool
}

func (f *txFrame) size() int { return f.used + len(f.payload) }

// sendState is how far a work request has come.
type sendState uint8

const (
	sendQueued sendState = iota
	sendWaiting
	sendDone
)

// sendEntry is a work request in the send queue.
type sendEntry struct {
	txFrame
	id       uint64
	op       fabric.Op
	signaled bool
	state    sendState
	// dst and dstRegion are where a read's or an atomic's answer goes.
	dst       []byte
	dstRegion *region
}

// awaits reports whether the request is done only with its answer.
func (s *sendEntry) awaits() bool { return s.op >= fabric.OpRead && s.op != fabric.OpSend }

// sendQueue is a ring of work requests, addressed by sequence number:
// head <= next <= tail; [head, next) are sent, [next, tail) are not.
type sendQueue struct {
	ring             []sendEntry
	depth            int
	head, next, tail uint32
}

func newSendQueue(depth int) sendQueue {
	return sendQueue{ring: make([]sendEntry, ringSize(depth)), depth: depth}
}

// ringSize returns the power of two for a ring of depth entries, at least 1.
func ringSize(depth int) int { return 1 << bits.Len(uint(max(depth, 1)-1)) }

func (q *sendQueue) len() int                 { return int(q.tail - q.head) }
func (q *sendQueue) at(seq uint32) *sendEntry { return &q.ring[seq&uint32(len(q.ring)-1)] }

// skipSilent drops finished work requests that nobody wants to hear of.
func (q *sendQueue) skipSilent() {
	for q.head != q.next {
		s := q.at(q.head)
		if s.state != sendDone || s.signaled {
			return
		}
		q.head++
	}
}

func newSender() sender {
	s := sender{
		answers: make([]txFrame, maxReads),
		frames:  make([]*txFrame, 0, shm.MaxVecs/2+1),
	}
	s.nak.answer = true
	for i := range s.answers {
		s.answers[i].answer = true
	}
	return s
}

// PostSend implements fabric.Endpoint. All that is taken goes out with one system
// call if the socket has room.
func (e *Endpoint) PostSend(wrs []fabric.SendWR) (int, error) {
	if e.link != linkOpen {
		return 0, fabric.ErrClosed
	}
	n, err := 0, error(nil)
	for ; n < len(wrs); n++ {
		if e.sq.len() >= e.sq.depth {
			err = fabric.ErrQueueFull
			break
		}
		if err = e.enqueue(&wrs[n]); err != nil {
			break
		}
	}
	e.flush()
	return n, err
}

// enqueue checks w and adds it to the send queue.
func (e *Endpoint) enqueue(w *fabric.SendWR) error {
	if w.Op < fabric.OpWrite || w.Op > fabric.OpFetchAdd || w.Local.Len > MaxPayload {
		return fabric.ErrInvalid
	}
	r, mem, ok := e.pd.local(w.Local)
	if !ok {
		return fabric.ErrInvalid
	}
	s := e.sq.at(e.sq.tail)
	f := frame{op: wireOps[w.Op], seq: e.sq.tail, length: w.Local.Len, addr: w.RemoteAddr, key: w.RemoteKey}
	s.payload, s.dst, s.dstRegion, s.used = nil, nil, nil, headerSize
	switch w.Op {
	case fabric.OpRead:
		s.dst, s.dstRegion = mem, r
	case fabric.OpCompareSwap, fabric.OpFetchAdd:
		if len(mem) != atomicSize {
			return fabric.ErrInvalid
		}
		s.dst, s.dstRegion = mem, r
		f.length = operandSize
		binary.LittleEndian.PutUint64(s.head[headerSize:], w.Compare)
		binary.LittleEndian.PutUint64(s.head[headerSize+8:], w.Swap)
		s.used += operandSize
	case fabric.OpWriteImm:
		f.imm = w.Imm
		s.payload = mem
	case fabric.OpSend:
		f.addr, f.key = 0, 0
		s.payload = mem
	default:
		s.payload = mem
	}
	if w.Flags&fabric.FlagInline != 0 {
		if s.dst != nil || len(mem) > maxInline {
			return fabric.ErrInvalid
		}
		s.used += copy(s.head[headerSize:], mem)
		s.payload = nil
	}
	putHeader(s.head[:], &f)
	s.seq, s.id, s.op = f.seq, w.ID, w.Op
	s.signaled, s.state = w.Flags&fabric.FlagSignaled != 0, sendQueued
	e.sq.tail++
	return nil
}

// flush hands frames to the socket until there are no more, it takes no more, or it was enough for one turn.
func (e *Endpoint) flush() {
	e.spent = false
	switch {
	case !e.active: // Connect may be at work on the rest
	case e.sec != nil:
		e.flushSecured()
	default:
		e.flushPlain()
	}
	e.sq.skipSilent()
	if e.spent || e.sq.head != e.sq.next && e.sq.at(e.sq.head).state == sendDone {
		e.cq.push(e)
	}
}

// sendable reports whether flush is to go on, having begun when the socket had taken from bytes.
func (e *Endpoint) sendable(from uint64) bool {
	if e.fd < 0 || e.stuck || e.severed || e.link >= linkDown {
		return false
	}
	e.spent = e.stats.BytesOut-from >= flushLimit
	return !e.spent
}

// flushPlain is flush without TLS: the socket takes the bytes from where they are.
func (e *Endpoint) flushPlain() {
	for from := e.stats.BytesOut; e.sendable(from) && e.gather(); {
		want := e.tx.vec.Len()
		n, err := e.tx.vec.Writev(e.fd)
		if want > 0 {
			e.stats.Writes++
		}
		e.letGo()
		switch {
		case err == nil:
			e.sent(n)
			if n < want {
				e.jam()
			}
		case errors.Is(err, unix.EAGAIN):
			e.jam()
		case errors.Is(err, unix.EINTR):
		default:
			e.sever(err)
		}
	}
}

// sever deals with a socket that takes no bytes any more. The peer may have said why:
// read on, it ends with the reason. Where it has not, err is the reason: the socket tells it once.
func (e *Endpoint) sever(err error) {
	e.severed, e.readable, e.broke = true, true, err
	e.cq.push(e)
}

// jam waits for the socket to become writable.
func (e *Endpoint) jam() {
	e.stuck = true
	e.stats.Stuck++
	e.watch()
}

// letGo releases the memory that gather acquired.
func (e *Endpoint) letGo() {
	for _, f := range e.tx.frames {
		if f.region != nil {
			f.region.release()
		}
	}
	e.tx.vec.Reset()
}

// gather lists the frames of the next writev: the rest of a partial one, then
// answers, then work requests as far as the limit of waiting reads allows. It
// reports whether there is anything to write.
//
// Answers overtake work requests: the peer's reads must not wait for ours, or two
// endpoints that both have used up their reads would wait for each other. But a peer that always has
// some under way must not keep our requests from ever leaving: after a writev without room for
// one the next has one that comes first.
func (e *Endpoint) gather() bool {
	t := &e.tx
	t.frames, t.done = t.frames[:0], 0
	next, reads := e.sq.next, t.reads
	if t.partial != nil && !e.list(t.partial, t.off) {
		e.letGo()
		if e.link == linkRefusing {
			e.down() // no refusal can follow half a frame
			return false
		}
		e.fail(fabric.StatusFatal, VendorRegionClosed)
		return false
	}
	if t.crowdedOut && e.link == linkOpen {
		next, reads = e.listRequests(next, reads, 1)
	}
	t.crowdedOut = false
	for i := range t.answerCount {
		f := &t.answers[(t.answerHead+i)%maxReads]
		if f == t.partial {
			continue
		}
		if t.vec.Parts()+2 > shm.MaxVecs || t.vec.Len() > gatherLimit {
			t.crowdedOut = next == e.sq.next
			return true
		}
		if !e.list(f, 0) {
			// The region was closed after the request was accepted. The
			// refusal takes the place of this answer and the later ones.
			t.answerCount = i
			if e.link == linkOpen {
				e.refuse(f.seq, fabric.StatusRemoteAccess)
			}
			break
		}
	}
	if e.link == linkRefusing {
		if t.partial != &t.nak && t.vec.Len() <= gatherLimit {
			e.list(&t.nak, 0)
		}
		return len(t.frames) > 0
	}
	e.listRequests(next, reads, maxDepth)
	return len(t.frames) > 0
}

// listRequests adds up to most work requests, from the one with number next on, to the vec, as far as it
// has room and the limit of reads allows. It returns the number behind the last one, and how many
// reads there would be.
func (e *Endpoint) listRequests(next uint32, reads, most int) (uint32, int) {
	t := &e.tx
	for end := next + uint32(min(most, int(e.sq.tail-next))); next != end; next++ {
		s := e.sq.at(next)
		if s.awaits() {
			if reads == maxReads {
				break
			}
			reads++
		}
		if &s.txFrame == t.partial {
			continue
		}
		if t.vec.Parts()+2 > shm.MaxVecs || t.vec.Len() > gatherLimit {
			break
		}
		e.list(&s.txFrame, 0)
	}
	return next, reads
}

// list adds f without its first off bytes to the vec, as far as one writev may go: behind as much as that
// no frame is listed. It fails, adding nothing, when f's memory is gone.
func (e *Endpoint) list(f *txFrame, off int) bool {
	if f.region != nil && !f.region.acquire() {
		return false
	}
	t := &e.tx
	t.frames = append(t.frames, f)
	t.vec.Append(f.head[min(off, f.used):f.used])
	payload := f.payload[max(off-f.used, 0):]
	t.vec.Append(payload[:min(len(payload), flushLimit)])
	return true
}

// sent accounts for n more bytes of what gather has listed: the peer may have read them.
func (e *Endpoint) sent(n int) {
	t := &e.tx
	e.stats.BytesOut += uint64(n)
	e.cq.moved += n
	for _, f := range t.frames[t.done:] {
		off := 0
		if f == t.partial {
			off = t.off
		}
		if n < f.size()-off {
			if n > 0 || off > 0 {
				t.partial, t.off = f, off+n
			}
			return
		}
		n -= f.size() - off
		t.partial, t.off = nil, 0
		t.done++
		if f.size() > 0 {
			e.stats.FramesOut++
		}
		switch {
		case f == &t.nak:
			e.down()
			return
		case f.answer:
			f.payload, f.region = nil, nil
			t.answerHead = (t.answerHead + 1) % maxReads
			t.answerCount--
		case e.link == linkOpen:
			e.sentRequest()
		}
	}
}

// sentRequest moves the next work request on.
func (e *Endpoint) sentRequest() {
	s := e.sq.at(e.sq.next)
	e.sq.next++
	if s.awaits() {
		s.state = sendWaiting
		e.tx.reads++
	} else {
		s.state = sendDone
	}
}

// answer returns the next free answer frame, or nil when the peer asks for more
// than maxReads at a time.
func (e *Endpoint) answer(f *frame) *txFrame {
	t := &e.tx
	if t.answerCount == maxReads {
		return nil
	}
	a := &t.answers[(t.answerHead+t.answerCount)%maxReads]
	t.answerCount++
	a.used, a.payload, a.region, a.seq = headerSize, nil, nil, f.seq
	putHeader(a.head[:], f)
	return a
}

// retire reports finished work requests in order.
func (e *Endpoint) retire(c []fabric.Completion) int {
	n := 0
	for e.sq.head != e.sq.next {
		s := e.sq.at(e.sq.head)
		if s.state != sendDone {
			break
		}
		if s.signaled {
			if n == len(c) {
				e.cramped = true
				break
			}
			c[n] = fabric.Completion{Tag: e.tag, ID: s.id, Op: s.op}
			n++
		}
		e.sq.head++
	}
	return n
}
