package groupsend

import (
	"fmt"
	"math/bits"

	"github.com/rdmad/rdmad/slots"
)

var errCircle = fmt.Errorf("%w: ordered messages that come after each other in a circle", slots.ErrProtocol)

// breakCircles shows the clerk one message of each circle of those that are held, as a wrong one, and returns how many it
// has refused. It is called when all of them are holes, and none could be taken.
//
// A correct process names a message that it has published before, so from each one that is held the way along those before
// leads to one that is not, and that will be taken. A circle would hold its slots for ever, and its process's id, however
// long that is dead.
func (p *Requests) breakCircles(c Clerk, limit int) (refused int) {
	if p.walks == nil {
		p.walks = make([]uint32, p.ring.Geometry().Slots)
	}
	clear(p.walks)
	walk := uint32(0)
	for x := range p.holes.words {
		for b := p.holes.words[x]; b != 0 && refused < limit; b &= b - 1 {
			walk++
			// Each slot is passed once, whatever the workers write meanwhile.
			i, held := x*64+bits.TrailingZeros64(b), true
			for held && p.walks[i] == 0 {
				p.walks[i] = walk
				i, held = p.before(i)
			}
			if held && p.walks[i] == walk && p.refuse(c, i) {
				refused++
			}
		}
	}
	return refused
}

// before returns the slot of the message that the one at slot i is held for; false if it is not held.
func (p *Requests) before(i int) (int, bool) {
	w := p.ring.Word(i)
	if !p.holes.has(i) || w.State() != slots.Pub || !p.header.Decode(p.ring.HeaderAt(i)) ||
		p.header.CheckRequest(p.ring.Geometry(), w.Run()) != nil || p.header.Order == 0 || !p.mustWait(i, w) {
		return i, false
	}
	return int(p.header.After), true
}

// refuse shows the clerk the message at slot i as one of a circle, and reports whether it has dealt with it.
func (p *Requests) refuse(c Clerk, i int) bool {
	w, h := p.ring.Word(i), &p.header
	if w.State() != slots.Pub || p.ring.CheckRun(i, w) != nil || !h.Decode(p.ring.HeaderAt(i)) || h.Ticket != w.Ticket() || p.ring.Word(i) != w {
		return false // it is another one by now
	}
	if c.Admit(i, w, h, errCircle) != Refuse {
		return false
	}
	p.holes.remove(i)
	return true
}
