package daemon

import (
	"fmt"

	"github.com/rdmad/rdmad/internal/attach"
	"github.com/rdmad/rdmad/slots"
)

// withdraw answers a service worker's question to get no new requests. What it has not begun with goes to other
// processes that serve the same, or has its outcome.
func (c *conductor) withdraw(w *worker) (*attach.Message, error) {
	if w.role != attach.RoleService {
		return nil, fmt.Errorf("%w: only services withdraw", attach.ErrInvalid)
	}
	c.mu.Lock()
	w.withdrawn = true
	served := false
	for _, m := range w.domain.methods {
		served = served || m.workers[w]
		delete(m.workers, w)
	}
	if _, attached := c.attached[w]; attached {
		w.keepWorkerChange()
	}
	c.mu.Unlock()
	if served {
		c.directoryChanged()
	}
	d := w.domain
	d.agent.commands.call(func() { d.view.withdraw(w.view) })
	return &attach.Message{Type: attach.TypeWithdrawn}, nil
}

// withdraw gives a worker no new requests. It stays among those that serve its methods, for the parts of exchanges
// that it has begun with.
func (d *agentDomain) withdraw(w *agentWorker) {
	if w.gone {
		return
	}
	w.withdrawn = true
	d.leaveInline(w)
	d.takeBack(w)
	d.leaveHomes(w)
	for _, m := range d.methods {
		if m != nil && m.deserted() && !d.expecting {
			d.refuseQueue(m)
		}
	}
	d.drainQueues()
}

// leaveHomes lets orders go to other processes than w, which has withdrawn, as soon as nothing of them is
// under way there.
func (d *agentDomain) leaveHomes(w *agentWorker) {
	stay := make(map[*home]bool)
	for _, l := range d.inLanes {
		for i := range l.records {
			rec := &l.records[i]
			if m := d.method(rec.method); rec.active && rec.order != 0 && int(rec.worker) == w.id && m != nil && m.orders != nil {
				stay[m.orders.home(rec.order, l.id)] = true
			}
		}
	}
	for _, m := range d.methods {
		if m != nil && m.orders != nil {
			m.orders.forget(w, stay)
		}
	}
}

// deserted reports whether nobody takes new requests for the method.
func (m *agentMethod) deserted() bool {
	for _, w := range m.workers {
		if !w.withdrawn {
			return false
		}
	}
	return true
}

// takeBack has what a worker was given and has not begun with go to others.
func (d *agentDomain) takeBack(w *agentWorker) {
	var back []queued // with an order
	for _, l := range d.inLanes {
		for i := range l.records {
			rec := &l.records[i]
			if !rec.active || int(rec.worker) != w.id || !l.ring.Withdraw(i, l.ring.AnswerWord(i)) {
				continue
			}
			l.unassign(i)
			w.outstanding--
			d.agent.count.Redispatched++
			if rec.order != 0 {
				back = append(back, queued{l, i, rec.ticket})
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
func (d *agentDomain) refuseQueue(m *agentMethod) {
	q := m.queue.waiting()
	m.queue = fifo{}
	m.turns.drain(func(r queued) verdict {
		q = append(q, r)
		return gone
	})
	for _, r := range q {
		switch to := r.lane.records[r.index].to; {
		case !r.waits():
		case to != 0 && m.worker(to) != nil:
			m.queue.add(r)
		default:
			r.lane.refuse(r.index, slots.StatusNoService, "nobody serves it")
			r.lane.later()
		}
	}
	m.recount()
}
