package groupsend

import (
	"math/bits"

	"github.com/rdmad/rdmad/slots"
)

// Clerk decides about each message before it is sent and posts the groups.
type Clerk interface {
	Poster
	// Admit is shown the word and a private copy of the header of a published
	// message, or why they are wrong, and says whether to send it. When it
	// returns true the message is journalled; when it returns false it has
	// dealt with it. It must return false when bad is not nil. A message that
	// it leaves published may be shown to it again. h is nil if w is wrong, and
	// valid until Admit returns.
	Admit(index int, w slots.Word, h *slots.Header, bad error) bool
	// Withdrawn takes back an admission: the worker revoked the message.
	Withdrawn(index int)
}

// Requests plans groups out of the published slots of a ring. It belongs to one
// goroutine, the agent of the lane.
type Requests struct {
	ring *slots.Ring
	max  int
	// pos is the cursor position up to which slots have been looked at.
	pos uint64
	// holes are slots that were claimed and not yet published when they were
	// looked at.
	holes bitset
	// roundLeft is how many slots of a round over the whole ring are left to
	// look at, and roundAt the next of them.
	roundLeft, roundAt int
	// header is the copy that the clerk is shown; here, it needs no
	// allocation for each message.
	header slots.Header
}

// NewRequests returns a planner for a ring. max is the largest number of
// messages in a group, 1 (group send off) to MaxCount.
func NewRequests(r *slots.Ring, max int) *Requests {
	return &Requests{ring: r, max: clampCount(max), holes: newBitset(r.Geometry().Slots)}
}

// Rescan makes the next Plan look at every slot of the ring, whatever the
// cursor says.
func (p *Requests) Rescan() { p.roundLeft = p.ring.Geometry().Slots }

// Plan admits and takes published messages and posts groups of them with at most
// limit writes. It returns how many messages it took, and whether the limit stopped it
// before the end.
func (p *Requests) Plan(c Clerk, limit int) (messages int, more bool) {
	cursor := p.follow()
	messages, limit, more = p.planHoles(c, limit)
	if more {
		return messages, true
	}
	n := p.ring.Geometry().Slots
	for p.roundLeft > 0 {
		if limit <= 0 {
			return messages, true
		}
		took, next, writes := p.look(c, p.roundAt, limit)
		messages += took
		limit -= writes
		p.roundLeft -= next - p.roundAt
		p.roundAt = next % n
	}
	for p.pos < cursor {
		if limit <= 0 {
			return messages, true
		}
		i := int(p.pos % uint64(n))
		took, next, writes := p.look(c, i, limit)
		messages += took
		limit -= writes
		p.pos += min(uint64(next-i), cursor-p.pos)
	}
	return messages, false
}

// follow returns the cursor and sees to it that pos is at most one round behind
// it, whatever the workers wrote.
func (p *Requests) follow() (cursor uint64) {
	late, ok := p.ring.TakeLate()
	cursor = p.ring.Cursor()
	n := uint64(p.ring.Geometry().Slots)
	if cursor < p.pos || cursor-p.pos > n {
		// Lapped, or a cursor from nowhere.
		p.pos = cursor
		p.Rescan()
	}
	switch {
	case !ok:
	case late > cursor || cursor-late > n:
		p.Rescan()
	default:
		p.pos = min(p.pos, late)
	}
	return cursor
}

// planHoles plans what was published since in the slots that were not ready.
func (p *Requests) planHoles(c Clerk, limit int) (messages, left int, more bool) {
	if p.holes.n == 0 {
		return 0, limit, false
	}
	for x := range p.holes.words {
		for b := p.holes.words[x]; b != 0; b &= b - 1 {
			i := x*64 + bits.TrailingZeros64(b)
			w := p.ring.Word(i)
			if w.State() == slots.Claim || !p.holes.has(i) {
				continue
			}
			if w.State() != slots.Pub {
				p.holes.remove(i)
				continue
			}
			if limit <= 0 {
				return messages, 0, true
			}
			p.holes.remove(i)
			took, _, writes := p.group(c, i, w, limit)
			messages += took
			limit -= writes
		}
	}
	return messages, limit, false
}

// look plans what is at slot i; results as of group.
func (p *Requests) look(c Clerk, i, limit int) (took, next, writes int) {
	w := p.ring.Word(i)
	switch w.State() {
	case slots.Pub:
		return p.group(c, i, w, limit)
	case slots.Claim:
		p.holes.add(i)
	}
	return 0, i + 1, 0
}

// group takes the message at i, whose word w is PUB, and those directly behind
// it, and posts them. It returns how many it took, the slot after the last it
// looked at, and how many writes that made.
func (p *Requests) group(c Clerk, i int, w slots.Word, limit int) (took, next, writes int) {
	size := p.ring.Geometry().SlotSize
	b := begin(c, i, size, limit)
	next = i
	// A new write begins before its first message is admitted: the clerk notes
	// which write carries a message.
	for b.skip(next * size) {
		length, ok := p.take(c, next, w)
		if !ok {
			// The message at next is dealt with; what was taken before it
			// makes a group of its own.
			next++
			break
		}
		p.holes.remove(next)
		b.add(next*size + slots.HeaderSize + int(length))
		next += w.Run()
		if b.full(p.max) || next >= p.ring.Geometry().Slots {
			break
		}
		if w = p.ring.Word(next); w.State() != slots.Pub {
			break
		}
	}
	return b.g.Count, next, b.post()
}

// take admits and takes one published message and returns its payload length.
func (p *Requests) take(c Clerk, i int, w slots.Word) (length uint32, ok bool) {
	h := &p.header
	header, bad := h, p.ring.CheckRun(i, w)
	switch {
	case bad != nil:
		header = nil
	case !h.Decode(p.ring.HeaderAt(i)) || h.Ticket != w.Ticket():
		bad = slots.ErrProtocol
	default:
		bad = h.CheckRequest(p.ring.Geometry(), w.Run())
	}
	if p.ring.Word(i) != w {
		// Revoked meanwhile, by a worker that may do so: what was read above
		// can be anybody's.
		p.holes.add(i)
		return 0, false
	}
	if !c.Admit(i, w, header, bad) || bad != nil {
		return 0, false
	}
	if !p.ring.Take(i, w) {
		c.Withdrawn(i)
		p.holes.add(i)
		return 0, false
	}
	return h.Length, true
}
