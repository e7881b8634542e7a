package agent

import (
	"github.com/rdmad/rdmad/shm"
	"github.com/rdmad/rdmad/slots"
)

// Worker is what an agent knows of an attached process.
type Worker struct {
	ID    int
	Rings *slots.WorkerRings
	// Gone: the process has detached. Its slots are freed as their outcomes
	// come in.
	Gone    bool
	touched bool // in Domain.touched
	// freed is how many slots of its one-way messages were freed since it was last woken, of
	// freedBytes, and postBytes are those of such messages in the journals; see OutLane.freedFor.
	// untold: some were freed since its bell was last rung.
	// highBytes: it has had so many bytes in lanes that it perhaps waits until it has less.
	freed, freedBytes, postBytes int
	untold, highBytes            bool
	// PID is its process, and Name what that calls itself. wentAt is when it went, by CLOCK_MONOTONIC.
	PID    int
	Name   string
	wentAt int64
	// offences are what it did against the protocol; those of its process that are recent are Domain.offenders.
	offences strikes
	paging   paging
	// Mapped has a bit for each lane that a service worker has mapped, Known for each that
	// it ever had, and served one for each method that it serves, by number.
	Mapped, Known [slots.MaxLanes / 64]uint64
	served        []uint64
	// Stale: it was attached to another core, so that Known is not complete.
	Stale bool
	// later: it is in Domain.againWorkers. scan: its slots are to be looked at. row is how
	// many of its hints were taken since its ring was last empty.
	later, scan bool
	row         int
	// outstanding counts the requests it has and has not finished.
	outstanding int
	// recalled counts those that were taken back from it since it last reported anything: it has yet to pass their
	// hints. stuffed: its hint ring had no room, and it has not reported anything since.
	// full is the look at the queues, of Domain.pass, in which it had none.
	recalled int
	stuffed  bool
	full     uint64
	// ended counts those that it has finished since callers were last judged, and ahead is how
	// many it finished in aheadTime before that.
	ended, ahead int
	// leaving: it is to finish them and gets no others, unless they belong to one. Withdrawn: so it has said.
	// tookBack: what it had not begun with then was taken back.
	leaving, Withdrawn, tookBack bool
	// Handlers is how many it works on at once; 0 if it has not said.
	Handlers int
	// uses has a bit for each lane that a client has, bytes is the size of its
	// slots in the journals of all of them, and overLimit counts the requests
	// that were refused because they were more than it may have. used are the lanes
	// that it had when it went.
	uses      [slots.MaxLanes / 64]uint64
	used      [slots.MaxLanes / 64]uint64
	bytes     int
	overLimit uint64
	// Told: it was told that it may hold at most MostBytes of slots, whatever has become the
	// limit since.
	Told      bool
	MostBytes int
	// Spill sends it answers that it does not take; nil if nothing does. It must not
	// block, and reports false when it will send nothing. Spilling: it is at it, or
	// will be when overdue is complete.
	Spill    func(list []Overdue) bool
	Spilling bool
	overdue  []Overdue
	// spilledAnswers and spilledBytes are what was sent so.
	spilledAnswers, spilledBytes uint64
	// Ops are the operations on regions that it submits; nil when it is dead.
	Ops *WorkerOps
}

func (w *Worker) hasMapped(lane uint16) bool {
	return w.Mapped[lane/64]&(1<<(lane%64)) != 0
}

// load is how much it has to do before it comes to another request. A process that stands still is not idle for that its
// callers have given up.
func (w *Worker) load() int { return w.outstanding + w.recalled }

// hasRoom reports whether its hint ring may have room.
func (w *Worker) hasRoom() bool { return !w.stuffed || w.Rings.Down.Backlog() < slots.HintEntries }

// takes reports whether it may be given new requests of a lane.
func (w *Worker) takes(lane uint16) bool { return !w.leaving && !w.Withdrawn && w.hasMapped(lane) }

