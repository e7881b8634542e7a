package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/rdmad/rdmad/internal/attach"
	"github.com/rdmad/rdmad/internal/config"
	"github.com/rdmad/rdmad/internal/fabric"
	"github.com/rdmad/rdmad/slots"
)

// openTimeout bounds the opening of a lane.
const openTimeout = 5 * time.Second

// outgoing is the conductor's side of a lane that requests of this node's
// workers go out by. It outlives connections: when the peer comes back the same
// ring goes on.
type outgoing struct {
	info *laneInfo
	lane *outLane

	// mu makes opening and closing take turns.
	mu      sync.Mutex
	session *session // nil while down
	refused string   // why it could not be opened last, as logged
}

// incoming is the conductor's side of a lane that requests of a peer come in by.
type incoming struct {
	info *laneInfo
	lane *inLane
}

// lanesTo returns the lanes to a place, smallest slots first, opening those that
// are not open.
func (c *conductor) lanesTo(ctx context.Context, d *domain, p place) ([]*laneInfo, error) {
	var lanes []*laneInfo
	for _, class := range sortedClasses(c.cfg.Classes) {
		o, err := d.outgoing(p, class)
		if err == nil && p.session != nil {
			err = o.open(ctx, d, p.session)
			o.note(d, err)
		}
		if err != nil {
			return nil, fmt.Errorf("lane to %s, class %s: %w", p.node, class.Name, err)
		}
		lanes = append(lanes, o.info)
	}
	return lanes, nil
}

// outgoing finds or makes the lane to a place.
func (d *domain) outgoing(p place, class config.Class) (*outgoing, error) {
	c := d.conductor
	d.making.Lock() // two workers that ask at once get the same lane
	defer d.making.Unlock()
	key := laneKey{p.node, class.Name}
	c.mu.Lock()
	o := d.outs[key]
	c.mu.Unlock()
	if o != nil {
		return o, nil
	}
	local := p.session == nil
	info, ring, err := d.newLane(p.node, class, local)
	if err != nil {
		return nil, err
	}
	o = &outgoing{info: info}
	d.agent.commands.call(func() {
		o.lane = newOutLane(d.view, info.ID, ring, d.agent.groupMax)
		d.view.addOut(o.lane)
		if !local {
			o.lane.peer = d.view.peer(p.node)
		}
		if local {
			in := newInLane(d.view, info.ID, ring, d.agent.groupMax)
			o.lane.local, in.local = in, o.lane
			d.view.addIn(in)
		}
	})
	if !local {
		ring.SetState(slots.LaneClosed) // until it is up
	}
	c.mu.Lock()
	d.outs[key] = o
	c.mu.Unlock()
	if local {
		d.announce(info)
	}
	return o, nil
}

// open connects the lane over the session's link, unless it is connected.
func (o *outgoing) open(ctx context.Context, d *domain, s *session) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.session == s && !o.isUp(d) {
		o.session = nil // broken has not been here yet
	}
	if o.session == s {
		return nil
	}
	if o.session != nil {
		return fmt.Errorf("%w: the connection to %s is just being replaced", attach.ErrNoService, s.link.name)
	}
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	ring := o.lane.ring
	pair, err := d.endpoint(ring)
	if err != nil {
		return err
	}
	question := &peerMessage{Type: peerOpen, Lane: &laneBody{
		Domain: d.name, Class: o.info.Class, Geometry: o.info.Geometry,
		Address: pair.ep.Address(), Key: pair.mr.Remote(),
	}}
	answer, err := s.ask(ctx, question)
	pair.opening = opening{s, question.Seq}
	if err == nil {
		err = pair.connect(ctx, answer.Lane, ring, fabric.Active)
	}
	if err != nil {
		pair.discard(d.agent)
		return err
	}
	d.agent.commands.call(func() {
		o.lane.onBroken = func(err error) { o.broken(d, pair.opening, err) }
		err = o.lane.up(pair)
	})
	if err != nil {
		return err
	}
	o.session = s
	d.conductor.log.Debug().Str("peer", s.link.name).Str("domain", d.name).Str("class", o.info.Class).Uint16("lane", o.info.ID).Msg("lane open")
	return nil
}

// note logs why the lane could not be opened, once for each reason in a row: the
// worker that asked is told as well, but may be asking for the last time.
func (o *outgoing) note(d *domain, err error) {
	why := ""
	if err != nil && !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled) {
		why = err.Error()
	}
	o.mu.Lock()
	known := o.refused == why
	o.refused = why
	o.mu.Unlock()
	if why != "" && !known {
		d.conductor.log.Warn().Err(err).Str("peer", o.info.Peer).Str("domain", d.name).Str("class", o.info.Class).Msg("lane not opened")
	}
}

// broken notes that the lane has gone down while its link lives, so that the next
// request opens it again. What one domain's workers write into their slots can
// close their own lanes; it must not reach further.
func (o *outgoing) broken(d *domain, conn opening, err error) {
	s := conn.session
	d.conductor.log.Warn().Err(err).Str("peer", s.link.name).Str("domain", d.name).Str("class", o.info.Class).Msg("outgoing lane closed")
	conn.tellBroken(d, o.info.Class, false, err.Error())
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.session == s && !o.isUp(d) {
		o.session = nil
	}
}

