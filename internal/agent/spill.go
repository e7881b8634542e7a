package agent

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

// Overdue is an answer that its worker has not taken.
type Overdue struct {
	lane  *OutLane
	index int
	word  slots.Word // ANS
}

// ripe is how many looks must have found an answer before it is spilled: from the
// first to the last of them it has waited for looks.After.
const ripe = 3

// looks is when an agent looks for answers that are not taken. It belongs to the
// agent.
type looks struct {
	// After is how long an answer may wait.
	After time.Duration
	// Later makes the agent call look after a while; nil in a domain that does
	// not spill.
	Later func(time.Duration)
	// traffic: an answer was given since the last look began. due: a look is
	// going on, or will be.
	traffic, due bool
	// lane is which out lane is next, and found whether this look has found an
	// answer. slow are the workers that it has found overdue answers of.
	lane  int
	found bool
	slow  []*Worker
}

// arm sees to it that there is a look if there has been traffic.
func (d *Domain) arm() {
	if k := &d.Looks; k.traffic && !k.due && k.Later != nil {
		k.traffic, k.due = false, true
		k.Later(k.After / 2)
	}
}

// look is a look at one ring, of which there is one in each cycle, until all had
// theirs. It ends without a next one when nobody leaves anything.
func (d *Domain) look() {
	k := &d.Looks
	if k.lane < len(d.OutLanes) {
		k.found = d.OutLanes[k.lane].age() || k.found
		k.lane++
		d.agent.Commands.Do(d.OnLook)
		return
	}
	for i, w := range k.slow {
		k.slow[i] = nil
		list := w.overdue
		w.overdue = nil
		// One that has gone since the look began may be buried, and the lanes unmapped: who saw to that has waited
		// for what was begun before.
		if w.Gone || !w.Spill(list) {
			w.Spilling = false
		}
	}
	k.slow = k.slow[:0]
	k.traffic = k.traffic || k.found
	k.lane, k.found, k.due = 0, false, false
	d.arm()
}

// age notes which answers are in the ring for how many looks, and collects those that
// are overdue. It reports whether there are any answers.
func (l *OutLane) age() (found bool) {
	if l.aged == nil {
		l.aged = make([]slots.Word, l.geo.Slots)
	}
	for i := range l.aged {
		w := l.Ring.Word(i)
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
func (l *OutLane) ripen(i int, w slots.Word) {
	owner := l.domain.Workers[w.Owner()]
	switch {
	case owner == nil:
	case owner.Gone:
		// It is disconnected and lives, and will never read it.
		if l.move(i, w) {
			l.domain.agent.Count.Orphans++
		}
	case owner.Spill == nil || owner.Spilling && len(owner.overdue) == 0:
	default:
		if !owner.Spilling {
			owner.Spilling = true
			l.domain.Looks.slow = append(l.domain.Looks.slow, owner)
		}
		owner.overdue = append(owner.overdue, Overdue{l, i, w})
	}
}

// move takes an answer out of the ring, unless its worker has taken it. Nothing is
// freed that may be another's: the words are not to be trusted.
func (l *OutLane) move(i int, w slots.Word) bool {
	if l.Ring.CheckRun(i, w) != nil || touches(l.covered, i, w.Run()) || !l.Ring.Move(i, w) {
		return false
	}
	l.free(i, w.Run())
	return true
}

// Spilled frees the slots of answers that were sent to a worker, or counts that they
// could not be.
func (d *Domain) Spilled(w *Worker, list []Overdue, bytes int, err error) {
	count := d.agent.Count
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

// SpillMost is how many bytes of answers one message brings at most, unless a single
// answer has more: few messages, so that those for a worker that has stopped fit its
// socket, and not more than is soon written.
const SpillMost = 1 << 20

// Pack makes a spill of the first n answers of list, whose bytes are about as many as
// most. They lie in shared memory and their worker may take and free them meanwhile:
// then it does not look at the copy, and the agent will not move them. It is called on any
// goroutine, while nobody unmaps the lanes.
func Pack(list []Overdue, most int) (spill []byte, n int) {
	size := 0
	for _, o := range list {
		if n > 0 && size >= most {
			break
		}
		size += slots.SpilledSize(o.lane.geo.Capacity(o.word.Run()))
		n++
	}
	spill = slots.NewSpill(min(size, 2*most))
	for _, o := range list[:n] {
		run := o.word.Run()
		if run < 1 || run > o.lane.geo.Slots-o.index {
			continue // no correct worker's; the agent does not move it
		}
		a := slots.Spilled{Lane: o.lane.id, Run: slots.Run{Index: o.index, Len: run, Ticket: o.word.Ticket()}, Payload: o.lane.Ring.PayloadAt(o.index, run)}
		ok := a.Header.Decode(o.lane.Ring.HeaderAt(o.index))
		if !ok || a.Header.CheckAnswer(o.lane.geo, run, o.word.Ticket()) != nil {
			const why = "the answer was damaged in shared memory"
			a.Payload = []byte(why)
			a.Header = slots.Header{Ticket: o.word.Ticket(), Run: uint16(run), Length: uint32(len(why)), Kind: slots.KindAnswer, Flags: slots.FlagError, Status: slots.StatusMaybeExecuted}
		}
		spill = slots.AppendSpilled(spill, &a)
	}
	return spill, n
}
