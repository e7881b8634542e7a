package daemon

import (
	"fmt"
	"slices"

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
	// mapped has a bit for each lane that a service worker has mapped.
	mapped [slots.MaxLanes / 64]uint64
	// outstanding counts the requests it has and has not finished.
	outstanding int
	// ops are the operations on regions that it submits; nil when it is dead.
	ops *workerOps
}

func (w *agentWorker) hasMapped(lane uint16) bool {
	return w.mapped[lane/64]&(1<<(lane%64)) != 0
}

// agentMethod is a method with the processes that serve it.
type agentMethod struct {
	id      uint32
	workers []*agentWorker
	turn    int
	// queue holds requests for which no process had room, oldest first.
	queue []queued
}

type queued struct {
	lane   *inLane
	index  int
	ticket uint64
}

// pickAmong bounds how many of a method's workers are compared for a request.
const pickAmong = 8

// pick returns the worker with the fewest unfinished requests, of up to
// pickAmong that have the lane mapped, or nil. Among equals it takes turns.
func (m *agentMethod) pick(lane uint16) *agentWorker {
	var best *agentWorker
	n := len(m.workers)
	if n == 1 && m.workers[0].hasMapped(lane) {
		return m.workers[0]
	}
	m.turn++
	for k := 0; k < min(n, pickAmong); k++ {
		w := m.workers[(m.turn+k)%n]
		if w.hasMapped(lane) && (best == nil || w.outstanding < best.outstanding) {
			best = w
		}
	}
	if best != nil || n <= pickAmong {
		return best
	}
	for _, w := range m.workers {
		if w.hasMapped(lane) {
			return w
		}
	}
	return nil
}

// collect takes what service worker w has finished.
func (d *agentDomain) collect(w *agentWorker) int {
	n := 0
	for n < slots.HintEntries {
		h, ok := w.rings.Up.Pop()
		if !ok {
			break
		}
		n++
		if l := d.ins[int(h.Lane())%slots.MaxLanes]; l != nil {
			l.finished(h.Index(), w)
		}
	}
	if n > slots.HintEntries/2 {
		// The ring may have been full, as the worker saw it, and hints lost.
		n += d.collectAll(w)
	}
	if n > 0 {
		d.drainQueues()
	}
	return n
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
		if m == nil || len(m.queue) == 0 {
			continue
		}
		q := m.queue
		m.queue = m.queue[:0]
		for k, r := range q {
			rec := &r.lane.records[r.index]
			if !rec.active || rec.worker != 0 || rec.ticket != r.ticket {
				continue // answered otherwise meanwhile
			}
			w := m.pick(r.lane.id)
			if w == nil || !r.lane.give(r.index, w) {
				m.queue = append(m.queue, q[k:]...)
				break
			}
		}
	}
}

// register makes w serve method id.
func (d *agentDomain) register(id uint32, w *agentWorker) {
	if w.gone {
		return // detached while its question was being answered
	}
	n := d.methodNumber(id)
	for n >= len(d.methods) {
		d.methods = append(d.methods, nil)
	}
	m := d.methods[n]
	if m == nil {
		m = &agentMethod{id: id}
		d.methods[n] = m
	}
	for _, have := range m.workers {
		if have == w {
			return
		}
	}
	m.workers = append(m.workers, w)
	d.drainQueues()
}

func (d *agentDomain) methodNumber(id uint32) int { return int(id & (1<<d.methodBits - 1)) }

// method returns the method with the id that a request carries, or nil.
func (d *agentDomain) method(id uint32) *agentMethod {
	if n := d.methodNumber(id); n < len(d.methods) && d.methods[n] != nil && d.methods[n].id == id {
		return d.methods[n]
	}
	return nil
}

// addWorker makes the agent know an attached process.
func (d *agentDomain) addWorker(w *agentWorker) { d.workers[w.id] = w }

// detach ends the service of a worker whose connection has ended: it gets no
// more requests. What it has not started goes to others.
func (d *agentDomain) detach(w *agentWorker) {
	d.collect(w)
	d.collectAll(w)
	w.gone = true
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
	for _, l := range d.inLanes {
		for i := range l.records {
			rec := &l.records[i]
			if !rec.active || int(rec.worker) != w.id || !l.ring.Withdraw(i, l.ring.AnswerWord(i)) {
				continue
			}
			rec.worker = 0
			w.outstanding--
			d.agent.count.Redispatched++
			l.dispatch(i)
			l.later()
		}
	}
	for _, m := range d.methods {
		if m != nil && len(m.workers) == 0 {
			d.refuseQueue(m)
		}
	}
}

// refuseQueue answers the queued requests of a method that nobody serves.
func (d *agentDomain) refuseQueue(m *agentMethod) {
	q := m.queue
	m.queue = nil
	for _, r := range q {
		if rec := &r.lane.records[r.index]; rec.active && rec.worker == 0 && rec.ticket == r.ticket {
			r.lane.refuse(r.index, slots.StatusNoService, "nobody serves it")
			r.lane.later()
		}
	}
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
					l.records[i].worker = 0
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
}

// unsettled reports whether slots of a buried worker are still on the wire, so
// that its id must not be used again.
func (d *agentDomain) unsettled(id int) bool {
	for _, l := range d.outLanes {
		for i := range l.journal {
			if l.journal[i].taken && l.journal[i].word.Owner() == id {
				return true
			}
		}
	}
	return false
}

func (d *agentDomain) addOut(l *outLane) {
	d.outs[l.id] = l
	d.outLanes = append(d.outLanes, l)
}

func (d *agentDomain) addIn(l *inLane) {
	d.ins[l.id] = l
	d.inLanes = append(d.inLanes, l)
}

func (d *agentDomain) removeIn(l *inLane) {
	d.ins[l.id] = nil
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
}

// unqueue forgets the queued requests of a lane that has dropped them.
func (d *agentDomain) unqueue(l *inLane) {
	for _, m := range d.methods {
		if m != nil {
			m.queue = slices.DeleteFunc(m.queue, func(q queued) bool { return q.lane == l })
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