// isUp asks the agent whether the lane is connected; o.mu is held.
func (o *outgoing) isUp(d *domain) (up bool) {
	d.agent.commands.call(func() { up = o.lane.pair != nil })
	return up
}

// endpoint makes an unconnected endpoint for a ring: the peer will reach the
// ring's slots and nothing else.
func (d *domain) endpoint(ring *slots.Ring) (*endpointPair, error) {
	c := d.conductor
	if c.device == nil {
		return nil, fmt.Errorf("%w: node %s has no fabric", attach.ErrNoService, c.node)
	}
	return newEndpointPair(c.device, d.agent.cq, c.tags.Add(1), ring)
}

// connect joins the endpoint with the peer's.
func (p *endpointPair) connect(ctx context.Context, peer *laneBody, ring *slots.Ring, role fabric.Role) error {
	if peer == nil || len(peer.Address) > fabric.MaxAddress || peer.Key.Len < uint64(len(ring.Slots())) {
		return fmt.Errorf("%w: a lane without a usable address or memory", errFrame)
	}
	p.remote = peer.Key
	return p.ep.Connect(ctx, peer.Address, role)
}

// discard closes an endpoint that no lane has, on the agent's thread: it may be known
// to the agent's completion queue.
func (p *endpointPair) discard(a *agent) {
	a.commands.call(func() { _ = p.release() })
}

// acceptLane makes the answering end of a lane for a peer.
func (c *conductor) acceptLane(s *session, m *peerMessage) {
	if err := c.openIncoming(s, m); err != nil {
		c.log.Warn().Err(err).Str("peer", s.link.name).Msg("lane refused")
		if err := s.send(&peerMessage{Type: peerRefuse, Seq: m.Seq, Reason: err.Error()}); err != nil {
			s.end(err)
		}
	}
}

func (c *conductor) openIncoming(s *session, m *peerMessage) error {
	c.mu.Lock()
	draining := c.draining
	c.mu.Unlock()
	if draining {
		return fmt.Errorf("node %s is draining", c.node)
	}
	if m.Lane.Bulk {
		return c.acceptBulk(s, m)
	}
	d := c.domainNamed(m.Lane.Domain)
	if d == nil {
		return fmt.Errorf("node %s has no domain %q", c.node, printable(m.Lane.Domain))
	}
	class, err := c.classFor(m.Lane)
	if err != nil {
		return err
	}
	d.making.Lock()
	in, err := d.incoming(s.link.name, class)
	d.making.Unlock()
	if err != nil {
		return err
	}
	pair, err := d.endpoint(in.lane.ring)
	if err != nil {
		return err
	}
	pair.opening = opening{s, m.Seq}
	ctx, cancel := context.WithTimeout(c.ctx, openTimeout)
	defer cancel()
	err = s.send(&peerMessage{Type: peerAccept, Seq: m.Seq, Lane: &laneBody{Address: pair.ep.Address(), Key: pair.mr.Remote()}})
	if err == nil {
		err = pair.connect(ctx, m.Lane, in.lane.ring, fabric.Passive)
	}
	if err != nil {
		// The peer has been told yes: its end is to break, and it may ask again.
		pair.discard(d.agent)
		pair.opening.tellBroken(d, class.Name, true, err.Error())
		c.log.Warn().Err(err).Str("peer", s.link.name).Str("class", class.Name).Msg("incoming lane not connected")
		return nil
	}
	up := false
	d.agent.commands.call(func() {
		if s.reason() != nil || in.lane.pair != nil {
			return // the session ended meanwhile: lanesDown has been here
		}
		in.lane.onBroken = func(err error) {
			c.log.Warn().Err(err).Str("peer", s.link.name).Str("domain", d.name).Str("class", class.Name).Msg("incoming lane closed")
			pair.opening.tellBroken(d, class.Name, true, err.Error())
		}
		in.lane.clock = s.clock
		err = in.lane.up(pair)
		up = true
	})
	if !up {
		pair.discard(d.agent)
	}
	if err != nil {
		s.end(err)
	}
	return nil
}

// classFor finds the class of a peer's lane, which must be the same here.
func (c *conductor) classFor(l *laneBody) (config.Class, error) {
	for _, class := range c.cfg.Classes {
		if class.Name != l.Class {
			continue
		}
		if g := geometryOf(class); g != l.Geometry {
			return class, fmt.Errorf("class %s differs: here slot_size %d, slots %d, max_run %d, there %d, %d, %d", class.Name,
				g.SlotSize, g.Slots, g.MaxRun, l.Geometry.SlotSize, l.Geometry.Slots, l.Geometry.MaxRun)
		}
		return class, nil
	}
	return config.Class{}, fmt.Errorf("node %s has no class %q", c.node, printable(l.Class))
}

