package tcp

import (
	"errors"

	"golang.org/x/sys/unix"

	"github.com/rdmad/rdmad/internal/fabric"
	"github.com/rdmad/rdmad/shm"
)

// recvEntry is a posted receive.
type recvEntry struct {
	id     uint64
	region *region
	mem    []byte
}

// recvQueue is a ring of posted receives.
type recvQueue struct {
	ring       []recvEntry
	depth      int
	head, tail uint32
}

func newRecvQueue(depth int) recvQueue {
	return recvQueue{ring: make([]recvEntry, ringSize(depth)), depth: depth}
}

func (q *recvQueue) len() int               { return int(q.tail - q.head) }
func (q *recvQueue) at(i uint32) *recvEntry { return &q.ring[i&uint32(len(q.ring)-1)] }

// PostRecv implements fabric.Endpoint.
func (e *Endpoint) PostRecv(wrs []fabric.RecvWR) (int, error) {
	if e.link != linkOpen {
		return 0, fabric.ErrClosed
	}
	n, err := 0, error(nil)
	for ; n < len(wrs); n++ {
		if e.rq.len() >= e.rq.depth {
			err = fabric.ErrQueueFull
			break
		}
		r, mem, ok := e.pd.local(wrs[n].Local)
		if !ok {
			err = fabric.ErrInvalid
			break
		}
		*e.rq.at(e.rq.tail) = recvEntry{id: wrs[n].ID, region: r, mem: mem}
		e.rq.tail++
	}
	if n > 0 && e.starved {
		// Bytes may wait in the socket and in the buffer: look at both.
		e.starved, e.readable = false, true
		e.watch()
		e.cq.push(e)
	}
	return n, err
}

// rxState is what the receiver waits for.
type rxState uint8

const (
	rxHeader rxState = iota
	// rxBegin: a header is complete and its request may be waiting for a
	// posted receive.
	rxBegin
	rxPayload
	// rxFinish: header and payload are complete; the end may be waiting for a
	// posted receive or for room for its completion.
	rxFinish
)

// receiver takes the stream apart. Bytes [r, w) of buf are not looked at yet;
// while dst waits for bytes there are none.
type receiver struct {
	buf   []byte
	r, w  int
	state rxState
	f     frame
	// dst is the rest of the memory that the payload goes to and region its
	// owner, nil for the receiver's own.
	dst     []byte
	region  *region
	operand [operandSize]byte
	vec     shm.Vec
	// expect is the sequence number of the peer's next request.
	expect uint32
	// short: the next posted receive was too small for what arrived.
	short bool
}

// receive does one turn of receiving: what is buffered, at most one read, and what
// that brought. It returns the number of completions.
func (e *Endpoint) receive(c []fabric.Completion) int {
	n := e.parse(c)
	if e.link != linkOpen || e.cramped {
		return n
	}
	if e.starved {
		if e.severed {
			// The connection is gone, so the arrival that waits for a
			// receive will not be acknowledged.
			e.endOfStream()
		}
		return n
	}
	if !e.readable || !e.read() {
		return n
	}
	return n + e.parse(c[n:])
}

const (
	// bulkPayload is from what size on a payload mostly has one of its size behind it.
	bulkPayload = 16 << 10
	// bulkAhead is how much is read ahead of such a payload's place: enough for the next
	// header. What comes into the buffer has to be copied from there.
	bulkAhead = 4 << 10
)

// ahead is the buffer to read into behind dst.
func (rx *receiver) ahead() []byte {
	if rx.f.length < bulkPayload {
		return rx.buf[rx.w:]
	}
	return rx.buf[rx.w:min(max(rx.w, bulkAhead), len(rx.buf))]
}

// read reads from the socket once and reports whether something came.
func (e *Endpoint) read() bool {
	if e.sec != nil {
		return e.readSecured()
	}
	rx := &e.rx
	direct := len(rx.dst)
	// parse has left less than a header, or a payload that it used up.
	rx.w = copy(rx.buf, rx.buf[rx.r:rx.w])
	rx.r = 0
	rx.vec.Append(rx.dst)
	rx.vec.Append(rx.ahead())
	want := rx.vec.Len()
	if rx.region != nil && direct > 0 {
		if !rx.region.acquire() {
			rx.vec.Reset()
			e.vanished()
			return false
		}
	}
	n, err := rx.vec.Readv(e.fd)
	if rx.region != nil && direct > 0 {
		rx.region.release()
	}
	rx.vec.Reset()
	e.stats.Reads++
	if err != nil {
		e.readError(err)
		return false
	}
	if n == 0 {
		e.endOfStream()
		return false
	}
	e.stats.BytesIn += uint64(n)
	e.cq.moved += n
	e.cq.latest = e
	// A short read has drained the socket; level-triggered events tell of more.
	e.readable = n == want || e.severed
	placed := min(n, direct)
	rx.dst = rx.dst[placed:]
	rx.w += n - placed
	return true
}

