package agent

const (
	// leastWindow is the fewest slots that claims go round in, a quarter of the ring at most.
	leastWindow = 64
	// windowRoom is how many times as many slots that is as are in use. Slots become free in another order than they
	// were claimed in, and what is answered is held still until its caller takes it: with less room claims would
	// come to slots that are not free yet.
	windowRoom = 4
	// crestDecay is which part of the most that was in use is forgotten with each round.
	crestDecay = 4
)

// rewind keeps claims near the beginning of the ring as long as little of it is in use, and with them all that there
// is for each slot: bytes here and at the peer, words, journals, tables of callers. What was used a moment ago is
// in the caches still; a whole ring is larger than most of them.
func (l *OutLane) rewind() {
	l.crest = max(l.crest, l.Sharing.Sum())
	rewound := l.Plan.Rewind(max(windowRoom*l.crest, min(leastWindow, l.geo.Slots/4)))
	if at := l.Plan.Position(); rewound || at-l.round >= uint64(l.geo.Slots) {
		l.round = at
		l.crest -= l.crest / crestDecay
	}
}
