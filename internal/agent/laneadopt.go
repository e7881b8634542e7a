package agent

import (
	"slices"

	"github.com/rdmad/rdmad/groupsend"
	"github.com/rdmad/rdmad/internal/vault"
	"github.com/rdmad/rdmad/slots"
)

// A core that takes over from a dead one finds the slot words and the vaults as they were
// at some instant between two stores. What follows makes of them what the dead core would
// have made, whatever the instant was. The agent runs it before its first cycle, when it
// knows the domain's workers and methods.

// Replaced is what a worker is told of a request that failed just when the core died.
const Replaced = "the daemon was replaced while the request failed"

// Stranger returns the id of a process that the last core had and this one has not, and that may be at work in a lane's memory still, or 0.
// Nobody waits for the end of such a process: what it fills in or reads would be given to others meanwhile. Of one that is known to be
// dead there is nothing left, since it was buried before it was forgotten. The lane is not to be adopted then. Requests that the process has
// not begun with are taken back from it.
func (d *Domain) Stranger(r *slots.Ring, v *vault.Vault) int {
	for i := range r.Geometry().Slots {
		switch w := r.Word(i); w.State() {
		case slots.Claim, slots.Ans, slots.Read:
			if o := w.Owner(); o > 0 && d.Workers[o] == nil {
				return o
			}
		}
		k, a := v.Records.Load(i), r.AnswerWord(i)
		has := k.State == vault.RecordActive && a.Ticket() == k.Ticket && (a.State() == slots.Recv || a.State() == slots.Picked)
		if o := a.Owner(); has && o > 0 && d.Workers[o] == nil && !r.Withdraw(i, a) {
			return o
		}
	}
	return 0
}

// Adopt takes over the journal of a lane, which is suspended then if it is not local.
func (l *OutLane) Adopt() {
	started := false
	for i := range l.journal {
		k := l.kept.Load(i)
		run, owner := k.Word.Run(), k.Word.Owner()
		if k.State == vault.EntryNone || run < 1 || run > l.geo.MaxRun || run > l.geo.Slots-i || owner == 0 || touches(l.covered, i, run) {
			l.kept.Strike(i)
			continue
		}
		taken := l.Ring.Word(i) == k.Word.With(slots.Taken)
		if (!taken || k.State == vault.EntryFreeing) && !l.served(i, &k) {
			// Not taken yet, or the answer was handed over already, or what is left is
			// to free the slots.
			if taken {
				l.Ring.FreeRest(i, k.Word.With(slots.Taken))
			}
			l.kept.Strike(i)
			continue
		}
		l.note(i, &entry{oneway: k.OneWay, quiet: k.Quiet, word: k.Word, seq: k.Seq, answer: k.Answer})
		if !started || int32(k.Seq-l.seq) > 0 {
			started, l.seq = true, k.Seq
		}
		if k.State == vault.EntryFailing {
			l.outcome(i, k.Status, Replaced)
		}
	}
	for i := range l.lastSent {
		// As far as the words tell, in which each claim has left its ticket: what waits was not sent.
		w := l.Ring.Word(i)
		last := w.Ticket()
		if w.State() == slots.Claim || w.State() == slots.Pub {
			last--
		}
		l.lastSent[i] = slots.MakeWord(slots.Free, 0, 0, last)
	}
	for i := range l.journal {
		// The worker has been sent what was in these.
		if w := l.Ring.Word(i); w.State() == slots.Moved && w.Run() >= 1 && w.Run() <= l.geo.Slots-i && !touches(l.covered, i, w.Run()) {
			l.Ring.FreeRest(i, w)
		}
	}
	l.domain.Looks.traffic = true // answers may wait for a worker that does not take them
	l.Plan.Rescan()
	l.Ring.WakeFree()
}

// served reports whether a handler of this node may be at work on an adopted request, whatever its slot word has become, which the worker
// can write to: then nobody else has the slots until it is done, as without a change of cores.
func (l *OutLane) served(i int, k *vault.Entry) bool {
	if l.Local == nil || k.State != vault.EntrySent {
		return false
	}
	r := &l.Local.records[i] // which were adopted before; of an answer that was handed over it is done
	return r.active && r.ticket == k.Word.Ticket()
}

