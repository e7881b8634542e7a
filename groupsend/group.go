package groupsend

// MaxGroupBytes is the size from which on a group takes no further message, so
// that one group does not keep a lane busy for long.
const MaxGroupBytes = 256 << 10

// MaxGap is how many unused bytes between two messages of a group are sent along
// rather than making the group one more write: about what a work request costs.
// A request's slots have room for its answer, and an answer lies in those of its
// request, so there may be far more of them than of used ones.
const MaxGap = 1 << 10

// Group is a contiguous range of a ring that holds Count consecutive messages. It
// is sent as one write, or as several that leave gaps of more than MaxGap bytes
// out, of which the last has the immediate. On a lane whose writes may arrive in any order it
// is one write: SetUnordered.
type Group struct {
	// Index is the first slot, at most MaxIndex.
	Index int
	// Count is the number of messages, 1 to MaxCount.
	Count int
	// From and Bytes are the range of the last write: an offset into the slots,
	// and a size, both in bytes. It ends with the last message; unused bytes
	// behind that are not sent. Bytes is 0 if earlier writes have it all.
	From, Bytes int
}

// Imm returns the group's immediate. Groups made by this package always have one.
func (g Group) Imm() Imm { return Imm(uint32(g.Index)<<8 | uint32(g.Count)) }

// Poster posts groups. Together its methods are called only as often as the limit
// given to Plan allows.
type Poster interface {
	// Part queues a write of the group that the next Post is about: the bytes
	// of the slots in [from, from+bytes).
	Part(from, bytes int)
	// Post queues the last write of a group.
	Post(Group)
}

// gather makes the writes of one group.
type gather struct {
	c Poster
	g Group
	// sent is the bytes of all writes, writes their number with the one that is
	// still being made, limit how many there may be.
	sent, writes, limit int
}

// begin starts a group whose first message is in slot index. p is zero.
func (p *gather) begin(c Poster, index, slotSize, limit int) {
	p.c, p.g.Index, p.g.From, p.writes, p.limit = c, index, index*slotSize, 1, limit
}

// skip starts a new write if the next message, at offset at, is too far behind the
// last one. It returns false when there may be no further write: the group is full.
func (p *gather) skip(at int) bool {
	if p.g.Count == 0 || at-(p.g.From+p.g.Bytes) <= MaxGap {
		return true
	}
	if p.writes == p.limit {
		return false
	}
	p.c.Part(p.g.From, p.g.Bytes)
	p.sent += p.g.Bytes
	p.writes++
	p.g.From, p.g.Bytes = at, 0
	return true
}

// add takes a message that ends at offset end into the group.
func (p *gather) add(end int) {
	p.g.Count++
	p.g.Bytes = end - p.g.From
}

// full reports whether the group takes no further message.
func (p *gather) full(most int) bool {
	return p.g.Count == most || p.sent+p.g.Bytes >= MaxGroupBytes
}

// post posts the group, if there is anything in it, and returns how many writes it
// took.
func (p *gather) post() int {
	if p.g.Count == 0 {
		return 0
	}
	p.c.Post(p.g)
	return p.writes
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
