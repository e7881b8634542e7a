package daemon

import (
	"time"

	"github.com/rdmad/rdmad/internal/faultpoint"
	"github.com/rdmad/rdmad/slots"
)

// Answers that their workers do not take hold slots that others need. The agent
// looks for them while there is traffic; those that are too old the worker's spiller
// copies and sends, and then the agent moves them: by a swap, because the worker may
// take them until then. It never waits for a worker, and reads no more than words.
// See docs/decisions/0015-spill.md.

// overdue is an answer that its worker has not taken.
type overdue struct {
	lane  *outLane
	index int
	word  slots.Word // ANS
}

// ripe is how many looks must have found an answer before it is spilled: from the
// first to the last of them it has waited for spillAfter.
const ripe = 3

// looks is when an agent looks for answers that are not taken. It belongs to the
// agent.
type looks struct {
	// after is how long an answer may wait.
	after time.Duration
	// later makes the agent call look after a while; nil in a domain that does
	// not spill.
	later func(time.Duration)
	// traffic: an answer was given since the last look began. due: a look is
	// going on, or will be.
	traffic, due bool
	// lane is which out lane is next, and found whether this look has found an
	// answer. slow are the workers that it has found overdue answers of.
	lane  int
	found bool
	slow  []*agentWorker
}

// arm sees to it that there is a look if there has been traffic.
func (d *agentDomain) arm() {
	if k := &d.looks; k.traffic && !k.due && k.later != nil {
		k.traffic, k.due = false, true
		k.later(k.after / 2)
	}
}

// look is a look at one ring, of which there is one in each cycle, until all had
// theirs. It ends without a next one when nobody leaves anything.
func (d *agentDomain) look() {
	k := &d.looks
	if k.lane < len(d.outLanes) {
		k.found = d.outLanes[k.lane].age() || k.found
		k.lane++
		d.agent.commands.do(d.onLook)
		return
	}
	for i, w := range k.slow {
		k.slow[i] = nil
		if list := w.overdue; !w.spill(list) {
			w.spilling = false
		}
		w.overdue = nil
	}
	k.slow = k.slow[:0]
	k.traffic = k.traffic || k.found
	k.lane, k.found, k.due = 0, false, false
	d.arm()
}

// age notes which answers are in the ring for how many looks, and collects those that
// are overdue. It reports whether there are any answers.
func (l *outLane) age() (found bool) {
	if l.aged == nil {
		l.aged = make([]slots.Word, l.geo.Slots)
	}
	for i := range l.aged {
		w := l.ring.Word(i)
		if w.State() != slots.Ans {
			if l.aged[i] != 0 {
				l.aged[i] = 0
			}
			continue
		}
		found = true
		// The state's bits, which are known, count the looks.
		seen := slots.State(0)
		if last := l.aged[i]; last.With(slots.Ans) == w {
			seen = last.State()
		}
		if seen < ripe {
			seen++
			l.aged[i] = w.With(seen)
		}
		if seen == ripe {
			l.ripen(i, w)
		}
	}
	return found
}

// ripen deals with the answer in slot i, which is overdue.
func (l *outLane) ripen(i int, w slots.Word) {
	owner := l.domain.workers[w.Owner()]
	switch {
	case owner == nil:
	case owner.gone:
		// It is disconnected and lives, and will never read it.
		if l.move(i, w) {
			l.domain.agent.count.Orphans++
		}
	case owner.spill == nil || owner.spilling && len(owner.overdue) == 0:
	default:
		if !owner.spilling {
			owner.spilling = true
			l.domain.looks.slow = append(l.domain.looks.slow, owner)
		}
		owner.overdue = append(owner.overdue, overdue{l, i, w})
	}
}

// move takes an answer out of the ring, unless its worker has taken it. Nothing is
// freed that may be another's: the words are not to be trusted.
func (l *outLane) move(i int, w slots.Word) bool {
	if l.ring.CheckRun(i, w) != nil || l.overlaps(i, w.Run()) || !l.ring.Move(i, w) {
		return false
	}
	l.free(i, w.Run())
	return true
}

// spilled frees the slots of answers that were sent to a worker, or counts that they
// could not be.
func (d *agentDomain) spilled(w *agentWorker, list []overdue, bytes int, err error) {
	count := d.agent.count
	if err != nil {
		count.SpillFailures++
		return // a later look tries again
	}
	for _, o := range list {
		if o.lane.move(o.index, o.word) {
			count.SpilledAnswers++
			faultpoint.Here("spill.moved")
			w.spilledAnswers++
		}
	}
	count.SpilledBytes += uint64(bytes)
	w.spilledBytes += uint64(bytes)
}