// serves reports whether it serves the method with the number.
func (w *Worker) serves(n int) bool {
	return n/64 < len(w.served) && w.served[n/64]&(1<<(n%64)) != 0
}

// Maps notes that a service worker can take requests from a lane.
func (d *Domain) Maps(w *Worker, lane uint16) {
	if w.hasMapped(lane) {
		return
	}
	w.Mapped[lane/64] |= 1 << (lane % 64)
	w.Known[lane/64] |= 1 << (lane % 64)
	d.roomier = true
}

func (w *Worker) hasKnown(lane uint16) bool {
	return w.Known[lane/64]&(1<<(lane%64)) != 0
}

// collect takes what service worker w has finished. What there is room for then is dispatched by the end of the cycle.
func (d *Domain) collect(w *Worker) int {
	n, most := 0, slots.HintEntries
	if d.shares() {
		most = sharedHints // the others' turn comes soon
	}
	for n < most {
		h, ok := w.Rings.Up.Pop()
		if !ok {
			break
		}
		n++
		l := d.ins[int(h.Lane())%slots.MaxLanes]
		switch {
		case l != nil && h.Index() < l.geo.Slots:
			l.finished(h.Index(), w)
		case !w.Stale && (l != nil && w.hasMapped(h.Lane()) || l == nil && !w.hasKnown(h.Lane())):
			// Only the worker writes to this ring.
			d.agent.Count.ProtocolErrors++
			d.Offence(w, badHint)
		}
	}
	d.hints -= n
	w.row += n
	row := w.row
	if n == most && d.shares() {
		d.postpone(w)
	} else {
		w.row = 0
	}
	if row > slots.HintEntries/2 {
		// The ring may have been full, as the worker saw it, and hints lost.
		w.scan = true
	}
	switch {
	case !w.scan:
	case d.scans > 0:
		d.scans--
		w.scan = false
		n += d.collectAll(w)
	default:
		d.postpone(w)
	}
	d.roomier = d.roomier || n > 0 || w.stuffed
	w.recalled, w.stuffed = 0, false
	return n
}

const (
	// cycleHints and cycleScans bound what an agent does in one cycle for the workers of a
	// domain: other domains have the same agent. Hints may be exceeded by those of
	// one worker. As many queued requests are looked at.
	cycleHints = 2 * slots.HintEntries
	cycleScans = 1
	// sharedHints is how many hints of a worker are taken in a cycle by an agent with
	// several domains: a worker can make each of them cost without any use.
	sharedHints = 512
)

// shares reports whether the agent has other domains too.
func (d *Domain) shares() bool { return len(d.agent.Domains) > 1 }

// mostHints is cycleHints, or less beside other domains.
func (d *Domain) mostHints() int {
	if d.shares() {
		return 2 * sharedHints
	}
	return cycleHints
}

// heed looks at what a worker that has marked itself has done, or leaves it for the next
// cycle.
func (d *Domain) heed(w *Worker) int {
	if d.hints <= 0 {
		d.postpone(w)
		return 1
	}
	return d.submitted(w) + d.collect(w)
}

func (d *Domain) postpone(w *Worker) {
	if !w.later {
		w.later = true
		d.againWorkers = append(d.againWorkers, w)
	}
}

// heedPostponed looks at what was left by the last cycle. Who has no turn in this one has the first in the
// next, before those who had one and want another.
func (d *Domain) heedPostponed() (work int) {
	d.hints, d.scans, d.ops = d.mostHints(), cycleScans, cycleOps
	waiting := d.againWorkers
	d.againWorkers = d.spareAgain[:0]
	turns := 0
	for ; turns < len(waiting) && d.hints > 0 && d.ops > 0; turns++ {
		w := waiting[turns]
		w.later = false
		if d.Workers[w.ID] == w {
			d.heed(w)
		}
	}
	n := len(waiting)
	left := append(waiting[:copy(waiting, waiting[turns:])], d.againWorkers...)
	clear(waiting[min(len(left), n):n])
	clear(d.againWorkers)
	d.againWorkers, d.spareAgain = left, d.againWorkers
	return n
}

