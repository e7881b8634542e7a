package daemon

import (
	"slices"
	"time"

	"github.com/rdmad/rdmad/internal/peerproto"
)

// serviceFloor is the least time between two changes of whether a peer takes requests, each of which has a line in the log and wakes all
// who wait for a way to somewhere.
const serviceFloor = 100 * time.Millisecond

// rest has the peer be listened to no more until some time is over since it last said such a thing: one that says it over and over keeps
// nobody waiting but itself.
func (s *session) rest(last *time.Time, floor time.Duration) {
	if left := floor - time.Since(*last); left > 0 {
		t := time.NewTimer(left)
		defer t.Stop()
		select {
		case <-t.C:
		case <-s.life.Done():
		}
	}
	*last = time.Now()
}

// peerDrains deals with a peer that takes no new requests: what is on its way to
// it is finished, then the lanes to it go down, and then it is told. seq is the message's. What it returns, if
// anything, does that.
func (l *link) peerDrains(s *session, seq uint64) (follow func()) {
	c := l.conductor
	c.mu.Lock()
	defer c.mu.Unlock()
	if l.session != s || l.draining {
		return nil // saying it over and over costs nothing
	}
	c.log.Info().Str("peer", l.name).Msg("peer is draining")
	undrained := make(chan struct{})
	l.draining, l.undrained, l.changed = true, undrained, time.Now()
	return func() {
		if !c.lanesDrained(s, undrained) {
			return
		}
		if err := s.send(&peerproto.Message{Type: peerproto.TypeDrained, Seq: seq}); err != nil {
			s.end(err)
		}
	}
}

// peerUndrains deals with a peer that takes requests again. What it returns, if anything, lets them into the lanes.
func (l *link) peerUndrains(s *session) (follow func()) {
	c := l.conductor
	c.mu.Lock()
	defer c.mu.Unlock()
	if l.session != s || !l.draining {
		return nil
	}
	c.log.Info().Str("peer", l.name).Msg("peer takes requests again")
	close(l.undrained)
	l.draining, l.undrained, l.changed = false, nil, time.Now()
	c.notify()
	return func() { c.lanesUndrained(l) }
}

// lanesUndrained lets requests into the lanes to a peer that were being drained. Those that
// are down are opened when somebody wants them.
func (c *conductor) lanesUndrained(l *link) {
	for _, d := range c.allDomains() {
		outs, _ := d.lanesOf(l.name)
		for _, o := range outs {
			o.undrain(d, l)
		}
	}
}

// undrain lets requests into the lane, unless its peer drains again.
func (o *outgoing) undrain(d *domain, l *link) {
	if !d.use() {
		return
	}
	defer d.using.RUnlock()
	o.mu.Lock()
	defer o.mu.Unlock()
	o.undrainLocked(d, l)
}

// undrainLocked is undrain with o.mu held.
func (o *outgoing) undrainLocked(d *domain, l *link) {
	d.conductor.mu.Lock()
	again := l.draining
	d.conductor.mu.Unlock()
	if !again {
		d.agent.Commands.Call(func() { o.lane.Undrain() })
	}
}

// peerDrained notes that the peer has nothing under way to this node. seq is that of the
// drain that it answers, 0 from a peer that does not say.
func (l *link) peerDrained(s *session, seq uint64) {
	c := l.conductor
	c.mu.Lock()
	defer c.mu.Unlock()
	if l.session == s && c.drainsNow() && (seq == 0 || seq == c.drains) {
		l.drained = true
	}
}

// undrained returns the connected peers that may still have requests on their way
// to this node, sorted.
func (c *conductor) undrained() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.undrainedLocked()
}

// awaited returns the peers that a node which stops waits for: those that are undrained, and those that are returning. In one look, for a
// peer goes from the ones to the others and back.
func (c *conductor) awaited() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append(c.undrainedLocked(), c.returning()...)
}

// returning returns the peers that were connected with the last core, or when this one had begun to drain, and have neither come back
// since nor been given up: they wait for answers, and perhaps for some that are there already. mu is held.
func (c *conductor) returning() (names []string) {
	for _, l := range c.links {
		if l.session == nil && l.holding != nil && (l.holding.ofLastCore() || l.holding.cut) {
			names = append(names, l.name)
		}
	}
	slices.Sort(names)
	return names
}

// owed reports whether the peer, whose session has just ended, may wait for answers of this node, which drains. One that has been draining
// itself counts as one that does not, for it may have stopped: two nodes that stop at once do not wait for each other. mu is held.
func (l *link) owed() bool {
	c := l.conductor
	if !c.draining || l.drained || l.draining {
		return false
	}
	for _, d := range c.allDomains() {
		for k := range d.ins {
			if k.peer == l.name {
				return true
			}
		}
	}
	return false
}

// undrainedLocked is undrained with mu held.
func (c *conductor) undrainedLocked() (names []string) {
	for _, l := range c.links {
		if l.session != nil && !l.drained {
			names = append(names, l.name)
		}
	}
	slices.Sort(names)
	return names
}
