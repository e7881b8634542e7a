package daemon

import (
	"fmt"
	"slices"

	"github.com/rdmad/rdmad/shm"
	"github.com/rdmad/rdmad/slots"
)

// agentWorker is what an agent knows of an attached process.
type agentWorker struct {
	id    int
	rings *slots.WorkerRings
	// gone: the process has detached. Its slots are freed as their outcomes
	// come in.
	gone    bool
	touched bool // in domain.touched
	// freed is how many slots of its one-way messages were freed since it was last woken, of
	// freedBytes, and postBytes are those of such messages in the journals; see outLane.freedFor.
	// untold: some were freed since its bell was last rung.
	// highBytes: it has had so many bytes in lanes that it perhaps waits until it has less.
	freed, freedBytes, postBytes int
	untold, highBytes            bool
	// pid is its process. wentAt is when it went, by CLOCK_MONOTONIC.
	pid    int
	wentAt int64
	// offences are what it did against the protocol.
	offences strikes
	// mapped has a bit for each lane that a service worker has mapped, known for each that
	// it ever had.
	mapped, known [slots.MaxLanes / 64]uint64
	// stale: it was attached to another core, so that known is not complete.
	stale bool
	// later: it is in domain.againWorkers. scan: its slots are to be looked at. row is how
	// many of its hints were taken since its ring was last empty.
	later, scan bool
	row         int
	// outstanding counts the requests it has and has not finished.
	outstanding int
	// ended counts those that it has finished since callers were last judged, and ahead is how
	// many it finished in aheadTime before that.
	ended, ahead int
	// leaving: it is to finish them and gets no others, unless they belong to one. withdrawn: so it has said.
	leaving, withdrawn bool
	// handlers is how many it works on at once; 0 if it has not said.
	handlers int
	// uses has a bit for each lane that a client has, bytes is the size of its
	// slots in the journals of all of them, and overLimit counts the requests
	// that were refused because they were more than it may have. used are the lanes
	// that it had when it went.
	uses      [slots.MaxLanes / 64]uint64
	used      [slots.MaxLanes / 64]uint64
	bytes     int
	overLimit uint64
	// told: it was told that it may hold at most mostBytes of slots, whatever has become the
	// limit since.
	told      bool
	mostBytes int
	// spill sends it answers that it does not take; nil if nothing does. It must not
	// block, and reports false when it will send nothing. spilling: it is at it, or
	// will be when overdue is complete.
	spill    func(list []overdue) bool
	spilling bool
	overdue  []overdue
	// spilledAnswers and spilledBytes are what was sent so.
	spilledAnswers, spilledBytes uint64
	// ops are the operations on regions that it submits; nil when it is dead.
	ops *workerOps
}

func (w *agentWorker) hasMapped(lane uint16) bool {
	return w.mapped[lane/64]&(1<<(lane%64)) != 0
}

// takes reports whether it may be given new requests of a lane.
func (w *agentWorker) takes(lane uint16) bool { return !w.leaving && !w.withdrawn && w.hasMapped(lane) }

func (w *agentWorker) hasKnown(lane uint16) bool {
	return w.known[lane/64]&(1<<(lane%64)) != 0
}

