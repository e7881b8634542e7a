package agent

import (
	"cmp"
	"slices"
)

// homeCount is how many homes a method has. Numbers that share one go to the same
// process.
const homeCount = 1024

// orders is what a method keeps for requests with an order. A request of an order never
// passes another of the same order: not on its way to the method's queue, not in it,
// and not on its way from a process that went away to the next one.
type orders struct {
	homes [homeCount]home
	// queued is how many of the method's queued requests have an order, or more while a look at them is under way.
	queued int
}

// home is where the requests of some orders go: the same process as long as it lives and does not withdraw,
// and no other before it is certain that it does nothing of them any more.
type home struct {
	worker *Worker
	// full is the look at the queues, of Domain.pass, in which one of its requests had to stay.
	full uint64
}

// home returns the home of the orders with the number on the lane.
func (o *orders) home(order, lane uint16) *home {
	x := (uint32(order)<<16 | uint32(lane)) * 0x9e3779b1
	return &o.homes[x>>22%homeCount]
}

// forget makes room for another process in the homes that leave says are left. They have a process.
func (o *orders) forget(leave func(*home) bool) {
	for i := range o.homes {
		if h := &o.homes[i]; h.worker != nil && leave(h) {
			h.worker = nil
		}
	}
}

// atHome returns the process for a request with an order, or nil if it must wait: the
// process has not mapped the lane, or it has detached and is not buried.
func (m *Method) atHome(order, lane uint16) *Worker {
	h := m.orders.home(order, lane)
	if h.worker == nil {
		h.worker = m.pick(lane)
	}
	if w := h.worker; w != nil && !w.Gone && w.takes(lane) {
		return w
	}
	return nil
}

// enqueue lets the recorded request in slot i of l wait until a process has room.
func (m *Method) enqueue(l *InLane, i int) {
	rec := &l.records[i]
	l.domain.agent.Count.Queued++
	// A look that is under way drops them itself, and would have to begin again.
	if m.queue.len() >= m.sweepAt && !m.queue.looking() {
		m.sweepAt = m.queue.sweep()
		m.recount()
	}
	m.queue.add(Queued{l, i, rec.ticket})
	if rec.order != 0 {
		m.orders.queued++
		m.staying++
	}
}

// drain is the method's part of a look: it dispatches queued requests for which there is room, comes to no more than most of them,
// and returns to how many more it might have come. Not over: it has to go on. Homes and processes that have taken nothing are
// full for the whole look, however many cycles that takes and whatever they finish meanwhile: what has had to stay is not
// passed by what comes behind it.
func (m *Method) drain(d *Domain, most int) (left int, over bool) {
	if !m.queue.looking() {
		m.queue.begin()
		m.staying = 0
	}
	ordered := m.orders != nil && m.orders.queued > 0
	for ; ; most-- {
		r, ok := m.queue.next()
		if !ok {
			break
		}
		if most == 0 {
			return 0, false
		}
		rec := &r.lane.records[r.index]
		if !r.waits() {
			m.queue.goOn() // answered otherwise meanwhile
			continue
		}
		if rec.to != 0 && m.worker(d, rec.to) == nil {
			m.queue.goOn()
			r.lane.refuseGone(r.index)
			continue
		}
		var h *home
		if rec.order != 0 {
			h = m.orders.home(rec.order, r.lane.id)
		}
		anywhere := rec.to == 0 && h == nil
		if anywhere && r.lane.blocked == (blocked{d.pass, m}) {
			m.queue.stay() // says nothing of those that came by other lanes
			continue
		}
		if h == nil || h.full != d.pass {
			// pick knows better who has room for a request that can go to any process.
			if w := m.choose(d, rec, r.lane.id); w != nil && (anywhere || w.full != d.pass) {
				if r.lane.give(r.index, w) {
					m.queue.goOn()
					continue
				}
				w.full = d.pass
			}
		}
		if anywhere {
			r.lane.blocked = blocked{d.pass, m}
			if !ordered && !m.hasRoom() {
				m.queue.stop()
				return most, true
			}
		}
		if h != nil {
			h.full = d.pass
			m.staying++
		}
		m.queue.stay() // others may have room
	}
	if m.orders != nil {
		m.orders.queued = m.staying
	}
	return most, true
}

// waits reports whether the request is still to be dispatched.
func (q *Queued) waits() bool {
	rec := &q.lane.records[q.index]
	return rec.active && rec.worker == 0 && rec.ticket == q.ticket
}

// recount follows a change of the queue.
func (m *Method) recount() {
	if m.orders == nil {
		return
	}
	m.orders.queued = 0
	for _, q := range m.queue.waiting() {
		if q.lane.records[q.index].order != 0 {
			m.orders.queued++
		}
	}
}

// arrivedAs notes the number of a request with an order.
func (r *record) arrivedAs(n uint64) { r.arrival, r.arrivalHigh = uint32(n), uint16(n>>32) }

// byArrival compares requests with an order by when they came.
func byArrival(a, b Queued) int {
	number := func(q Queued) uint64 {
		r := &q.lane.records[q.index]
		return uint64(r.arrivalHigh)<<32 | uint64(r.arrival)
	}
	return cmp.Compare(number(a), number(b))
}

// inherit returns the number of a request of which the last core has kept the lower half, and goes on from the last of them. What it
// has is less than 2^31 apart, or is not in order.
func (d *Domain) inherit(low uint32) uint64 {
	if !d.inherited {
		d.inherited, d.arrivals = true, 1<<32|uint64(low) // with room for those that came before
		return d.arrivals
	}
	n := d.arrivals + uint64(int64(int32(low-uint32(d.arrivals)))) // signed: the numbers wrap
	d.arrivals = max(d.arrivals, n)
	return n
}

// putBack makes requests with an order, which were taken back from a process that went
// away, the first ones in the queues of their methods.
func (d *Domain) putBack(back []Queued) {
	slices.SortFunc(back, byArrival)
	for _, m := range d.methods {
		if m == nil || m.orders == nil {
			continue
		}
		var mine []Queued
		for _, q := range back {
			if q.lane.records[q.index].method == m.id {
				mine = append(mine, q)
			}
		}
		m.queue.set(append(mine, m.queue.waiting()...))
		m.recount()
	}
}
