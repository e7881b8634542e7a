package groupsend

import (
	"math/bits"

	"github.com/rdmad/rdmad/slots"
)

// Answers plans groups out of finished answers, which arrive in any order and
// go out in the order of their slots. It belongs to one goroutine.
type Answers struct {
	geo   slots.Geometry
	max   int
	ready bitset
	items []answer
	bytes int // of the answers that wait
	// unordered: writes may arrive in any order.
	unordered bool
}

type answer struct {
	length uint32
	run    uint16
}

// NewAnswers returns a planner for a ring of the given geometry; max as in
// NewRequests.
func NewAnswers(g slots.Geometry, max int) *Answers {
	return &Answers{geo: g, max: clampCount(max), ready: newBitset(g.Slots), items: make([]answer, g.Slots)}
}

// SetUnordered tells the planner whether the lane's writes may arrive in any order. Then every
// group is one write, whose immediate follows its bytes.
func (p *Answers) SetUnordered(yes bool) { p.unordered = yes }

// Add notes that the answer of the run of run slots at index is finished, with
// a payload of length bytes. The caller has checked that they fit the ring.
func (p *Answers) Add(index, run int, length uint32) {
	if !p.ready.has(index) {
		p.bytes += slots.HeaderSize + int(length)
	}
	p.items[index] = answer{length: length, run: uint16(run)}
	p.ready.add(index)
}

// Ready returns what waits to be posted, but for Open and Deadline.
func (p *Answers) Ready() Waiting { return Waiting{Messages: p.ready.n, Bytes: p.bytes} }

// Pending returns how many answers wait to be posted.
func (p *Answers) Pending() int { return p.ready.n }

// Overlaps reports whether an answer that waits to be posted has one of the run slots at index, which the caller has
// checked to be in the ring.
func (p *Answers) Overlaps(index, run int) bool {
	if p.ready.n == 0 {
		return false
	}
	for i := max(0, index-p.geo.MaxRun+1); i < index+run; i++ {
		if p.ready.has(i) && i+int(p.items[i].run) > index {
			return true
		}
	}
	return false
}

// Plan posts groups with at most limit writes and forgets the answers in them. It returns
// how many answers it posted and whether some are left.
func (p *Answers) Plan(c Poster, limit int) (messages int, more bool) {
	for x := 0; x < len(p.ready.words) && p.ready.n > 0; x++ {
		for p.ready.words[x] != 0 {
			if limit <= 0 {
				return messages, true
			}
			took, writes := p.group(c, x*64+bits.TrailingZeros64(p.ready.words[x]), limit)
			messages += took
			limit -= writes
		}
	}
	return messages, false
}

// group posts the answer at i and those directly behind it.
func (p *Answers) group(c Poster, i, limit int) (took, writes int) {
	size := p.geo.SlotSize
	var b gather
	b.begin(c, i, size, limit)
	if p.unordered {
		b.limit = 1
	}
	for next := i; next < p.geo.Slots && p.ready.has(next) && b.skip(next*size); {
		p.ready.remove(next)
		a := p.items[next]
		p.bytes -= slots.HeaderSize + int(a.length)
		b.add(next*size + slots.HeaderSize + int(a.length))
		next += int(a.run)
		if b.full(p.max) {
			break
		}
	}
	return b.g.Count, b.post()
}
