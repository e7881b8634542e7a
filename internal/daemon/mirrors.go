package daemon

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"

	"github.com/rdmad/rdmad/internal/agent"
	"github.com/rdmad/rdmad/internal/config"
	"github.com/rdmad/rdmad/internal/counters"
	"github.com/rdmad/rdmad/internal/event"
	"github.com/rdmad/rdmad/internal/fabric"
	"github.com/rdmad/rdmad/internal/faultpoint"
	"github.com/rdmad/rdmad/internal/peerproto"
	"github.com/rdmad/rdmad/internal/printable"
)

// incoming is the conductor's side of a lane that requests of a peer come in by.
type incoming struct {
	info *laneInfo
	lane *agent.InLane
	// last is the peer's newest opening of it; of the agent's thread.
	last agent.Opening
	// giveUp ends the making of the connection for that, if there is one; it belongs to domain.making. connecting counts
	// connections that are being made, or given up: as long as there is one the lane's memory stays.
	giveUp     context.CancelCauseFunc
	connecting sync.WaitGroup
}

// supersede makes an opening the newest one, on the agent's thread and with domain.making held. The connection that is
// being made for the last one is given up: the peer asks for another when it has none. Openings are dealt with beside each
// other, so one that the peer has given up may come after the one that it has asked for since.
func (in *incoming) supersede(o agent.Opening) error {
	if o.Session == in.last.Session && o.Seq <= in.last.Seq {
		return errOutdated
	}
	in.last = o
	in.end(errOutdated)
	return nil
}

// end gives up the connection that is being made; domain.making is held.
func (in *incoming) end(why error) {
	if in.giveUp != nil {
		in.giveUp(why)
		in.giveUp = nil
	}
}

// acceptLane makes the answering end of a lane for a peer.
func (c *conductor) acceptLane(s *session, m *peerproto.Message) {
	if err := c.openIncoming(s, m); err != nil {
		event.LaneRefused.On(&c.log).Err(err).Str("peer", s.link.name).Msg("lane refused")
		if err := s.send(&peerproto.Message{Type: peerproto.TypeRefuse, Seq: m.Seq, Reason: err.Error()}); err != nil {
			s.end(err)
		}
	}
}

func (c *conductor) openIncoming(s *session, m *peerproto.Message) error {
	if m.Lane.Bulk {
		return c.acceptBulk(s, m)
	}
	d, class, waiting, err := c.checkOpening(m.Lane)
	if err != nil {
		return err
	}
	if !d.use() {
		return agent.ErrRetired
	}
	defer d.using.RUnlock()
	ctx, cancel := s.within(d.alive, openTimeout)
	defer cancel()
	ctx, giveUp := context.WithCancelCause(ctx)
	defer giveUp(nil)
	opening := agent.Opening{Session: s, Seq: m.Seq}
	a, err := d.agreeOnMirror(opening, m.Lane, class, waiting, giveUp)
	if err != nil {
		return err
	}
	over := sync.OnceFunc(a.in.connecting.Done) // before the peer is told of the end, which it may not read
	defer over()
	faultpoint.Here("accept.queried")
	end, err := d.endpoint(s, a.in.lane.Ring)
	if err != nil {
		return err
	}
	end.Opening = opening
	defer s.awaits(awaitedEnd{seq: m.Seq}, giveUp)()
	if err := d.connectIncoming(ctx, m, a, end); err != nil {
		// The peer has been told yes: its end is to break, and it may ask again.
		end.Discard(d.agent)
		over()
		d.tellBroken(opening, a.in.info, true, err.Error())
		event.LaneNotConnected.On(&c.log).Err(err).Str("peer", s.link.name).Str("class", class.Name).Int("number", a.in.info.Number).Msg("incoming lane not connected")
		return nil
	}
	d.raiseOrDiscard(ctx, a, end, over)
	return nil
}

// checkOpening judges what a peer wants to open, and returns the domain, the class, and the requests that the peer waits for.
func (c *conductor) checkOpening(l *peerproto.Lane) (d *domain, class config.Class, waiting []agent.SentRequest, err error) {
	if d = c.domainNamed(l.Domain); d == nil {
		return nil, class, nil, fmt.Errorf("node %s has no domain %q", c.node, printable.Text(l.Domain))
	}
	if class, err = c.classFor(l); err != nil {
		return nil, class, nil, err
	}
	// As many as this node's own limit allows, whatever its per_peer.
	if n := l.Number; n < 0 || n >= config.MaxLanesPerPeer {
		return nil, class, nil, fmt.Errorf("lane number %d of class %s: node %s takes at most %d lanes of a class from a peer", n, class.Name, c.node, config.MaxLanesPerPeer)
	}
	waiting, err = agent.DecodeSent(l.Sent, geometryOf(class))
	return d, class, waiting, err
}

