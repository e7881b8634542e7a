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
	msg    []byte // the message that is not complete
	need   int    // its size, when the frame is
	ready  [][]byte
	first  int
}

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
			in.need = int(size)
			in.msg = make([]byte, 0, min(in.need, firstGrowth))
		}
		n := min(len(p), in.need-len(in.msg))
		in.msg = append(in.msg, p[:n]...)
		p = p[n:]
		in.complete()
	}
	in.complete()
	return nil
}

// complete moves a message that is all there to those that are ready.
func (in *Inbox) complete() {
	if in.nframe == FrameSize && len(in.msg) == in.need {
		if len(in.ready) == cap(in.ready) && in.first > len(in.ready)/2 {
			// The room of those that were given out is used before there is more: a reader may never
			// come to the last one.
			n := copy(in.ready, in.ready[in.first:])
			clear(in.ready[n:])
			in.ready, in.first = in.ready[:n], 0
		}
		in.ready = append(in.ready, in.msg)
		in.msg, in.nframe = nil, 0
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
	if in.first == len(in.ready) {
		return nil, false, in.ended
	}
	msg, in.ready[in.first] = in.ready[in.first], nil
	if in.first++; in.first == len(in.ready) {
		in.ready, in.first = in.ready[:0], 0
	}
	in.taken += uint64(FrameSize + len(msg))
	return msg, true, false
}

// Got returns how many bytes have come.
func (in *Inbox) Got() uint64 { return in.got }

// Credit returns how far the sender may go, and how much further that is than it was
// told last. waiting says that a reader waits: what is there of a message that is not
// complete is then as good as given out.
func (in *Inbox) Credit(waiting bool) (limit, gain uint64) {
	from := in.taken
	if waiting && in.first == len(in.ready) {
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
	if in.first < len(in.ready) || in.nframe < FrameSize || uint64(in.need) <= in.window {
		return 0
	}
	return in.need
}

// Window returns the window in bytes.
func (in *Inbox) Window() uint64 { return in.window }
