package daemon

import (
	"time"

	"github.com/rdmad/rdmad/slots"
)

// lanesDrained lets what is under way on the lanes to a peer finish and takes them
// down, one after the other. It reports false if the session ended first, or the peer takes
// requests again: undrained is closed.
func (c *conductor) lanesDrained(s *session, undrained <-chan struct{}) bool {
	for _, d := range c.allDomains() {
		outs, _ := d.lanesOf(s.link.name)
		for _, o := range outs {
			o.beginDrain(d, undrained)
		}
		for _, o := range outs {
			if !o.drain(d, s, undrained) {
				return false
			}
		}
	}
	return !closed(undrained)
}

// beginDrain stops new requests on the lane, unless undrained is closed.
func (o *outgoing) beginDrain(d *domain, undrained <-chan struct{}) {
	if !d.use() {
		return
	}
	defer d.using.RUnlock()
	o.mu.Lock()
	defer o.mu.Unlock()
	if !closed(undrained) {
		d.agent.commands.call(func() { o.lane.setDraining() })
	}
}

// closed reports whether a channel is closed that nothing is sent by.
func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// drain waits until nothing is under way on the lane and takes it down. A lane that is
// suspended is opened again for that meanwhile.
func (o *outgoing) drain(d *domain, s *session, undrained <-chan struct{}) bool {
	step := time.NewTicker(drainStep)
	defer step.Stop()
	for {
		if o.drained(d, s, undrained) {
			return true
		}
		select {
		case <-step.C:
		case <-undrained:
			return false
		case <-s.done:
			return false
		}
	}
}

// drained takes the lane down if nothing is under way on it, unless undrained is closed or the
// session has ended: then the lane may be another session's.
func (o *outgoing) drained(d *domain, s *session, undrained <-chan struct{}) (quiet bool) {
	if !d.use() {
		return true // everything in it has its outcome
	}
	defer d.using.RUnlock()
	o.mu.Lock()
	defer o.mu.Unlock()
	// With mu held: who closes it afterwards takes mu to open the lane, and so does a session
	// that takes the place of this one.
	if closed(undrained) || s.reason() != nil {
		return false
	}
	var ended *opening
	d.agent.commands.call(func() {
		// Again, for a lane that was being opened when it was set.
		o.lane.setDraining()
		o.lane.plan.Rescan()
		o.lane.send()
		if quiet = o.lane.empty(); quiet {
			if p := o.lane.pair; p != nil {
				ended = &p.opening
			}
			o.lane.down("node " + s.link.name + " is draining")
		}
	})
	if quiet {
		o.session = nil
		if ended != nil {
			ended.tellBroken(d, o.info, false, "drained")
		}
	}
	return quiet
}

// empty reports whether nothing is under way on a lane that drains, and closes it to
// workers if so. What somebody has published who had claimed its slots before the lane
// began to drain is to be sent first.
func (l *outLane) empty() bool {
	if l.busy > 0 {
		return false
	}
	if l.isClosed() {
		return true
	}
	// SYNC POINT (lane closed): as in down. From here on a worker takes back what it
	// publishes, and sends it by another way.
	l.ring.SetState(slots.LaneClosed)
	for i := range l.journal {
		if w := l.ring.Word(i); w.State() == slots.Pub && l.ring.CheckRun(i, w) == nil {
			l.ring.SetState(slots.LaneDraining)
			return false
		}
	}
	return true
}

// setDraining stops new requests on all lanes of the domain.
func (d *agentDomain) setDraining() {
	d.hurry()
	for _, l := range d.outLanes {
		l.setDraining()
	}
}

// setDraining makes workers look for another way for new requests.
func (l *outLane) setDraining() {
	l.draining = true
	if l.ring.State() == slots.LaneOpen {
		l.ring.SetState(slots.LaneDraining)
		l.wakeUsers()
	}
}
