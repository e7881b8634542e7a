package groupsend

// MaxGroupBytes is the size from which on a group takes no further message, so
// that one group does not keep a lane busy for long.
const MaxGroupBytes = 256 << 10

// Group is a contiguous range of a ring that holds Count consecutive messages.
type Group struct {
	// Index is the first slot.
	Index int
	// Count is the number of messages, 1 to MaxCount.
	Count int
	// Bytes is the size from the start of the first slot to the end of the
	// last message, in bytes: the unused end of the last run is not sent.
	Bytes int
}

// Imm returns the group's immediate. Groups made by this package always have one.
func (g Group) Imm() Imm { return Imm(uint32(g.Index)<<8 | uint32(g.Count)) }

// Poster posts groups.
type Poster interface {
	// Post queues one group for sending. It is called only as often as the
	// limit given to Plan allows.
	Post(Group)
}

// clampCount bounds a group size to what an immediate can say.
func clampCount(n int) int { return min(max(n, 1), MaxCount) }

// bitset is a set of slot indices.
type bitset struct {
	words []uint64
	n     int
}

func newBitset(size int) bitset { return bitset{words: make([]uint64, (size+63)/64)} }

func (b *bitset) has(i int) bool { return b.words[i/64]&(1<<(i%64)) != 0 }

func (b *bitset) add(i int) {
	if !b.has(i) {
		b.words[i/64] |= 1 << (i % 64)
		b.n++
	}
}

func (b *bitset) remove(i int) {
	if b.has(i) {
		b.words[i/64] &^= 1 << (i % 64)
		b.n--
	}
}
