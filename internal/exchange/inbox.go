package exchange

import (
	"encoding/binary"
	"fmt"
)

// FrameSize is the size in bytes of what precedes each message in a stream of bytes:
// the message's length.
const FrameSize = 4

// Window is how many bytes either side of a stream may send ahead of its reader.
const Window = 256 << 10

// PutFrame writes what precedes a message of n bytes into the first FrameSize bytes of b.
func PutFrame(b []byte, n int) { binary.LittleEndian.PutUint32(b, uint32(n)) }

// Inbox takes the bytes of a stream and gives out its messages. It tells how far the
// sender may go, so that it never holds more than the window and the message that its
// reader waits for.
type Inbox struct {
	window uint64
	max    int // the largest message

	got   uint64 // bytes that have come
	taken uint64 // bytes of messages that have been given out
	limit uint64 // how far the sender may go, as it was told
	ended bool

	frame  [FrameSize]byte
	nframe int
	need   int // the size of the message that is not complete, when its frame is
	have   int // bytes of it that have come

	// Messages wait as they have come, with their frames, in queue from first on, but for the bytes of
	// those larger than smallMost, which are in large. The last one may not be complete. A message
	// is made of them when it is taken: a slice for each that waits would take many times the window.
	queue   []byte
	first   int
	large   fifo
	waiting int // complete messages

	dropped bool
}

const (
	// smallMost is the largest message that waits in Inbox.queue.
	smallMost = 256
	// keptQueue is how much room of an empty Inbox.queue is kept.
	keptQueue = 16 << 10
)

// NewInbox returns an inbox with a window in bytes, for messages of at most max bytes.
func NewInbox(window, max int) *Inbox {
	return &Inbox{window: uint64(window), max: max, limit: uint64(window)}
}

// firstGrowth is the room that a message gets before its bytes have come.
const firstGrowth = 64 << 10

// Add takes the bytes at offset of the stream, which it copies. Errors wrap ErrProtocol.
func (in *Inbox) Add(offset uint64, p []byte) error {
	switch {
	case offset != in.got:
		return fmt.Errorf("%w: bytes at %d of a stream, expected at %d", ErrProtocol, offset, in.got)
	case in.ended && len(p) > 0:
		return fmt.Errorf("%w: %d bytes behind the end of a stream", ErrProtocol, len(p))
	case uint64(len(p)) > in.limit-in.got:
		return fmt.Errorf("%w: %d bytes at %d of a stream that may go to %d", ErrProtocol, len(p), offset, in.limit)
	}
	in.got += uint64(len(p))
	if in.dropped {
		return nil
	}
	for len(p) > 0 {
		if in.nframe < FrameSize {
			n := copy(in.frame[in.nframe:], p)
			in.nframe += n
			p = p[n:]
			if in.nframe < FrameSize {
				return nil
			}
			size := binary.LittleEndian.Uint32(in.frame[:])
			if uint64(size) > uint64(in.max) {
				return fmt.Errorf("%w: a message of %d bytes, at most %d", ErrProtocol, size, in.max)
			}
			in.begin(int(size))
		}
		n := min(len(p), in.need-in.have)
		in.keep(p[:n])
		p = p[n:]
		in.complete()
	}
	in.complete()
	return nil
}

// begin begins a message of which the frame is complete.
func (in *Inbox) begin(size int) {
	in.need, in.have = size, 0
	in.enqueue(in.frame[:])
	if size > smallMost {
		in.large.push(make([]byte, 0, min(size, firstGrowth)))
	}
}

// keep keeps the next bytes of the message that has begun.
func (in *Inbox) keep(p []byte) {
	in.have += len(p)
	if in.need > smallMost {
		last := in.large.last()
		*last = append(*last, p...)
		return
	}
	in.enqueue(p)
}

// enqueue appends to the queue, in the room of what was taken before it gets more.
func (in *Inbox) enqueue(p []byte) {
	if len(in.queue)+len(p) > cap(in.queue) && in.first > len(in.queue)/2 {
		in.queue = in.queue[:copy(in.queue, in.queue[in.first:])]
		in.first = 0
	}
	in.queue = append(in.queue, p...)
}

// complete notes that a message is all there.
func (in *Inbox) complete() {
	if in.nframe == FrameSize && in.have == in.need {
		in.waiting++
		in.nframe = 0
	}
}

// End notes that nothing more comes. It is an error, which wraps ErrProtocol, in the
// middle of a message, which is no end.
func (in *Inbox) End() error {
	if in.nframe > 0 {
		return fmt.Errorf("%w: a stream ends within a message", ErrProtocol)
	}
	in.ended = true
	return nil
}

// Take returns the next message, which is the caller's. ok is false if there is none;
// end, if there will be none.
func (in *Inbox) Take() (msg []byte, ok, end bool) {
	if in.waiting == 0 {
		return nil, false, in.ended
	}
	in.waiting--
	size := int(binary.LittleEndian.Uint32(in.queue[in.first:]))
	in.first += FrameSize
	if size > smallMost {
		msg = in.large.pop()
	} else {
		msg = append(make([]byte, 0, size), in.queue[in.first:in.first+size]...)
		in.first += size
	}
	if in.first == len(in.queue) {
		if in.queue = in.queue[:0]; cap(in.queue) > keptQueue {
			in.queue = nil
		}
		in.first = 0
	}
	in.taken += uint64(FrameSize + size)
	return msg, true, false
}

// Drop forgets what has come, and keeps nothing of what still comes: there is no reader any more. The
// sender gets no more credit by that.
func (in *Inbox) Drop() {
	in.dropped = true
	in.queue, in.first, in.large, in.waiting, in.nframe = nil, 0, fifo{}, 0, 0
}

// Got returns how many bytes have come.
func (in *Inbox) Got() uint64 { return in.got }

// Credit returns how far the sender may go, and how much further that is than it was
// told last. waiting says that a reader waits: what is there of a message that is not
// complete is then as good as given out.
func (in *Inbox) Credit(waiting bool) (limit, gain uint64) {
	from := in.taken
	if waiting && in.waiting == 0 {
		from = in.got
	}
	if to := from + in.window; to > in.limit {
		return to, to - in.limit
	}
	return in.limit, 0
}

// Tell notes that the sender is told of a limit that Credit has returned.
func (in *Inbox) Tell(limit uint64) { in.limit = max(in.limit, limit) }

// Large returns the size of the message that a reader who waits gets next, if it is larger than the
// window and has begun, else 0: what the inbox takes of it beyond the window it takes for that reader.
func (in *Inbox) Large() int {
	if in.waiting > 0 || in.nframe < FrameSize || uint64(in.need) <= in.window {
		return 0
	}
	return in.need
}

// Window returns the window in bytes.
func (in *Inbox) Window() uint64 { return in.window }

// fifo is a queue of messages, oldest first.
type fifo struct {
	list  [][]byte
	first int
}

func (q *fifo) push(msg []byte) {
	if len(q.list) == cap(q.list) && q.first > len(q.list)/2 {
		// The room of those that were given out is used before there is more: a reader may never
		// come to the last one.
		n := copy(q.list, q.list[q.first:])
		clear(q.list[n:])
		q.list, q.first = q.list[:n], 0
	}
	q.list = append(q.list, msg)
}

// last returns where the newest message is, of which there must be one.
func (q *fifo) last() *[]byte { return &q.list[len(q.list)-1] }

// pop returns the oldest message, of which there must be one.
func (q *fifo) pop() (msg []byte) {
	msg, q.list[q.first] = q.list[q.first], nil
	if q.first++; q.first == len(q.list) {
		q.list, q.first = q.list[:0], 0
	}
	return msg
}