// readError ends the connection unless err only says that there is nothing.
func (e *Endpoint) readError(err error) {
	switch {
	case errors.Is(err, unix.EINTR):
	case errors.Is(err, unix.EAGAIN) && !e.severed:
		e.readable = false
	case unreachable(err):
		e.fail(fabric.StatusRetryExceeded, vendorOf(err))
	case errors.Is(err, unix.EFAULT):
		e.fail(fabric.StatusLocalProtection, vendorOf(err))
	default:
		e.fail(fabric.StatusFlushed, vendorOf(err))
	}
}

// endOfStream ends a connection that brings no more bytes. After an error the kernel reports the end of the stream to
// whoever asks next, so one that a write was told of, or that nobody was told of yet, says whether the peer has closed the
// connection or was not heard of any more.
func (e *Endpoint) endOfStream() {
	err := e.broke
	if err == nil {
		if code, _ := unix.GetsockoptInt(e.fd, unix.SOL_SOCKET, unix.SO_ERROR); code != 0 {
			err = unix.Errno(code)
		}
	}
	if unreachable(err) {
		e.fail(fabric.StatusRetryExceeded, vendorOf(err))
		return
	}
	e.fail(fabric.StatusFlushed, VendorEndOfStream)
}

// unreachable reports whether err says that the peer has not answered, rather than what it answered.
func unreachable(err error) bool {
	return errors.Is(err, unix.ETIMEDOUT) || errors.Is(err, unix.EHOSTUNREACH) || errors.Is(err, unix.ENETUNREACH)
}

// parse handles what is in the buffer. It stops for want of bytes, of a posted
// receive (starved) or of room in c (cramped), or at the end of the connection.
func (e *Endpoint) parse(c []fabric.Completion) int {
	n, rx := 0, &e.rx
	for e.link == linkOpen {
		switch rx.state {
		case rxHeader:
			if rx.w-rx.r < headerSize {
				return n
			}
			good := parseHeader(rx.buf[rx.r:rx.w], &rx.f)
			rx.r += headerSize
			if !good {
				e.malformed(&rx.f)
				return n
			}
			rx.state = rxBegin
		case rxBegin:
			if !e.begin(&rx.f) {
				return n
			}
			rx.state = rxPayload
		case rxPayload:
			if !e.place() {
				return n
			}
			rx.state = rxFinish
		case rxFinish:
			took, done := e.finish(&rx.f, c[n:])
			n += took
			if !done {
				return n
			}
			e.stats.FramesIn++
			rx.region = nil
			rx.state = rxHeader
		}
	}
	return n
}

// place copies buffered payload to its place and reports whether it is complete.
func (e *Endpoint) place() bool {
	rx := &e.rx
	if len(rx.dst) > 0 && rx.w > rx.r {
		if rx.region != nil && !rx.region.acquire() {
			e.vanished()
			return false
		}
		k := copy(rx.dst, rx.buf[rx.r:rx.w])
		if rx.region != nil {
			rx.region.release()
		}
		rx.dst = rx.dst[k:]
		rx.r += k
	}
	return len(rx.dst) == 0
}

// vanished handles a region that was closed while a payload for it arrived.
func (e *Endpoint) vanished() {
	f := &e.rx.f
	switch {
	case f.op == wireSend:
		e.refuse(f.seq, fabric.StatusRemoteOperation)
	case f.op.isRequest():
		e.refuse(f.seq, fabric.StatusRemoteAccess)
	default:
		e.fail(fabric.StatusLocalProtection, VendorRegionClosed)
	}
}

// starve stops reading until a receive is posted.
func (e *Endpoint) starve() {
	if !e.starved {
		e.starved = true
		e.stats.Starved++
	}
}
