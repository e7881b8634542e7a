package agent

import (
	"github.com/rdmad/rdmad/slots"
)

// Withdraw gives a worker no new requests. It stays among those that serve its methods, for the parts of exchanges
// that it has begun with. It looks through all requests of the domain, once: whoever asks again has what it wants.
func (d *Domain) Withdraw(w *Worker) {
	if w.Gone || w.tookBack {
		return
	}
	w.Withdrawn, w.tookBack = true, true
	d.LeaveInline(w)
	d.takeBack(w)
	d.leaveHomes()
	for _, m := range d.methods {
		if m != nil && m.deserted() && !d.Expecting {
			d.refuseQueue(m)
		}
	}
	d.DrainQueues()
}

// leaveHomes lets orders go to other processes than those that have withdrawn, as soon as nothing of them is
// under way there.
func (d *Domain) leaveHomes() {
	d.homesLeft = false
	stay := make(map[*home]bool)
	for _, l := range d.InLanes {
		for i := range l.records {
			rec := &l.records[i]
			if !rec.active || rec.order == 0 || rec.worker == 0 {
				continue
			}
			w, m := d.Workers[rec.worker], d.Method(rec.method)
			if w != nil && w.Withdrawn && m != nil && m.orders != nil {
				stay[m.orders.home(rec.order, l.id)] = true
			}
		}
	}
	for _, m := range d.methods {
		if m != nil && m.orders != nil {
			m.orders.forget(func(h *home) bool { return h.worker.Withdrawn && !stay[h] })
		}
	}
}

// deserted reports whether nobody takes new requests for the method.
func (m *Method) deserted() bool {
	for _, w := range m.workers {
		if !w.Withdrawn {
			return false
		}
	}
	return true
}

// takeBack has what a worker was given and has not begun with go to others.
func (d *Domain) takeBack(w *Worker) {
	var back []Queued // with an order
	for _, l := range d.InLanes {
		for i := range l.underWay() {
			rec := &l.records[i]
			if int(rec.worker) != w.ID || !l.Ring.Withdraw(i, l.Ring.AnswerWord(i)) {
				continue
			}
			l.unassign(i)
			w.outstanding--
			d.agent.Count.Redispatched++
			if rec.order != 0 {
				back = append(back, Queued{l, i, rec.ticket})
				continue
			}
			l.dispatch(i)
			l.later()
		}
	}
	if len(back) > 0 {
		d.putBack(back)
	}
}

// refuseQueue answers the queued requests of a method that nobody serves, but for the parts of exchanges with
// processes that have begun with them.
func (d *Domain) refuseQueue(m *Method) {
	q := m.queue.waiting()
	m.queue = fifo{}
	m.turns.drain(func(r Queued) verdict {
		q = append(q, r)
		return gone
	})
	for _, r := range q {
		switch to := r.lane.records[r.index].to; {
		case !r.waits():
		case to != 0 && m.worker(d, to) != nil:
			m.queue.add(r)
		default:
			r.lane.refuse(r.index, slots.StatusNoService, "nobody serves it")
			r.lane.later()
		}
	}
	m.recount()
}
