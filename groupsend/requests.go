package groupsend

import (
	"math/bits"

	"github.com/rdmad/rdmad/slots"
)

// Clerk decides about each message before it is sent and posts the groups.
type Clerk interface {
	Poster
	// Admit is shown the word and a private copy of the header of a published
	// message, or why they are wrong, and says what to do with it; it must not be
	// Send when bad is not nil. A message that it leaves published may be shown to
	// it again. h is nil if w is wrong, and valid until Admit returns.
	Admit(index int, w slots.Word, h *slots.Header, bad error) Verdict
	// Withdrawn takes back an admission: the worker revoked the message.
	Withdrawn(index int)
}

// Verdict is what a Clerk says of a published message.
type Verdict int

const (
	// Refuse: the clerk has dealt with it. It counts as a write.
	Refuse Verdict = iota
	// Send: it is journalled.
	Send
	// Leave: the clerk leaves it published and has been shown it before. leftPerWrite of them count as a write, so that
	// words which somebody has left for ever do not keep a Plan for long.
	Leave
)

const leftPerWrite = 64

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
	// whole is the round, from 1, that is not cut short by Rewind; 0 for none.
	whole uint64
	// roundLeft is how many slots of a round over the whole ring are left to
	// look at, and roundAt the next of them.
	roundLeft, roundAt int
	// held: an ordered message was left where it is, because one that comes before
	// it has not been taken.
	held bool
	// walks is for breakCircles: by which of its walks a slot was passed. nil before the first.
	walks []uint32
	// wrong has the words by slot that were no run when they were looked at: they are never taken, and nobody waits for them.
	// nil before the first.
	wrong []slots.Word
	// left counts what the clerk has left published.
	left int
	// landed is not nil where writes may arrive in any order.
	landed func(index int) bool
	// header is the copy that the clerk is shown; here, it needs no
	// allocation for each message.
	header slots.Header
}

// NewRequests returns a planner for a ring. max is the largest number of
// messages in a group, 1 (group send off) to MaxCount.
func NewRequests(r *slots.Ring, max int) *Requests {
	return &Requests{ring: r, max: clampCount(max), holes: newBitset(r.Geometry().Slots)}
}

// SetUnordered tells the planner that the lane's writes may arrive in any order, or, with
// nil, that they do not. Then every group is one write, whose immediate follows its bytes, and an
// ordered message is not taken before landed says of the one that it comes after that it has
// arrived, or goes with the same write. landed is called with the index of a message
// that the clerk has admitted. A Plan is due whenever landed may have changed its mind.
func (p *Requests) SetUnordered(landed func(index int) bool) { p.landed = landed }

// Rescan makes the next Plan look at every slot of the ring, whatever the
// cursor says.
func (p *Requests) Rescan() { p.roundLeft = p.ring.Geometry().Slots }

// Plan admits and takes published messages and posts groups of them with at most
// limit writes. It returns how many messages it took, and whether the limit stopped it
// before the end.
func (p *Requests) Plan(c Clerk, limit int) (messages int, more bool) {
	p.held = false
	messages, limit, more = p.planAll(c, limit)
	// What was held back may go once those before it have been taken: at first
	// sight it lay before them.
	for rounds := 0; p.held && !more; rounds++ {
		if rounds == heldRounds {
			return messages, true
		}
		p.held = false
		took, had := 0, limit
		// What was refused is out of the way of others, too, and counts in the limit.
		if took, limit, more = p.planHoles(c, limit); took == 0 && limit == had && !more {
			// Whoever publishes the one before it tells us, unless that is there already.
			if took = p.breakCircles(c, limit); took == 0 {
				break
			}
			limit -= took
			p.held = true // what came after those may go now
			continue
		}
		messages += took
	}
	return messages, more
}

// Rewind has the next claims begin at slot 0 again, if those of this round have come as far as slot window and all
// of them have been looked at. It reports whether it did. Not if more than an eighth of the first half of those slots
// is in use: claims would have to look for free ones again and again, and groups would be short between the others.
// Then this round goes to the end of the ring.
func (p *Requests) Rewind(window int) bool {
	n := uint64(p.ring.Geometry().Slots)
	round := p.pos/n + 1 // never 0
	if p.pos%n < uint64(window) || p.roundLeft > 0 || round == p.whole || p.ring.Cursor() != p.pos {
		return false
	}
	used := 0
	for i := range window / 2 {
		if p.ring.Word(i).State() != slots.Free {
			used++
		}
	}
	if 16*used > window {
		p.whole = round
		return false
	}
	next, ok := p.ring.Rewind(p.pos)
	if ok {
		p.pos = next
	}
	return ok
}

// Position is the cursor position up to which slots have been looked at.
func (p *Requests) Position() uint64 { return p.pos }