// agreeOnMirror has the mirror that the peer is told of be connected from now on: giveUp ends that, and who has called this says with
// connecting.Done when it is over.
func (d *domain) agreeOnMirror(o agent.Opening, l *peerproto.Lane, class config.Class, waiting []agent.SentRequest, giveUp context.CancelCauseFunc) (agreement, error) {
	d.making.Lock()
	defer d.making.Unlock()
	a, err := d.findOrMakeMirror(o, class, l.Number, l.Mirror, waiting)
	if err != nil {
		return agreement{}, err
	}
	a.in.giveUp = giveUp
	a.in.connecting.Add(1)
	return a, nil
}

// connectIncoming tells the peer what was agreed, and connects end to its end.
func (d *domain) connectIncoming(ctx context.Context, m *peerproto.Message, a agreement, end *agent.LaneEndpoint) error {
	s := sessionOf(end.Opening)
	fabric.Expect(end.Endpoint, m.Lane.Address)
	err := s.send(&peerproto.Message{Type: peerproto.TypeAccept, Seq: m.Seq, Lane: &peerproto.Lane{
		Address: end.Endpoint.Address(), Key: end.MR.Remote(), Mirror: a.name, Verdicts: a.verdicts,
	}})
	if err != nil {
		return err
	}
	faultpoint.Here("accept.sent")
	if err = end.Connect(ctx, m.Lane, a.in.lane.Ring, fabric.Passive); err != nil {
		if errors.Is(err, context.Canceled) {
			err = context.Cause(ctx)
		}
		d.conductor.fabricFailed(s, err)
	}
	faultpoint.Here("accept.connected")
	return err
}

// raiseOrDiscard gives the connected end to the agent, unless what was agreed is not so any more: then it calls over before it tells
// the peer.
func (d *domain) raiseOrDiscard(ctx context.Context, a agreement, end *agent.LaneEndpoint, over func()) {
	s, in := sessionOf(end.Opening), a.in
	up := false
	var err error
	d.agent.Commands.Call(func() {
		if s.Reason() != nil || ctx.Err() != nil || in.lane.End != nil || d.view.Retired || in.outdated(a.name, end.Opening) {
			return // the session or the peer's end has ended meanwhile, or the peer has opened the lane again
		}
		err = in.raise(d, s, end)
		up = true
		faultpoint.Here("accept.up")
	})
	if !up {
		end.Discard(d.agent)
		over()
		d.tellBroken(end.Opening, in.info, true, "another connection of the lane has taken its place")
	}
	if err != nil {
		s.end(err)
	}
}

// raise gives the connected end to the agent, on whose thread it runs.
func (in *incoming) raise(d *domain, s *session, end *agent.LaneEndpoint) error {
	c := d.conductor
	in.lane.OnBroken = func(err error) {
		c.spawn(func() {
			event.LaneClosed.On(&c.log).Err(err).Str("peer", s.link.name).Str("domain", d.name).Str("class", in.info.Class).Int("number", in.info.Number).Msg("incoming lane closed")
			d.tellBroken(end.Opening, in.info, true, err.Error())
			c.fabricFailed(s, err)
		})
	}
	s.clock.set(in.lane)
	in.lane.OnDoubt = func() { c.spawn(s.compareClocks) }
	return in.lane.Up(end)
}

// classFor finds the class of a peer's lane, which must be the same here.
func (c *conductor) classFor(l *peerproto.Lane) (config.Class, error) {
	for _, class := range c.cfg.Classes {
		if class.Name != l.Class {
			continue
		}
		if g := geometryOf(class); g != l.Geometry {
			return class, fmt.Errorf("[[class]] %s differs: node %s has slot_size %d, slots %d, max_run %d, and who asks has %d, %d, %d", class.Name,
				c.node, g.SlotSize, g.Slots, g.MaxRun, l.Geometry.SlotSize, l.Geometry.Slots, l.Geometry.MaxRun)
		}
		return class, nil
	}
	return config.Class{}, fmt.Errorf("node %s has no class %q", c.node, printable.Text(l.Class))
}

// agreement is what a peer that opens a lane is told of its mirror: what that is called from now on, as long as nothing in it is given
// up, and if it goes on, the verdicts on the requests in it.
type agreement struct {
	in       *incoming
	name     uint64
	verdicts []byte
}

