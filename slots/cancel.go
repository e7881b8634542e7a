package slots

import "encoding/binary"

// CancelSize is the size in bytes of the payload of a message with FlagCancel.
const CancelSize = 16

// Cancel is what a message with FlagCancel says: which request of the same lane, and of
// the same requester, is not to be executed if its handler has not started.
//
//	 0       4       8               16
//	+-------+-------+---------------+
//	| slot  | 0     | ticket        |
//	+-------+-------+---------------+
type Cancel struct {
	// Slot and Ticket are those of the request's first slot.
	Slot   uint32
	Ticket uint64
}

// Encode writes c into the first CancelSize bytes of b.
func (c *Cancel) Encode(b []byte) {
	binary.LittleEndian.PutUint64(b[0:], uint64(c.Slot))
	binary.LittleEndian.PutUint64(b[8:], c.Ticket)
}

// Decode reads c from the first CancelSize bytes of b, which may be shared memory. What
// names no request does no harm, so it judges nothing.
func (c *Cancel) Decode(b []byte) {
	c.Slot, c.Ticket = binary.LittleEndian.Uint32(b[0:]), binary.LittleEndian.Uint64(b[8:])
}
