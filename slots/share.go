package slots

// Share is what the daemon says of how a ring is shared:
//
//	 31            20 19                    0
//	+----------------+-----------------------+
//	| change         | slots                 |
//	+----------------+-----------------------+
//
// change is different after every change, so that who has counted what it holds
// notices that there was another share, or none, in between.
type Share uint32

const shareBits = 20

// Slots returns the most slots of the ring that one worker may hold at present,
// because others want some too; 0 for no such limit. A worker that holds none may
// claim one run, however long.
func (s Share) Slots() int { return int(s & (1<<shareBits - 1)) }

// Next returns the share of n slots that follows s.
func (s Share) Next(n int) Share { return (s>>shareBits+1)<<shareBits | Share(n)&(1<<shareBits-1) }

// Share returns what the daemon last said. Another process of the domain may have
// written it: any value is possible, until the daemon's next look.
func (r *Ring) Share() Share { return Share(r.share.Load()) }

// SetShare is for the daemon. It does not wake anybody; see WakeFree.
func (r *Ring) SetShare(s Share) { r.share.Store(uint32(s)) }

// Held counts the slots that owner holds: from their claim until they are free. A
// slot that is freed meanwhile may count; one that is claimed meanwhile may not.
func (r *Ring) Held(owner int) (n int) {
	// Under a limit this is a good part of what a one-way message costs, so the words of
	// others, most of them, are told apart by one comparison.
	mine, words := MakeWord(0, 0, owner, 0), r.words
	for i := range words {
		if w := Word(words[i].Load()); w&(MaxOwner<<ownerShift) == mine && w.State() != Free {
			n++
		}
	}
	return n
}

// HeldRuns is Held, and returns the runs of the slots instead of what is in runs.
func (r *Ring) HeldRuns(owner int, runs []Run) (held []Run, n int) {
	runs = runs[:0]
	mine, words := MakeWord(0, 0, owner, 0), r.words
	for i := range words {
		if w := Word(words[i].Load()); w&(MaxOwner<<ownerShift) == mine && w.State() != Free {
			if n++; w.State() != Follow {
				runs = append(runs, Run{Index: i, Len: w.Run(), Ticket: w.Ticket()})
			}
		}
	}
	return runs, n
}

// StillHeld returns those of the runs that owner holds still, and of how many slots they are.
func (r *Ring) StillHeld(owner int, runs []Run) (held []Run, n int) {
	held = runs[:0]
	for _, u := range runs {
		// The first slot of a run is the last that becomes free.
		if w := r.Word(u.Index); w.State() != Free && w.Owner() == owner && w.Ticket() == u.Ticket {
			held = append(held, u)
			n += u.Len
		}
	}
	return held, n
}

// Holders adds to held[id], for every attach id, the slots that it holds, and
// returns their sum.
func (r *Ring) Holders(held *[MaxOwner + 1]uint32) (sum int) {
	words := r.words
	for i := range words {
		if w := Word(words[i].Load()); w.State() != Free {
			held[w.Owner()]++
			sum++
		}
	}
	return sum
}
