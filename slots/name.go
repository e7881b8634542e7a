package slots

import "encoding/binary"

// NameSize is the size in bytes of a request's name: what daemons call a request of a lane that both ends know, and
// what one calls it to a worker. It is a little-endian word with the slot in the lower 24 bits and the ticket, which
// has 40, in the upper ones.
const NameSize = 8

const (
	nameSlotBits = 24
	nameSlotMask = 1<<nameSlotBits - 1
)

// AppendName adds the name of the request that has a ticket in a slot to a list of names, and returns the longer one.
func AppendName(list []byte, index int, ticket uint64) []byte {
	return binary.LittleEndian.AppendUint64(list, ticket<<nameSlotBits|uint64(index))
}

// ReadName reads the first name of a list, of at least NameSize bytes. The slot may be out of the lane's range.
func ReadName(list []byte) (index int, ticket uint64) {
	v := binary.LittleEndian.Uint64(list)
	return int(v & nameSlotMask), v >> nameSlotBits
}
