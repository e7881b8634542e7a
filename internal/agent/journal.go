package agent

import (
	"iter"

	"github.com/rdmad/rdmad/internal/vault"
	"github.com/rdmad/rdmad/slots"
)

// entry is what the journal holds of a request that was taken: private memory,
// so that nothing a worker or a peer writes can change it.
type entry struct {
	taken  bool
	oneway bool
	quiet  bool // not counted: a message of the library's own
	// answered: the answer is here and waits in deferred.
	answered bool
	// at is the agent's stamp of when it was taken.
	at     uint32
	word   slots.Word
	seq    uint32 // the order in which requests were first sent; wraps
	answer uint32 // the largest answer the requester takes
	// wr is the work request that carries it; 0 if the connection it was one of is
	// closed.
	wr uint64
	// held are the regions that it refers to; nil for none.
	held *held
}

// enter puts a request into the journal. Its slot is taken after that: a request that is
// taken is always one that a later core knows of.
func (l *OutLane) enter(i int, e *entry) {
	l.seq++
	e.seq = l.seq
	l.kept.Enter(i, &vault.Entry{Word: e.word, Seq: e.seq, Answer: e.answer, OneWay: e.oneway, Quiet: e.quiet})
	l.note(i, e)
}

// note is enter without the vault. The entry is written field by field: to copy it as a
// whole the processor would have to wait for the fields that have just been stored.
func (l *OutLane) note(i int, e *entry) {
	j := &l.journal[i]
	j.taken, j.oneway, j.quiet, j.answered = true, e.oneway, e.quiet, false
	j.word, j.seq, j.answer, j.wr, j.held = e.word, e.seq, e.answer, e.wr, e.held
	j.at = l.domain.agent.stamp
	l.busy++
	l.domain.underWay++
	l.Row.Busy++
	l.Row.BusySlots += uint64(e.word.Run())
	l.cover(i, e.word.Run(), true)
	l.hold(e.word, e.oneway, 1)
}

// strike takes a request out of the journal, after all that was to be done for it.
func (l *OutLane) strike(i int) {
	e := &l.journal[i]
	l.kept.Strike(i)
	e.taken, e.answered = false, false
	if held := e.held; held != nil {
		e.held = nil
		l.domain.letGo(held)
	}
	l.busy--
	l.domain.underWay--
	l.Row.Busy--
	l.Row.BusySlots -= uint64(e.word.Run())
	l.cover(i, e.word.Run(), false)
	l.hold(e.word, e.oneway, -1)
}

// underWay yields the slots of requests that are in the journal, of which some may be struck meanwhile, and looks no further than there
// are any: processes that come and go must not cost a look at all that lanes have room for.
func (l *OutLane) underWay() iter.Seq[int] {
	return firstOf(l.busy, len(l.journal), func(i int) bool { return l.journal[i].taken })
}

// firstOf yields the first count of the indices below n for which is returns true.
func firstOf(count, n int, is func(i int) bool) iter.Seq[int] {
	return func(yield func(int) bool) {
		for i, left := 0, count; left > 0 && i < n; i++ {
			if !is(i) {
				continue
			}
			if left--; !yield(i) {
				return
			}
		}
	}
}

func (l *OutLane) cover(i, run int, on bool) {
	for j := i; j < i+run; j++ {
		l.covered[j] = on
	}
}

// touches reports whether one of the slots that are covered is in the run at i.
func touches(covered []bool, i, run int) bool {
	for _, c := range covered[i : i+run] {
		if c {
			return true
		}
	}
	return false
}
