package groupsend

import (
	"errors"
	"fmt"
)

// Limits of the immediate's fields.
const (
	// MaxIndex is the largest slot index an immediate can name.
	MaxIndex = 1<<24 - 1
	// MaxCount is the largest number of messages in a group.
	MaxCount = 1<<8 - 1
)

// ErrImm is returned for a group that an immediate cannot name.
var ErrImm = errors.New("groupsend: index or count out of range")

// Imm is the 32-bit immediate of a group: the index of its first slot in the
// upper 24 bits, the number of messages in the lower 8. Count 0 is reserved for
// control.
type Imm uint32

// MakeImm encodes a group. It returns ErrImm unless index is at most MaxIndex
// and count is 1 to MaxCount.
func MakeImm(index, count int) (Imm, error) {
	if index < 0 || index > MaxIndex || count < 1 || count > MaxCount {
		return 0, fmt.Errorf("%w: index %d, count %d", ErrImm, index, count)
	}
	return Imm(uint32(index)<<8 | uint32(count)), nil
}

// Index returns the first slot of the group, which may be beyond the ring.
func (m Imm) Index() int { return int(m >> 8) }

// Count returns the number of messages; 0 for control.
func (m Imm) Count() int { return int(m & 0xff) }