// collect takes what service worker w has finished.
func (d *agentDomain) collect(w *agentWorker) int {
	n, most := 0, slots.HintEntries
	if d.shares() {
		most = sharedHints // the others' turn comes soon
	}
	for n < most {
		h, ok := w.rings.Up.Pop()
		if !ok {
			break
		}
		n++
		l := d.ins[int(h.Lane())%slots.MaxLanes]
		switch {
		case l != nil && h.Index() < l.geo.Slots:
			l.finished(h.Index(), w)
		case !w.stale && (l != nil && w.hasMapped(h.Lane()) || l == nil && !w.hasKnown(h.Lane())):
			// Only the worker writes to this ring.
			d.agent.count.ProtocolErrors++
			d.offence(w)
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
	if n > 0 {
		d.drainQueues()
	}
	return n
}

const (
	// cycleHints and cycleScans bound what an agent does in one cycle for the workers of a
	// domain: other domains have the same agent. Hints may be exceeded by those of
	// one worker.
	cycleHints = 2 * slots.HintEntries
	cycleScans = 1
	// sharedHints is how many hints of a worker are taken in a cycle by an agent with
	// several domains: a worker can make each of them cost without any use.
	sharedHints = 512
)

// shares reports whether the agent has other domains too.
func (d *agentDomain) shares() bool { return len(d.agent.domains) > 1 }

// heed looks at what a worker that has marked itself has done, or leaves it for the next
// cycle.
func (d *agentDomain) heed(w *agentWorker) int {
	if d.hints <= 0 {
		d.postpone(w)
		return 1
	}
	return d.submitted(w) + d.collect(w)
}

func (d *agentDomain) postpone(w *agentWorker) {
	if !w.later {
		w.later = true
		d.againWorkers = append(d.againWorkers, w)
	}
}

// heedPostponed looks at what was left by the last cycle.
func (d *agentDomain) heedPostponed() (work int) {
	d.hints, d.scans = cycleHints, cycleScans
	if d.shares() {
		d.hints = 2 * sharedHints
	}
	again := d.againWorkers
	d.againWorkers = d.spareAgain[:0]
	d.spareAgain = again
	for i, w := range again {
		w.later = false
		if d.workers[w.id] == w {
			work += 1 + d.heed(w)
		}
		again[i] = nil
	}
	return work
}

// collectAll finds finished answers of w in the slot words.
func (d *agentDomain) collectAll(w *agentWorker) (n int) {
	for _, l := range d.inLanes {
		for i := range l.records {
			if l.records[i].active && int(l.records[i].worker) == w.id && l.finished(i, w) {
				n++
			}
		}
	}
	return n
}

// drainQueues dispatches queued requests for which there is room now.
func (d *agentDomain) drainQueues() {
	for _, m := range d.methods {
		if m != nil && m.queue.len() > 0 {
			m.drain()
		}
	}
	d.takeTurns()
}

// addWorker makes the agent know an attached process.
func (d *agentDomain) addWorker(w *agentWorker) {
	w.highBytes = true // since another core, perhaps
	d.workers[w.id] = w
	d.present = append(d.present, w)
}

// detach ends the service of a worker whose connection has ended: it gets no
// more requests. What it has not started goes to others.
func (d *agentDomain) detach(w *agentWorker) {
	d.collect(w)
	d.collectAll(w)
	w.gone, w.wentAt, w.used = true, shm.Nanotime(), w.uses
	d.leaveInline(w)
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
	d.takeBack(w)
	for _, m := range d.methods {
		if m != nil && m.deserted() && !d.expecting {
			d.refuseQueue(m)
		}
	}
	d.drainQueues() // of what was for w alone
}

// bury removes a detached worker that is certain not to touch its slots any
// more: the kernel says that the process is dead, or it has said goodbye. Its
// started requests may have been executed; its claimed slots become free.
func (d *agentDomain) bury(w *agentWorker) {
	d.collectAll(w)
	w.ops = nil
	d.abandon(func(o *agentOp) bool { return o.worker == w }, slots.OpExpired)
	for _, l := range d.inLanes {
		for i := range l.records {
			if l.records[i].active && int(l.records[i].worker) == w.id {
				if g := l.records[i].grants; g != nil && g.die() {
					l.unassign(i)
					continue
				}
				d.agent.count.MaybeExecuted++
				l.refuse(i, slots.StatusMaybeExecuted, "the handler's process died")
				l.later()
			}
		}
	}
	for _, l := range d.outLanes {
		// One-way messages that it has published are still to be sent.
		l.plan.Rescan()
		l.send()
		l.sweep(w.id)
	}
	d.workers[w.id] = nil
	d.present = without(d.present, w)
	d.touched = without(d.touched, w) // its rings are unmapped next
	for _, m := range d.methods {
		if m != nil && m.orders != nil {
			m.orders.forget(w, nil)
		}
	}
	for _, l := range d.inLanes {
		delete(l.parts, w)
	}
	d.drainQueues() // what was not to be started while it could run
}

// unsettled reports whether slots of a buried worker are still on the wire, or to be
// sent, so that its id must not be used again.
func (d *agentDomain) unsettled(id int) bool {
	var ids callerSet
	d.unsettledIDs(&ids)
	return ids.has(uint16(id))
}

// unsettledIDs adds the ids to a set of which unsettled is true, by one look at each slot: workers may have written any
// ids to any number of them.
func (d *agentDomain) unsettledIDs(ids *callerSet) {
	for _, l := range d.outLanes {
		for i := range l.journal {
			if l.journal[i].taken {
				ids.add(uint16(l.journal[i].word.Owner()))
			}
			if w := l.ring.Word(i); w.State() == slots.Pub {
				ids.add(uint16(w.Owner()))
			}
		}
	}
}

func (d *agentDomain) addOut(l *outLane) {
	d.outs[l.id] = l
	d.outLanes = append(d.outLanes, l)
	d.largestRun = max(d.largestRun, l.geo.MaxRun*l.geo.SlotSize)
}

func (d *agentDomain) addIn(l *inLane) {
	d.ins[l.id] = l
	d.inLanes = append(d.inLanes, l)
}

func (d *agentDomain) removeIn(l *inLane) {
	d.ins[l.id], l.dropped = nil, true
	for k, have := range d.inLanes {
		if have == l {
			d.inLanes = append(d.inLanes[:k], d.inLanes[k+1:]...)
			break
		}
	}
	for k, have := range d.againIn {
		if have == l {
			d.againIn = append(d.againIn[:k], d.againIn[k+1:]...)
			break
		}
	}
	d.forgetDelayed(l)
}

// unqueue forgets the queued requests of a lane that has dropped them.
func (d *agentDomain) unqueue(l *inLane) {
	for _, m := range d.methods {
		if m != nil {
			m.queue.set(slices.DeleteFunc(m.queue.waiting(), func(q queued) bool { return q.lane == l }))
			m.recount()
			m.turns.forget(l)
		}
	}
}

// quiet reports whether no request is under way in the domain.
func (d *agentDomain) quiet() bool {
	for _, l := range d.outLanes {
		if l.busy > 0 {
			return false
		}
	}
	for _, l := range d.inLanes {
		if l.busy > 0 || l.answers.Pending() > 0 || l.pair != nil && (len(l.pair.wrs) > 0 || l.pair.done+1 < l.pair.next) {
			return false
		}
	}
	return true
}

// laneError describes why a lane failed.
func laneError(what string, err error) error {
	if err == nil {
		return fmt.Errorf("%s", what)
	}
	return fmt.Errorf("%s: %w", what, err)
}
