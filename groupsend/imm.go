package groupsend

// Limits of the immediate's fields.
const (
	// MaxIndex is the largest slot index an immediate can name.
	MaxIndex = 1<<24 - 1
	// MaxCount is the largest number of messages in a group.
	MaxCount = 1<<8 - 1
)

// Imm is the 32-bit immediate of a group: the index of its first slot in the
// upper 24 bits, the number of messages in the lower 8. Count 0 is reserved for
// control.
type Imm uint32

// Index returns the first slot of the group, which may be beyond the ring.
func (m Imm) Index() int { return int(m >> 8) }

// Count returns the number of messages; 0 for control.
func (m Imm) Count() int { return int(m & 0xff) }
