package exchange

import "fmt"

// Outbox holds the bytes of a stream that have not been sent.
type Outbox struct {
	buf   []byte
	first int    // of buf: what is before it has been sent
	sent  uint64 // bytes that have been sent
	limit uint64 // how far the other side lets it go
	ended bool   // nothing comes behind what is in buf
	end   bool   // ... and the other side was told
	room  int
}

// NewOutbox returns an outbox that holds about room bytes, for a stream that may go as
// far as limit.
func NewOutbox(room int, limit uint64) *Outbox { return &Outbox{room: room, limit: limit} }

// Room returns how many bytes Append has room for.
func (o *Outbox) Room() int { return max(0, o.room-o.Pending()) }

// Pending returns how many bytes wait.
func (o *Outbox) Pending() int { return len(o.buf) - o.first }

// Append copies p behind what waits.
func (o *Outbox) Append(p []byte) {
	if o.first > 0 && len(o.buf)+len(p) > cap(o.buf) {
		o.buf = o.buf[:copy(o.buf, o.buf[o.first:])]
		o.first = 0
	}
	o.buf = append(o.buf, p...)
}

// Fill appends as much of a message as there is room for, and returns what is left: of
// what precedes it, which goes whole or not at all, and of the message itself.
func (o *Outbox) Fill(frame, msg []byte) (restFrame, restMsg []byte) {
	room := o.Room()
	if room < FrameSize {
		return frame, msg
	}
	o.Append(frame)
	n := min(room-len(frame), len(msg))
	o.Append(msg[:n])
	return nil, msg[n:]
}

// End says that nothing more is appended.
func (o *Outbox) End() { o.ended = true }

// Extend lets the stream go as far as limit, if that is further than before. Errors
// wrap ErrProtocol.
func (o *Outbox) Extend(limit uint64) error {
	if limit > o.sent+2*MaxMessage {
		return fmt.Errorf("%w: credit for %d bytes", ErrProtocol, limit-o.sent)
	}
	o.limit = max(o.limit, limit)
	return nil
}

// Ended reports whether nothing more may be appended.
func (o *Outbox) Ended() bool { return o.ended }

// Sendable returns how many bytes may be sent now.
func (o *Outbox) Sendable() int {
	return int(min(uint64(o.Pending()), o.limit-o.sent))
}

// Blocked reports whether there are bytes that may not be sent.
func (o *Outbox) Blocked() bool { return uint64(o.Pending()) > o.limit-o.sent }

// EndDue reports whether the end is to be told: everything was sent.
func (o *Outbox) EndDue() bool { return o.ended && !o.end && o.Pending() == 0 }

// Next takes up to n bytes that may be sent, valid until the next Append, with their
// place in the stream.
func (o *Outbox) Next(n int) (p []byte, offset uint64) {
	n = min(n, o.Sendable())
	p, offset = o.buf[o.first:o.first+n:o.first+n], o.sent
	o.first += n
	o.sent += uint64(n)
	if o.first == len(o.buf) {
		o.buf, o.first = o.buf[:0], 0
	}
	return p, offset
}

// TakeEnd returns true once, when the end is due.
func (o *Outbox) TakeEnd() bool {
	due := o.EndDue()
	o.end = o.end || due
	return due
}

// Over reports whether everything was sent and the end told.
func (o *Outbox) Over() bool { return o.end }
