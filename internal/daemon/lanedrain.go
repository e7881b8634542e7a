package daemon

import (
	"time"

	"github.com/rdmad/rdmad/internal/agent"
)

// lanesDrained lets what is under way on the lanes to a peer finish and takes them
// down, one after the other. It reports false if the session ended first, or the peer takes
// requests again: undrained is closed.
func (c *conductor) lanesDrained(s *session, undrained <-chan struct{}) bool {
	// Those of all domains, before any is waited for: a handler that takes its time in one domain must not have the
	// others send to the peer meanwhile.
	for _, d := range c.allDomains() {
		outs, _ := d.lanesOf(s.link.name)
		for _, o := range outs {
			o.beginDrain(d, s, undrained)
		}
	}
	for _, d := range c.allDomains() {
		outs, _ := d.lanesOf(s.link.name)
		for _, o := range outs {
			if !o.drain(d, s, undrained) {
				return false
			}
		}
	}
	return !closed(undrained)
}

// beginDrain stops new requests on the lane, unless undrained is closed or the session has ended: as in drained.
func (o *outgoing) beginDrain(d *domain, s *session, undrained <-chan struct{}) {
	if !d.use() {
		return
	}
	defer d.using.RUnlock()
	o.mu.Lock()
	defer o.mu.Unlock()
	if !closed(undrained) && s.Reason() == nil {
		d.agent.Commands.Call(func() { o.lane.SetDraining() })
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
	if closed(undrained) || s.Reason() != nil {
		return false
	}
	var ended *agent.Opening
	d.agent.Commands.Call(func() {
		// Again, for a lane that was being opened when it was set.
		o.lane.SetDraining()
		o.lane.Plan.Rescan()
		o.lane.Send()
		if quiet = o.lane.Empty(); quiet {
			if p := o.lane.End; p != nil {
				ended = &p.Opening
			}
			o.lane.Down("node " + s.link.name + " is draining")
		}
	})
	if quiet {
		o.session = nil
		if ended != nil {
			d.tellBroken(*ended, o.info, false, "drained")
		}
	}
	return quiet
}