// Ready returns what a Plan would find, without taking anything, but for Open. It stops
// when there are as many messages or bytes as a group takes. The headers are the
// workers' to write: sizes and deadlines are good for a guess alone.
func (p *Requests) Ready() (w Waiting) {
	cursor := p.follow()
	n := p.ring.Geometry().Slots
	if p.roundLeft > 0 {
		for i := 0; i < n && !p.enough(&w); i++ {
			p.count(i, &w)
		}
		return w
	}
	for x := 0; x < len(p.holes.words) && p.holes.n > 0; x++ {
		for b := p.holes.words[x]; b != 0 && !p.enough(&w); b &= b - 1 {
			p.count(x*64+bits.TrailingZeros64(b), &w)
		}
	}
	for at := p.pos; at < cursor && !p.enough(&w); at++ {
		if i := int(at % uint64(n)); !p.holes.has(i) {
			p.count(i, &w)
		}
	}
	return w
}

// enough reports whether w is a full group.
func (p *Requests) enough(w *Waiting) bool { return w.Messages >= p.max || w.Bytes >= MaxGroupBytes }

// count adds the message at slot i to w, if one is published there.
func (p *Requests) count(i int, w *Waiting) {
	word := p.ring.Word(i)
	if word.State() != slots.Pub {
		return
	}
	length, deadline := slots.Glance(p.ring.HeaderAt(i))
	w.Messages++
	w.Bytes += slots.HeaderSize + min(int(length), word.Run()*p.ring.Geometry().SlotSize)
	if deadline != 0 && (w.Deadline == 0 || deadline < w.Deadline) {
		w.Deadline = deadline
	}
}

// heldRounds bounds how often one Plan looks at what it has held back. Two
// messages are hardly ever found in the wrong order, unless somebody means it.
const heldRounds = 4

// planAll looks at everything that can have been published.
func (p *Requests) planAll(c Clerk, limit int) (messages, left int, more bool) {
	cursor := p.follow()
	messages, limit, more = p.planHoles(c, limit)
	if more {
		return messages, limit, true
	}
	n := p.ring.Geometry().Slots
	for p.roundLeft > 0 {
		if limit <= 0 {
			return messages, limit, true
		}
		took, next, writes := p.look(c, p.roundAt, limit)
		messages += took
		limit -= writes
		p.roundLeft -= next - p.roundAt
		p.roundAt = next % n
	}
	for p.pos < cursor {
		if limit <= 0 {
			return messages, limit, true
		}
		i := int(p.pos % uint64(n))
		took, next, writes := p.look(c, i, limit)
		messages += took
		limit -= writes
		p.pos += min(uint64(next-i), cursor-p.pos)
	}
	return messages, limit, false
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
// looked at, and how many writes that made. A message that is refused counts as a
// write: what workers publish for nothing bounds a Plan, too.
func (p *Requests) group(c Clerk, i int, w slots.Word, limit int) (took, next, writes int) {
	size := p.ring.Geometry().SlotSize
	var b gather
	b.begin(c, i, size, limit)
	if p.landed != nil {
		b.limit = 1
	}
	next = i
	left := 0
	// A new write begins before its first message is admitted: the clerk notes
	// which write carries a message.
	for b.skip(next * size) {
		length, ok, refused := p.take(c, next, w)
		if !ok {
			// The message at next is dealt with; what was taken before it
			// makes a group of its own.
			next++
			if refused {
				left = 1
			}
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
	return b.g.Count, next, b.post() + left
}

// take admits and takes one published message and returns its payload length. refused
// says that the clerk did not want it.
func (p *Requests) take(c Clerk, i int, w slots.Word) (length uint32, ok, refused bool) {
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
		return 0, false, false
	}
	if header == nil {
		p.noteWrong(i, w)
	}
	if bad == nil && h.Order != 0 && p.mustWait(i, w) {
		p.holes.add(i)
		p.held = true
		return 0, false, false
	}
	if v := c.Admit(i, w, header, bad); v == Leave {
		p.left++
		return 0, false, p.left%leftPerWrite == 0
	} else if v != Send || bad != nil {
		return 0, false, true
	}
	if !p.ring.Take(i, w) {
		c.Withdrawn(i)
		p.holes.add(i)
		return 0, false, false
	}
	return h.Length, true, false
}

// mustWait reports whether the ordered message at i, whose word is w, comes after one
// of the same process that is published and not taken, or may arrive later than w would. That one was published first,
// and so is found by the next Plan at the latest. Whether it is a run is seen when it is looked at, and not here: it may be
// a long one that everybody else comes after.
func (p *Requests) mustWait(i int, w slots.Word) bool {
	j := int(p.header.After)
	if j == i {
		return false
	}
	// SYNC POINT (order): the one before was published before w was; pairs with
	// the client's chain.
	before := p.ring.Word(j)
	if before.Owner() != w.Owner() || uint32(before.Ticket()) != p.header.AfterTicket {
		return false
	}
	if before.State() == slots.Pub {
		return p.wrong == nil || p.wrong[j] != before
	}
	return before.State() == slots.Taken && p.landed != nil && !p.landed(j)
}

// noteWrong notes that slot i has the word w and is no run.
func (p *Requests) noteWrong(i int, w slots.Word) {
	if p.wrong == nil {
		p.wrong = make([]slots.Word, p.ring.Geometry().Slots)
	}
	p.wrong[i] = w
}
