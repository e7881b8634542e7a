package agent

import (
	"slices"

	"github.com/rdmad/rdmad/internal/counters"
	"github.com/rdmad/rdmad/slots"
)

// Method is a method with the processes that serve it.
type Method struct {
	id      uint32
	workers []*Worker
	turn    int
	// queue holds requests for which no process had room, oldest first.
	queue fifo
	// sweepAt is with how many of them those are dropped that wait no more.
	sweepAt int
	// staying counts those with an order that had to stay in the look that is under way, and those that have come since it began.
	staying int
	// orders is nil before the first request with an order.
	orders *orders
	// turns holds requests that wait for their callers' turns.
	turns turns
	crowd crowd
	// Inline is the process in which this is, if it has the agent handle the method's requests
	// by calling Handle; nil if not.
	Inline *Worker
	Handle func(slots.Hint)
	// row is what is counted of the method.
	row *counters.Service
}

// Queued is a request that waits for a process.
type Queued struct {
	lane   *InLane
	index  int
	ticket uint64
}

// pickAmong bounds how many of a method's workers are compared for a request.
const pickAmong = 8

// pick returns the worker with the least to do, of up to pickAmong that have the lane
// mapped and room for hints, or nil. Among equals it takes turns.
func (m *Method) pick(lane uint16) *Worker {
	var best *Worker
	n := len(m.workers)
	if n == 1 && m.workers[0].takes(lane) {
		return m.workers[0]
	}
	m.turn++
	for k := 0; k < min(n, pickAmong); k++ {
		w := m.workers[(m.turn+k)%n]
		if w.takes(lane) && (best == nil || w.load() < best.load()) && w.hasRoom() {
			best = w
		}
	}
	if best != nil || n <= pickAmong {
		return best
	}
	for _, w := range m.workers {
		if w.takes(lane) && w.hasRoom() {
			return w
		}
	}
	return nil
}

// worker returns the process with the attach id if it serves the method, or nil.
func (m *Method) worker(d *Domain, id uint16) *Worker {
	if w := d.Workers[id&slots.MaxOwner]; w != nil && w.ID == int(id) && w.serves(d.MethodNumber(m.id)) {
		return w
	}
	return nil
}

// hasRoom reports whether one of the method's processes may take something: not all of them take requests of every lane, some
// no new ones.
func (m *Method) hasRoom() bool { return slices.ContainsFunc(m.workers, (*Worker).hasRoom) }

// blocked is a look at the queues, of Domain.pass, and a method of whose processes none took a request of a lane that can go to any: they
// have no room, or have not mapped it, and may never, if they lack the memory for example.
type blocked struct {
	pass   uint64
	method *Method
}

// choose returns the worker for a recorded request of the lane; nil if none that may
// have it has the lane mapped.
func (m *Method) choose(d *Domain, r *record, lane uint16) *Worker {
	switch {
	case r.to != 0:
		if w := m.worker(d, r.to); w != nil && w.hasMapped(lane) {
			return w
		}
		return nil
	case r.order != 0:
		return m.atHome(r.order, lane)
	}
	return m.pick(lane)
}

// Register makes w serve method id.
func (d *Domain) Register(id uint32, w *Worker) {
	if w.Gone {
		return // detached while its question was being answered
	}
	m, n := d.MethodFor(id), d.MethodNumber(id)
	if w.serves(n) {
		return
	}
	for n/64 >= len(w.served) {
		w.served = append(w.served, 0)
	}
	w.served[n/64] |= 1 << (n % 64)
	m.workers = append(m.workers, w)
	d.roomier = true
}

// MethodFor returns the method with the id, which it makes if there is none.
func (d *Domain) MethodFor(id uint32) *Method {
	n := d.MethodNumber(id)
	for n >= len(d.methods) {
		d.methods = append(d.methods, nil)
	}
	if d.methods[n] == nil {
		d.methods[n] = &Method{id: id, row: new(counters.Service)}
	}
	return d.methods[n]
}

// MethodNumber returns the number of a method in its domain, by its id.
func (d *Domain) MethodNumber(id uint32) int { return int(id & (1<<d.MethodBits - 1)) }

// Method returns the method with the id that a request carries, or nil.
func (d *Domain) Method(id uint32) *Method {
	if n := d.MethodNumber(id); n < len(d.methods) && d.methods[n] != nil && d.methods[n].id == id {
		return d.methods[n]
	}
	return nil
}