// collectAll finds finished answers of w in the slot words.
func (d *Domain) collectAll(w *Worker) (n int) {
	for _, l := range d.InLanes {
		for i := range l.underWay() {
			if int(l.records[i].worker) == w.ID && l.finished(i, w) {
				n++
			}
		}
	}
	return n
}

// AddWorker makes the agent know an attached process.
func (d *Domain) AddWorker(w *Worker) {
	w.highBytes = true // since another core, perhaps
	d.Workers[w.ID] = w
	d.mixed = d.mixed || w.Stale || len(d.present) > 0
	d.present = append(d.present, w)
	if d.Tracer != nil {
		d.Tracer.tell(w) // it has no welcome yet: its first request has stamps, too
	}
}

// Detach ends the service of a worker whose connection has ended: it gets no
// more requests. What it has not started goes to others.
func (d *Domain) Detach(w *Worker) {
	d.collect(w)
	d.collectAll(w)
	w.Gone, w.wentAt, w.used = true, shm.Nanotime(), w.uses
	d.LeaveInline(w)
	d.leaves(w)
	for _, m := range d.methods {
		if m == nil {
			continue
		}
		for k, have := range m.workers {
			if have == w {
				m.workers = append(m.workers[:k], m.workers[k+1:]...)
				break
			}
		}
	}
	w.served = nil
	d.takeBack(w)
	for _, m := range d.methods {
		if m != nil && m.deserted() && !d.Expecting {
			d.refuseQueue(m)
		}
	}
	d.DrainQueues() // of what was for w alone
}

// Bury removes a detached worker that is certain not to touch its slots any
// more: the kernel says that the process is dead, or it has said goodbye. Its
// started requests may have been executed; its claimed slots become free.
func (d *Domain) Bury(w *Worker) {
	d.collectAll(w)
	w.Ops = nil
	d.abandon(func(o *operation) bool { return o.worker == w }, slots.OpExpired)
	for _, m := range d.Movers {
		delete(m.flows, w.ID) // it is in no list, being empty
	}
	for _, l := range d.InLanes {
		for i := range l.underWay() {
			if int(l.records[i].worker) == w.ID {
				if g := l.records[i].grants; g != nil && g.die() {
					l.kept.Failing(i, slots.StatusMaybeExecuted) // also for the next core, to which nobody may be at work on it
					l.unassign(i)
					continue
				}
				d.agent.Count.MaybeExecuted++
				l.refuse(i, slots.StatusMaybeExecuted, "the handler's process died")
				l.later()
			}
		}
	}
	for _, l := range d.OutLanes {
		// One-way messages that it has published are still to be sent.
		l.Plan.Rescan()
		l.Send()
		l.sweep(w.ID)
	}
	d.Workers[w.ID] = nil
	d.present = Without(d.present, w)
	d.mixed = len(d.present) > 1 || d.mixed && !d.blank()
	d.touched = Without(d.touched, w) // its rings are unmapped next
	for _, m := range d.methods {
		if m != nil && m.orders != nil {
			m.orders.forget(func(h *home) bool { return h.worker == w })
		}
	}
	for _, l := range d.InLanes {
		delete(l.parts, w)
	}
	d.DrainQueues() // what was not to be started while it could run
}

// UnsettledIDs adds to a set the ids of buried workers that must not be used again yet, because slots of theirs are still on the
// wire, or to be sent. It looks at each slot once: workers may have written any ids to any number of them.
func (d *Domain) UnsettledIDs(ids *CallerSet) {
	for _, l := range d.OutLanes {
		for i := range l.underWay() {
			ids.add(uint16(l.journal[i].word.Owner()))
		}
		for i := range l.journal {
			// Words that are wrong are not sent.
			if w := l.Ring.Word(i); w.State() == slots.Pub && l.Ring.CheckRun(i, w) == nil {
				ids.add(uint16(w.Owner()))
			}
		}
	}
}
