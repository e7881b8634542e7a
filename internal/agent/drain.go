package agent

import (
	"slices"

	"github.com/rdmad/rdmad/slots"
)

// Empty reports whether nothing is under way on a lane that drains, and closes it to
// workers if so. What somebody has published who had claimed its slots before the lane
// began to drain is to be sent first.
func (l *OutLane) Empty() bool {
	if l.busy > 0 {
		return false
	}
	if l.IsClosed() {
		return true
	}
	// SYNC POINT (lane closed): as in Down. From here on a worker takes back what it
	// publishes, and sends it by another way.
	l.Ring.SetState(slots.LaneClosed)
	for i := range l.journal {
		if w := l.Ring.Word(i); w.State() == slots.Pub && l.Ring.CheckRun(i, w) == nil {
			l.Ring.SetState(slots.LaneDraining)
			return false
		}
	}
	return true
}

// SetDraining stops new requests on all lanes of the domain.
func (d *Domain) SetDraining() {
	d.hurry()
	for _, l := range d.OutLanes {
		l.SetDraining()
	}
}

// SetDraining makes workers look for another way for new requests.
func (l *OutLane) SetDraining() {
	l.Draining = true
	if l.Ring.State() == slots.LaneOpen {
		l.Ring.SetState(slots.LaneDraining)
		l.wakeUsers()
	}
}

// Displace makes workers look for another way for good: what is under way in the lane goes on.
func (l *OutLane) Displace() {
	l.domain.displaced = append(l.domain.displaced, l)
	l.SetDraining()
}

// Undrain lets workers make requests again on a lane that is not down, nor displaced.
func (l *OutLane) Undrain() {
	if slices.Contains(l.domain.displaced, l) {
		return
	}
	l.Draining = false
	if l.Ring.State() == slots.LaneDraining && !l.IsClosed() {
		l.Ring.SetState(slots.LaneOpen)
	}
}

// Serving counts the requests of the domain to services of this node that have no outcome,
// or whose answers have not left.
func (d *Domain) Serving() (n int) {
	for _, l := range d.InLanes {
		n += max(l.Busy, l.answers.Pending())
		if l.Busy == 0 && l.End != nil && l.End.underWay() {
			n++
		}
		if l.Local != nil {
			n += max(0, l.Local.busy-l.Busy)
		}
	}
	return n
}
