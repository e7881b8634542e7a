package daemon

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/rdmad/rdmad/internal/agent"
	"github.com/rdmad/rdmad/internal/config"
	"github.com/rdmad/rdmad/internal/counters"
	"github.com/rdmad/rdmad/internal/event"
	"github.com/rdmad/rdmad/internal/faultpoint"
	"github.com/rdmad/rdmad/internal/vault"
	"github.com/rdmad/rdmad/shm"
	"github.com/rdmad/rdmad/slots"
)

// laneAdoption is what becomes of a domain's lanes whose last core ended.
type laneAdoption struct {
	domain *domain
	// waiting are the requests that no process has yet.
	waiting []agent.Queued
	// local are the lanes within the node, dropped those from peers that have no place any more.
	local   []*agent.OutLane
	dropped []*incoming
}

// adoptLanes is given the lanes that were there when the last core ended, with their
// descriptors (take), after the domain's workers and regions and before anything is
// served. What is under way in them goes on; requests of a lane that the node's config
// has no place for any more get an outcome.
func (d *domain) adoptLanes(left []leftover[laneMeta]) {
	c := d.conductor
	a := laneAdoption{domain: d}
	for i := range left {
		l := &left[i]
		info, ring, v, err := adoptLane(l)
		if err == nil {
			err = d.checkStrangers(info, ring, v)
		}
		if err != nil {
			event.LaneNotAdopted.On(&c.log).Err(err).Str("domain", d.name).Int("lane", l.n).Msg("lane not adopted")
			c.keepNoMore(l.item.Key)
			continue
		}
		d.lanes[info.ID] = info
		placed, peered := c.places(info, l.meta.Direction)
		d.agent.Commands.Call(func() {
			switch l.meta.Direction {
			case laneOut:
				a.out(info, ring, v, placed, peered)
			case laneIn:
				a.in(info, ring, v, placed && peered)
			default:
				a.within(info, ring, v, placed)
			}
		})
		faultpoint.Here("adopt.lane")
	}
	d.agent.Commands.Call(a.goOn)
}

// out adopts a lane to a peer. placed: the config has a class for it, peered: the peer.
// It runs on the agent's thread, as in, within and goOn.
func (a *laneAdoption) out(info *laneInfo, ring *slots.Ring, v *vault.Vault, placed, peered bool) {
	d := a.domain
	out := a.outLane(info, ring, v, counters.Out, placed)
	out.Adopt()
	out.Peer = d.view.Peer(info.Peer)
	switch {
	case !placed:
		out.Down("class " + info.Class + ", or the node's name, has changed")
		d.former = append(d.former, &outgoing{info: info, lane: out})
	case !peered: // the lane is used again if it comes back
		out.Down("node " + info.Peer + " is not a peer any more")
	case out.IsClosed():
		out.Down(agent.Replaced) // the last core may have died doing so
	}
}

// in adopts a lane from a peer.
func (a *laneAdoption) in(info *laneInfo, ring *slots.Ring, v *vault.Vault, placed bool) {
	d := a.domain
	in := agent.NewInLane(d.view, info.ID, ring, v, d.agent.GroupMax)
	in.Row = d.rowOf(info, counters.In)
	d.view.AddIn(in)
	a.waiting = append(a.waiting, in.Adopt()...)
	o := &incoming{info: info, lane: in}
	if !placed || v.Mirror.Load() == 0 {
		a.dropped = append(a.dropped, o)
		return
	}
	in.Peer = d.view.Peer(info.Peer)
	d.ins[laneKey{info.Peer, info.Class, info.Number}] = o
}

// within adopts a lane whose both ends are this node's.
func (a *laneAdoption) within(info *laneInfo, ring *slots.Ring, v *vault.Vault, placed bool) {
	d := a.domain
	out := a.outLane(info, ring, v, counters.Local, placed)
	in := agent.NewInLane(d.view, info.ID, ring, v, d.agent.GroupMax)
	d.view.AddIn(in)
	out.Local, in.Local = in, out
	out.Adopting = true // the agent runs between these commands
	if out.IsClosed() { // the last core died while it gave up the domain's memory
		out.Closed.Store(0)
		ring.SetState(slots.LaneOpen)
	}
	if !placed { // what is under way goes on here, and nothing new comes: its name may be another node's now
		out.Displace()
	}
	a.local = append(a.local, out)
	a.waiting = append(a.waiting, in.Adopt()...)
	out.Adopt()
}