// incoming finds or makes the mirror for a peer's lane. An old mirror is used
// again unless handlers of the last connection still run in it; then it is left
// to them and dropped when they have finished. d.making is held.
func (d *domain) incoming(peer string, class config.Class) (*incoming, error) {
	c := d.conductor
	key := laneKey{peer, class.Name}
	c.mu.Lock()
	old := d.ins[key]
	c.mu.Unlock()
	if old != nil {
		quiet := false
		d.agent.commands.call(func() {
			// The peer opens a lane when its end is down, so this end is too,
			// or will be as soon as the fabric has noticed.
			old.lane.down()
			if quiet = old.lane.busy == 0; !quiet {
				old.lane.onQuiet = func() { c.spawn(func() { d.dropIncoming(old) }) }
			}
		})
		if quiet {
			return old, nil
		}
	}
	info, ring, err := d.newLane(peer, class, true)
	if err != nil {
		return nil, err
	}
	in := &incoming{info: info}
	d.agent.commands.call(func() {
		in.lane = newInLane(d.view, info.ID, ring, d.agent.groupMax)
		in.lane.peer = d.view.peer(peer)
		d.view.addIn(in.lane)
	})
	c.mu.Lock()
	d.ins[key] = in
	c.mu.Unlock()
	d.announce(info)
	return in, nil
}

// dropIncoming forgets a mirror that no handler uses any more.
func (d *domain) dropIncoming(in *incoming) {
	c := d.conductor
	in.info.withhold()
	d.agent.commands.call(func() {
		d.view.removeIn(in.lane)
		for _, w := range d.view.workers {
			if w != nil {
				w.mapped[in.info.ID/64] &^= 1 << (in.info.ID % 64)
			}
		}
	})
	c.mu.Lock()
	var holders []*worker
	for _, w := range d.workers {
		holders = append(holders, w)
	}
	c.mu.Unlock()
	for _, w := range holders {
		w.withdraw(in.info)
	}
	d.dropLane(in.info)
}

// lanesDown takes every lane to and from a peer down.
//
// Those for operations on regions go first: once a call has its outcome, nothing of
// them lands any more.
func (c *conductor) lanesDown(peer, why string) {
	c.bulksDown(peer)
	for _, d := range c.domains {
		c.mu.Lock()
		var outs []*outgoing
		var ins []*incoming
		for k, o := range d.outs {
			if k.peer == peer {
				outs = append(outs, o)
			}
		}
		for k, in := range d.ins {
			if k.peer == peer {
				ins = append(ins, in)
			}
		}
		c.mu.Unlock()
		for _, o := range outs {
			o.mu.Lock()
			o.session = nil
			d.agent.commands.call(func() { o.lane.down(why) })
			o.mu.Unlock()
		}
		for _, in := range ins {
			d.agent.commands.call(func() { in.lane.down() })
		}
	}
}

// lanesDrained lets what is under way on the lanes to a peer finish and takes them
// down, one after the other. It reports false if the session ended first.
func (c *conductor) lanesDrained(s *session) bool {
	for _, d := range c.domains {
		c.mu.Lock()
		var outs []*outgoing
		for k, o := range d.outs {
			if k.peer == s.link.name {
				outs = append(outs, o)
			}
		}
		c.mu.Unlock()
		for _, o := range outs {
			d.agent.commands.call(func() { o.lane.setDraining() })
		}
		for _, o := range outs {
			if !o.drain(d, s) {
				return false
			}
		}
	}
	return true
}

// drain waits until nothing is under way on the lane and takes it down. With
// o.mu held nobody opens it meanwhile.
func (o *outgoing) drain(d *domain, s *session) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	step := time.NewTicker(drainStep)
	defer step.Stop()
	for {
		quiet := false
		var ended *opening
		d.agent.commands.call(func() {
			// Again, for a lane that was being opened when it was set.
			o.lane.setDraining()
			o.lane.plan.Rescan()
			o.lane.send()
			if quiet = o.lane.busy == 0; quiet {
				if p := o.lane.pair; p != nil {
					ended = &p.opening
				}
				o.lane.down("node " + s.link.name + " is draining")
			}
		})
		if quiet {
			o.session = nil
			if ended != nil {
				ended.tellBroken(d, o.info.Class, false, "drained")
			}
			return true
		}
		select {
		case <-step.C:
		case <-s.done:
			return false
		}
	}
}

// setDraining stops new requests on all lanes of the domain.
func (d *agentDomain) setDraining() {
	for _, l := range d.outLanes {
		l.setDraining()
	}
}

// setDraining makes workers look for another way for new requests.
func (l *outLane) setDraining() {
	if l.ring.State() == slots.LaneOpen {
		l.ring.SetState(slots.LaneDraining)
		l.ring.WakeFree()
	}
}

// sortedClasses returns the classes by slot size.
func sortedClasses(cs []config.Class) []config.Class {
	return slices.SortedFunc(slices.Values(cs), func(a, b config.Class) int { return cmp.Compare(a.SlotSize, b.SlotSize) })
}
