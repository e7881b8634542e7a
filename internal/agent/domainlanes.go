package agent

import (
	"fmt"
	"slices"

	"github.com/rdmad/rdmad/slots"
)

// AddOut makes the agent know the requesting end of a lane.
func (d *Domain) AddOut(l *OutLane) {
	d.outs[l.id] = l
	d.OutLanes = append(d.OutLanes, l)
	d.largestRun = max(d.largestRun, l.geo.MaxRun*l.geo.SlotSize)
}

// RemoveOut makes the agent forget the requesting end of a lane, unless somebody may still have something in it: a process that has
// the lane, or one that is gone and whose slots are not free, or a trace, or who copies answers: whose they are the slot words say,
// which are not to be trusted.
func (d *Domain) RemoveOut(l *OutLane) bool {
	if l.Sharing.Users() > 0 || l.busy > 0 || l.End != nil || !l.IsClosed() || d.Tracer != nil {
		return false
	}
	if slices.ContainsFunc(d.present, func(w *Worker) bool { return w.Spilling }) {
		return false
	}
	for i := range l.geo.Slots {
		if l.Ring.Word(i).State() != slots.Free {
			return false
		}
	}
	d.outs[l.id] = nil
	d.OutLanes, d.againOut, d.freed = Without(d.OutLanes, l), Without(d.againOut, l), Without(d.freed, l)
	d.forgetDelayed(l)
	return true
}

// AddIn makes the agent know the answering end of a lane.
func (d *Domain) AddIn(l *InLane) {
	d.ins[l.id] = l
	d.InLanes = append(d.InLanes, l)
}

// RemoveIn makes the agent forget the answering end of a lane.
func (d *Domain) RemoveIn(l *InLane) {
	d.ins[l.id], l.Dropped = nil, true
	d.InLanes, d.againIn = Without(d.InLanes, l), Without(d.againIn, l)
	d.forgetDelayed(l)
}

// unqueue forgets the queued requests of a lane that has dropped them.
func (d *Domain) unqueue(l *InLane) {
	for _, m := range d.methods {
		if m != nil {
			m.queue.set(slices.DeleteFunc(m.queue.waiting(), func(q Queued) bool { return q.lane == l }))
			m.recount()
			m.turns.forget(l)
		}
	}
}

// Quiet reports whether no request is under way in the domain.
func (d *Domain) Quiet() bool {
	for _, l := range d.OutLanes {
		if l.busy > 0 {
			return false
		}
	}
	for _, l := range d.InLanes {
		if l.Busy > 0 || l.answers.Pending() > 0 || l.End != nil && l.End.underWay() {
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
