package daemon

import (
	"slices"
	"time"

	"github.com/rdmad/rdmad/internal/agent"
)

// The lanes of a peer that is not configured any more are kept as long as its link, for when it comes back. In a fleet whose nodes
// never have the same name twice there would be more and more of them, and a domain has ids for slots.MaxLanes.

// forgetLinks forgets the links that have been kept for long enough, and sees to it that there is another look if some are left: there
// may be no reload after the one that has removed them. mu is held.
func (c *conductor) forgetLinks() {
	for name, l := range c.formerLinks {
		if time.Since(l.removed) > formerLinkLife && l.session == nil && l.next == [2]*session{} && l.holding == nil {
			delete(c.formerLinks, name)
		}
	}
	if len(c.formerLinks) > 0 && !c.forgetting {
		c.forgetting = true
		time.AfterFunc(formerLinkLife, func() { c.spawn(c.forgetAgain) })
	}
}

// forgetAgain is the other look.
func (c *conductor) forgetAgain() {
	c.mu.Lock()
	c.forgetting = false
	c.forgetLinks()
	c.mu.Unlock()
	c.dropStrays()
}

// dropStrays gives back the lanes of peers that have no link any more.
func (c *conductor) dropStrays() {
	for _, d := range c.allDomains() {
		if d.use() {
			d.dropMirrors()
			d.dropOuts()
			d.dropBulks()
			d.using.RUnlock()
		}
	}
}

// isStray reports whether the peer of a lane has no link; mu is held. Then nobody is about to use what there is of its lanes, and
// whoever is about to make a link looks for them later.
func (c *conductor) isStray(k laneKey) bool {
	return k.peer != c.node && c.links[k.peer] == nil && c.formerLinks[k.peer] == nil
}

// dropMirrors gives back the lanes that requests came in by. What handlers still run in goes when they have finished.
func (d *domain) dropMirrors() {
	c := d.conductor
	d.making.Lock() // a peer that is back has not found one of them
	c.mu.Lock()
	var left []*incoming
	for key, in := range d.ins {
		if c.isStray(key) {
			left = append(left, in)
			in.end(errNoPeer)
			delete(d.ins, key)
		}
	}
	c.mu.Unlock()
	d.making.Unlock()
	for _, in := range left {
		quiet := false
		var notices []agent.Notice
		d.agent.Commands.Call(func() {
			notices = in.lane.Down()
			in.lane.Left = true
			if quiet = in.lane.Busy == 0; !quiet {
				in.lane.OnQuiet = func() { c.spawn(func() { d.dropIncoming(in) }) }
			}
		})
		d.notify(notices)
		if quiet {
			d.dropIncoming(in)
		}
	}
}

// dropOuts gives back the lanes that requests go out by and that no attached process has: those that one has are looked at again
// when a process has gone, or with the next reload, and used again if the peer comes back.
func (d *domain) dropOuts() {
	c := d.conductor
	d.making.Lock() // until those that stay are back in their places
	c.mu.Lock()
	stray := make(map[laneKey]*outgoing)
	for key, o := range d.outs {
		if c.isStray(key) {
			stray[key] = o
			delete(d.outs, key)
		}
	}
	former := d.former
	d.former = nil
	c.mu.Unlock()
	var unused []*laneInfo
	remove := func(o *outgoing) (removed bool) {
		d.agent.Commands.Call(func() { removed = d.view.RemoveOut(o.lane) })
		if removed {
			unused = append(unused, o.info)
		}
		return removed
	}
	for key, o := range stray {
		if remove(o) {
			continue
		}
		c.mu.Lock()
		d.outs[key] = o
		c.mu.Unlock()
	}
	former = slices.DeleteFunc(former, remove)
	c.mu.Lock()
	d.former = former
	c.mu.Unlock()
	d.making.Unlock()
	for _, l := range unused {
		l.withhold()
		d.takeBack(l)
	}
}

// dropUnused is dropOuts, if there is anything that it may find.
func (d *domain) dropUnused() {
	c := d.conductor
	c.mu.Lock()
	some := len(d.former) > 0
	for key := range d.outs {
		some = some || c.isStray(key)
	}
	c.mu.Unlock()
	if some && d.use() {
		d.dropOuts()
		d.dropBulks()
		d.using.RUnlock()
	}
}

// dropBulks forgets what there is for operations on the regions of peers without links and lanes. Each costs a look in every cycle of
// the agent.
func (d *domain) dropBulks() {
	c := d.conductor
	d.making.Lock() // whoever makes a lane, or the like, for a peer that is back does so before or afterwards
	defer d.making.Unlock()
	var peers []*agent.Peer
	d.agent.Commands.Call(func() { peers = slices.Clone(d.view.Peers) })
	for _, p := range peers {
		c.mu.Lock()
		stray, b := c.isStray(laneKey{peer: p.Name}), d.bulks[p.Name]
		c.mu.Unlock()
		if !stray || b != nil && !b.isIdle() {
			continue
		}
		removed := false
		d.agent.Commands.Call(func() { removed = d.view.RemovePeer(p) })
		if removed {
			c.mu.Lock()
			delete(d.bulks, p.Name)
			c.mu.Unlock()
		}
	}
}

// isIdle reports whether nothing is registered, or known to the peer.
func (b *bulk) isIdle() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.session == nil && len(b.exports) == 0
}

// takeBack forgets a lane that is withheld, and that the agent does not know any more, when its workers have been told.
func (d *domain) takeBack(l *laneInfo) {
	d.conductor.mu.Lock()
	var holders []*worker
	for _, w := range d.workers {
		holders = append(holders, w)
	}
	d.conductor.mu.Unlock()
	for _, w := range holders {
		w.withdraw(l)
	}
	d.dropLane(l)
}
