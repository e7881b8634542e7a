package agent

import (
	"math"

	"github.com/rdmad/rdmad/slots"
)

// dispatch gives the recorded request in slot i to a service worker, or queues
// it while all are full, or refuses it.
func (l *InLane) dispatch(i int) {
	rec := &l.records[i]
	m := l.domain.Method(rec.method)
	if m == nil || (len(m.workers) == 0 || rec.to == 0 && m.deserted()) && !l.domain.Expecting {
		l.refuse(i, slots.StatusNoService, "nobody serves it")
		return
	}
	if rec.alone && m.Inline != nil && !l.domain.Expecting && m.Inline.hasMapped(l.id) {
		l.domain.soon.add(Queued{l, i, rec.ticket})
		return
	}
	if rec.to != 0 && m.worker(l.domain, rec.to) == nil {
		l.refuseGone(i)
		return
	}
	if rec.order != 0 {
		if m.orders == nil {
			m.orders = new(orders)
		}
		if m.orders.queued > 0 { // perhaps of the same order
			m.enqueue(l, i)
			l.domain.roomier = true // if not, nothing else need happen that would have anybody look at it
			return
		}
	}
	w := m.choose(l.domain, rec, l.id)
	if w != nil && rec.to == 0 && rec.order == 0 && m.mustWait(i, l, w) {
		return
	}
	if w == nil || !l.give(i, w) {
		m.enqueue(l, i)
	}
}

// give delivers the request in slot i to w. False: w has no room.
func (l *InLane) give(i int, w *Worker) bool {
	rec := &l.records[i]
	l.Ring.Deliver(i, int(rec.run), w.ID, rec.ticket)
	h := slots.MakeHint(l.id, i, rec.ticket)
	if rec.order != 0 {
		h = h.WithOrder()
	}
	// A worker whose ring is full may have picked the request by a hint of the last core, which gave it the same one.
	if !l.domain.hint(w, h) && l.Ring.Withdraw(i, slots.MakeWord(slots.Recv, int(rec.run), w.ID, rec.ticket)) {
		w.stuffed = true
		return false
	}
	l.assign(i, w)
	l.countWait(rec)
	w.outstanding++
	return true
}

// DrainQueues dispatches queued requests for which there is room now. It looks at everything that waits: it is for what happens
// once in the life of a process or a core. What may happen in any cycle sets Domain.roomier.
func (d *Domain) DrainQueues() {
	if d.midway {
		d.methods[d.lookAt].queue.stop()
		d.midway = false
	}
	d.lookOn(math.MaxInt)
}

// lookOn goes on with the look at the queues that is under way, or begins one, and comes to no more than most requests; the next
// cycle goes on with the rest. For workers can have the agent look as often as they like, and have as many requests wait as
// there are slots, for a process that never takes them.
//
// Room that is found while a look is under way may be for what it has come to already: roomier has it followed by another.
func (d *Domain) lookOn(most int) {
	if !d.midway {
		d.roomier = false
		if d.homesLeft {
			d.leaveHomes()
		}
		d.pass++
		d.lookAt = 0
	}
	for over := true; d.lookAt < len(d.methods); d.lookAt++ {
		if m := d.methods[d.lookAt]; m != nil && m.queue.len() > 0 {
			if most, over = m.drain(d, most); !over {
				break
			}
		}
	}
	d.midway = d.lookAt < len(d.methods)
	d.takeTurns()
}
