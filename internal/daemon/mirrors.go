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
	d := c.domainNamed(m.Lane.Domain)
	if d == nil {
		return fmt.Errorf("node %s has no domain %q", c.node, printable.Text(m.Lane.Domain))
	}
	class, err := c.classFor(m.Lane)
	if err != nil {
		return err
	}
	// As many as this node's own limit allows, whatever its per_peer.
	if n := m.Lane.Number; n < 0 || n >= config.MaxLanesPerPeer {
		return fmt.Errorf("lane number %d of class %s: node %s takes at most %d lanes of a class from a peer", n, class.Name, c.node, config.MaxLanesPerPeer)
	}
	waiting, err := agent.DecodeSent(m.Lane.Sent, geometryOf(class))
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
	d.making.Lock()
	in, agreed, verdicts, err := d.incoming(opening, class, m.Lane.Number, m.Lane.Mirror, waiting)
	if err != nil {
		d.making.Unlock()
		return err
	}
	in.giveUp = giveUp
	in.connecting.Add(1)
	d.making.Unlock()
	over := sync.OnceFunc(in.connecting.Done) // before the peer is told of the end, which it may not read
	defer over()
	faultpoint.Here("accept.queried")
	end, err := d.endpoint(s, in.lane.Ring)
	if err != nil {
		return err
	}
	end.Opening = opening
	defer s.awaits(awaitedEnd{seq: m.Seq}, giveUp)()
	fabric.Expect(end.Endpoint, m.Lane.Address)
	err = s.send(&peerproto.Message{Type: peerproto.TypeAccept, Seq: m.Seq, Lane: &peerproto.Lane{
		Address: end.Endpoint.Address(), Key: end.MR.Remote(), Mirror: agreed, Verdicts: verdicts,
	}})
	if err == nil {
		faultpoint.Here("accept.sent")
		if err = end.Connect(ctx, m.Lane, in.lane.Ring, fabric.Passive); err != nil {
			if errors.Is(err, context.Canceled) {
				err = context.Cause(ctx)
			}
			c.fabricFailed(s, err)
		}
		faultpoint.Here("accept.connected")
	}
	if err != nil {
		// The peer has been told yes: its end is to break, and it may ask again.
		end.Discard(d.agent)
		over()
		d.tellBroken(end.Opening, in.info, true, err.Error())
		event.LaneNotConnected.On(&c.log).Err(err).Str("peer", s.link.name).Str("class", class.Name).Int("number", in.info.Number).Msg("incoming lane not connected")
		return nil
	}
	up := false
	d.agent.Commands.Call(func() {
		if s.Reason() != nil || ctx.Err() != nil || in.lane.End != nil || d.view.Retired || in.outdated(agreed, opening) {
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
	return nil
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

// incoming finds or makes the mirror for a peer's lane number n of a class, which the
// peer calls by the name asked and waits for the given requests in. If that is what the
// old mirror is called, and the requests are all that are under way in it, it goes on,
// and there are verdicts. Else what is in it is given up; it is used again unless
// handlers still run in it: then it is left to them and dropped when they have finished.
// A node that is draining only goes on with what it knows. agreed is what the mirror is called from
// now on, as long as nothing in it is given up. d.making is held.
func (d *domain) incoming(o agent.Opening, class config.Class, n int, asked uint64, waiting []agent.SentRequest) (in *incoming, agreed uint64, verdicts []byte, err error) {
	c, s := d.conductor, sessionOf(o)
	peer := s.link.name
	key := laneKey{peer, class.Name, n}
	c.mu.Lock()
	old, draining := d.ins[key], c.drainsNow()
	c.mu.Unlock()
	name := newMirror()
	if old == nil && draining {
		return nil, 0, nil, c.errDraining()
	}
	if old != nil {
		quiet := false
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
					verdicts = v
					return
				}
			}
			if draining {
				err = c.errDraining()
				return
			}
			notices = l.Down()
			if quiet = l.Busy == 0; quiet {
				l.Fresh(name)
			} else {
				l.Left = true
				l.OnQuiet = func() { c.spawn(func() { d.dropIncoming(old) }) }
			}
		})
		d.notify(notices)
		switch {
		case err != nil:
			return nil, 0, nil, err
		case verdicts != nil:
			return old, asked, verdicts, nil
		case quiet:
			return old, name, nil, nil
		}
		c.mu.Lock()
		delete(d.ins, key) // whether or not there will be another one
		c.mu.Unlock()
	}
	if err := d.roomForMirror(peer, class.Name); err != nil {
		return nil, 0, nil, err
	}
	info, ring, v, err := d.newLane(peer, class, n, true)
	if err != nil {
		return nil, 0, nil, err
	}
	in = &incoming{info: info, last: o}
	row := d.rowOf(info, counters.In)
	d.agent.Commands.Call(func() {
		in.lane = agent.NewInLane(d.view, info.ID, ring, v, d.agent.GroupMax)
		in.lane.Row = row
		in.lane.Peer = d.view.Peer(peer)
		in.lane.Fresh(name)
		d.view.AddIn(in.lane)
	})
	c.mu.Lock()
	d.ins[key] = in
	c.mu.Unlock()
	d.announce(info)
	return in, name, nil, nil
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