// findOrMakeMirror finds or makes the mirror for a peer's lane number n of a class, which the
// peer calls by the name asked and waits for the given requests in. One that cannot be
// used again is left to the handlers that still run in it, and dropped when they have finished.
// A node that is draining only goes on with what it knows. d.making is held.
func (d *domain) findOrMakeMirror(o agent.Opening, class config.Class, n int, asked uint64, waiting []agent.SentRequest) (agreement, error) {
	c := d.conductor
	key := laneKey{sessionOf(o).link.name, class.Name, n}
	c.mu.Lock()
	old, draining := d.ins[key], c.drainsNow()
	c.mu.Unlock()
	if old == nil && draining {
		return agreement{}, c.errDraining()
	}
	if old != nil {
		if a, err := d.resumeMirror(old, o, asked, waiting, draining); err != nil || a.in != nil {
			return a, err
		}
		c.mu.Lock()
		delete(d.ins, key) // whether or not there will be another one
		c.mu.Unlock()
	}
	return d.newMirrorLane(o, key, class)
}

// resumeMirror uses a mirror again, if it can. If asked is what it is called, and the requests that the peer waits for are all that
// are under way in it, it goes on, and there are verdicts. Else what is in it is given up, and it is used again unless handlers
// still run in it: then it is left to them, and there is no agreement.
func (d *domain) resumeMirror(old *incoming, o agent.Opening, asked uint64, waiting []agent.SentRequest, draining bool) (a agreement, err error) {
	c, s := d.conductor, sessionOf(o)
	var notices []agent.Notice
	d.agent.Commands.Call(func() {
		if err = s.Reason(); err != nil {
			return // and another one may have the lane by now
		}
		if err = old.supersede(o); err != nil {
			return
		}
		// The peer opens a lane when its end has no connection, so this end has
		// none either, or will as soon as the fabric has noticed.
		l := old.lane
		l.Suspend()
		if asked != 0 && asked == l.Mirror.Load() {
			if v, ok := l.Query(waiting); ok {
				a = agreement{in: old, name: asked, verdicts: v}
				return
			}
		}
		if draining {
			err = c.errDraining()
			return
		}
		notices = l.Down()
		if l.Busy == 0 {
			a = agreement{in: old, name: newMirror()}
			l.Fresh(a.name)
		} else {
			l.Left = true
			l.OnQuiet = func() { c.spawn(func() { d.dropIncoming(old) }) }
		}
	})
	d.notify(notices)
	return a, err
}

// newMirrorLane makes a mirror for a lane that has none; d.making is held.
func (d *domain) newMirrorLane(o agent.Opening, key laneKey, class config.Class) (agreement, error) {
	c := d.conductor
	if err := d.roomForMirror(key.peer, class.Name); err != nil {
		return agreement{}, err
	}
	info, ring, v, err := d.newLane(key.peer, class, key.number, true)
	if err != nil {
		return agreement{}, err
	}
	a := agreement{in: &incoming{info: info, last: o}, name: newMirror()}
	row := d.rowOf(info, counters.In)
	d.agent.Commands.Call(func() {
		l := agent.NewInLane(d.view, info.ID, ring, v, d.agent.GroupMax)
		l.Row = row
		l.Peer = d.view.Peer(key.peer)
		l.Fresh(a.name)
		d.view.AddIn(l)
		a.in.lane = l
	})
	c.mu.Lock()
	d.ins[key] = a.in
	c.mu.Unlock()
	d.announce(info)
	return a, nil
}

// outdated reports, on the agent's thread, whether the peer has opened the lane again since the opening o, by which what it was
// told of its requests is told anew, or whether what was agreed then was given up.
func (in *incoming) outdated(agreed uint64, o agent.Opening) bool {
	return in.last != o || in.lane.Left || in.lane.Mirror.Load() != agreed
}

// maxMirrors is how many mirrors of a class a peer may have in a domain: as many as lanes, and as many again that are
// left to handlers which still run in them.
const maxMirrors = 2 * config.MaxLanesPerPeer

// roomForMirror returns the error that a peer gets which has opened its lanes anew again and again, while handlers run in all
// those before. It asks again.
func (d *domain) roomForMirror(peer, class string) error {
	c := d.conductor
	c.mu.Lock()
	defer c.mu.Unlock()
	n := 0
	for _, l := range d.lanes {
		if l.serves && l.Peer == peer && l.Class == class {
			n++
		}
	}
	if n >= maxMirrors {
		return fmt.Errorf("handlers on node %s still work on requests of %d earlier lanes of class %s (see rdmad lanes there)", c.node, n, class)
	}
	return nil
}

func (c *conductor) errDraining() error { return fmt.Errorf("node %s is draining", c.node) }

// newMirror makes a name for the answering end of a lane, never 0.
func newMirror() uint64 { return rand.Uint64() | 1 }

// dropIncoming forgets a mirror that no handler uses any more.
func (d *domain) dropIncoming(in *incoming) {
	in.info.withhold()
	in.connecting.Wait() // which have been given up
	d.agent.Commands.Call(func() {
		d.view.RemoveIn(in.lane)
		for _, w := range d.view.Workers {
			if w != nil {
				w.Mapped[in.info.ID/64] &^= 1 << (in.info.ID % 64)
			}
		}
	})
	d.takeBack(in.info)
}