// Adopt takes over the records of a lane, which is suspended then if it is not local.
// Requests that no handler has started are to be dispatched; see DispatchAdopted.
func (l *InLane) Adopt() (waiting []Queued) {
	for i := range l.records {
		k := l.kept.Load(i)
		run := int(k.Run)
		if k.State == vault.RecordNone || run < 1 || run > l.geo.MaxRun || run > l.geo.Slots-i {
			continue
		}
		l.records[i] = record{
			seen: true, done: k.State == vault.RecordDone, oneway: k.OneWay, run: k.Run, to: k.To, order: k.Order, from: k.From & slots.MaxOwner,
			method: k.Method, answer: k.Answer, length: k.Length, ticket: k.Ticket, refs: k.Refs, at: l.domain.agent.stamp,
		}
		if k.State == vault.RecordDone {
			continue
		}
		if touches(l.covered, i, run) {
			l.records[i] = record{}
			continue
		}
		l.records[i].active = true
		l.note(i)
		if k.Order != 0 {
			l.records[i].arrivedAs(l.domain.inherit(k.Arrival))
		}
		switch {
		case k.State == vault.RecordFailing:
			l.refuse(i, k.Status, Replaced)
		case l.handed(i, int(k.Worker)):
		default:
			waiting = append(waiting, Queued{l, i, k.Ticket})
		}
	}
	return waiting
}

// handed finds out which process has the adopted request in slot i, if its handler has
// started, and notes it. The core may have died before it had noted who has it.
func (l *InLane) handed(i, worker int) bool {
	rec := &l.records[i]
	word := l.Ring.AnswerWord(i)
	if word.Ticket() != rec.ticket || word.Run() != int(rec.run) || word.State() < slots.Recv || word.State() > slots.Done {
		return false
	}
	// The word is stored before the record's worker is noted.
	if o := word.Owner(); worker == 0 || l.domain.Workers[o] != nil {
		worker = o
	}
	w := l.domain.Workers[worker]
	if m := l.domain.Method(rec.method); m != nil && rec.order != 0 && w != nil {
		// Started or not: the process may have hints of the order that it has not looked
		// at, and they must not come before others after a time elsewhere.
		if m.orders == nil {
			m.orders = new(orders)
		}
		m.orders.home(rec.order, l.id).worker = w
	}
	if l.Ring.Withdraw(i, word) {
		l.kept.Assign(i, 0)
		return false
	}
	if w == nil {
		l.domain.agent.Count.MaybeExecuted++
		l.refuse(i, slots.StatusMaybeExecuted, "the handler's process died")
		return true
	}
	l.assign(i, w)
	w.outstanding++
	return true
}

// DispatchAdopted hands on what no handler had started when the last core died, those
// with an order as they arrived.
func (d *Domain) DispatchAdopted(waiting []Queued) {
	slices.SortStableFunc(waiting, byArrival) // those without an order have no number
	for _, q := range waiting {
		if !q.waits() {
			continue // its lane was given up
		}
		rec := &q.lane.records[q.index]
		if rec.refs {
			// What it may use is not known any more, and it has not started.
			q.lane.refuse(q.index, slots.StatusNotExported, "its regions are not known any more")
			q.lane.later()
			continue
		}
		q.lane.dispatch(q.index)
		q.lane.later()
	}
	for _, w := range d.Workers {
		if w != nil {
			d.collectAll(w)
			d.homesLeft = d.homesLeft || w.Withdrawn
		}
	}
	d.DrainQueues()
}

// Rejoin makes the two ends of an adopted local lane agree: what the one has sent and the
// other does not know arrives now, in the order it was sent in, and answers that are there are
// delivered.
func (l *OutLane) Rejoin() {
	var unknown []int
	for i := range l.journal {
		e := &l.journal[i]
		if !e.taken {
			continue
		}
		switch rec := &l.Local.records[i]; {
		case !rec.seen || rec.ticket != e.word.Ticket():
			unknown = append(unknown, i)
		case rec.done:
			l.Local.answers.Add(i, int(rec.run), rec.length)
			l.Local.later()
		}
	}
	l.sortSent(unknown)
	for _, i := range unknown {
		l.Local.deliver(groupsend.Group{Index: i, Count: 1}.Imm())
	}
}

// Resume tells the domain's workers to look at all their slots: what the last core was
// about to tell them is not known.
func (d *Domain) Resume() {
	for _, w := range d.Workers {
		if w != nil {
			w.Rings.SetOverflow()
			w.Rings.Down.Ring()
		}
	}
}