// outLane makes the sending side of a lane.
func (a *laneAdoption) outLane(info *laneInfo, ring *slots.Ring, v *vault.Vault, dir counters.Direction, placed bool) *agent.OutLane {
	d := a.domain
	out := agent.NewOutLane(d.view, info.ID, ring, v, d.agent.GroupMax)
	out.Row = d.rowOf(info, dir)
	if info.Quota > 0 {
		out.Sharing.Quota = info.Quota
	}
	d.view.AddOut(out)
	if placed { // else another one takes the place, if there is one
		d.outs[laneKey{info.Peer, info.Class, info.Number}] = &outgoing{info: info, lane: out}
	}
	return out
}

// goOn gives all that waits to whom it waits for, once every lane is there.
func (a *laneAdoption) goOn() {
	d := a.domain
	for _, in := range a.dropped {
		d.adoptLeft(in)
	}
	faultpoint.Here("adopt.before_dispatch")
	d.view.DispatchAdopted(a.waiting)
	faultpoint.Here("adopt.after_dispatch")
	for _, l := range a.local {
		l.Rejoin()
		l.Adopting = false
		l.Send()
	}
	d.view.Resume()
}

// adoptLane maps what is left of a lane.
func adoptLane(l *leftover[laneMeta]) (info *laneInfo, ring *slots.Ring, v *vault.Vault, err error) {
	g := l.meta.Lane.Geometry
	if err := g.Check(); err != nil || int(l.meta.Lane.ID) != l.n {
		return nil, nil, nil, fmt.Errorf("%w: lane %d: %w", errKept, l.meta.Lane.ID, err)
	}
	info = &laneInfo{Lane: l.meta.Lane, serves: l.meta.Direction != laneOut}
	if info.seg, err = shm.Adopt(take(l.item, 0), g.SegmentSize()); err != nil {
		return nil, nil, nil, err
	}
	if info.vault, err = shm.Adopt(take(l.item, 1), vault.Size(g.Slots)); err != nil {
		return nil, nil, nil, errors.Join(err, info.seg.Close())
	}
	if ring, v, err = info.views(); err != nil {
		info.close()
	}
	return info, ring, v, err
}

// checkStrangers returns an error, having unmapped the lane, if a process of the last core that was not adopted may be at work in it.
func (d *domain) checkStrangers(info *laneInfo, ring *slots.Ring, v *vault.Vault) error {
	stranger := 0
	d.agent.Commands.Call(func() { stranger = d.view.Stranger(ring, v) })
	if stranger == 0 {
		return nil
	}
	info.close()
	return fmt.Errorf("%w: process %d is at work in it, or may be, and was not adopted", errKept, stranger)
}

// places reports whether the node has a class for the lane, and whether its peer. A node that has another name now, such as that of a peer,
// has no place for lanes whose ends are not where their names say.
func (c *conductor) places(l *laneInfo, direction string) (class, peer bool) {
	if (direction == laneLocal) != (l.Peer == c.node) {
		return false, false
	}
	n := slices.IndexFunc(c.cfg.Classes, func(x config.Class) bool { return x.Name == l.Class })
	peer = slices.ContainsFunc(c.live().Peers, func(p config.Peer) bool { return p.Name == l.Peer })
	return n >= 0 && geometryOf(c.cfg.Classes[n]) == l.Geometry, peer || l.Peer == c.node
}

// adoptLeft deals with a mirror that was given up: it stays until no handler uses it. It
// runs on the agent's thread.
func (d *domain) adoptLeft(in *incoming) {
	in.lane.Left = true
	notices := in.lane.Down()
	d.conductor.spawn(func() { d.notify(notices) })
	drop := func() { d.conductor.spawn(func() { d.dropIncoming(in) }) }
	if in.lane.Busy == 0 {
		go drop()
		return
	}
	in.lane.OnQuiet = drop
}

// holdAdopted bounds how long adopted requests wait for links that do not come back.
func (c *conductor) holdAdopted() {
	for _, l := range c.links {
		waits := false
		for _, d := range c.allDomains() {
			outs, ins := d.lanesOf(l.name)
			waits = waits || len(outs)+len(ins) > 0
		}
		if !waits {
			continue
		}
		before := sessionOfLastCore(l)
		l.holding, l.since = before, time.Now()
		l.changed = l.since
		c.spawn(func() { l.hold(before) })
	}
}

var errReplaced = errors.New("this node's core was replaced")

// sessionOfLastCore stands for the session that the last core had with a peer.
func sessionOfLastCore(l *link) *session { return &session{link: l, err: errReplaced} }

// ofLastCore reports whether that is what made it.
func (s *session) ofLastCore() bool { return s.conn == nil }
