package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/rdmad/rdmad/internal/agent"
	"github.com/rdmad/rdmad/internal/attach"
	"github.com/rdmad/rdmad/internal/config"
	"github.com/rdmad/rdmad/internal/counters"
	"github.com/rdmad/rdmad/internal/event"
	"github.com/rdmad/rdmad/internal/fabric"
	"github.com/rdmad/rdmad/internal/faultpoint"
	"github.com/rdmad/rdmad/internal/peerproto"
	"github.com/rdmad/rdmad/slots"
)

// openTimeout bounds the opening of a lane. It takes milliseconds, but of a processor, which hundreds of
// processes that start at the same time leave to a node for a hundredth of theirs only.
const openTimeout = 30 * time.Second

// answerTimeout is how long a peer that is back may take to answer, however short links are waited for.
const answerTimeout = 5 * time.Second

// outgoing is the conductor's side of a lane that requests of this node's
// workers go out by. It outlives connections: when the peer comes back the same
// ring goes on.
type outgoing struct {
	info *laneInfo
	lane *agent.OutLane

	// mu makes opening and closing take turns.
	mu      sync.Mutex
	session *session // nil while down
	opened  time.Time
	pause   backoff
	refused string // why it could not be opened last, as logged
}

// lanesTo returns the lanes to a place, smallest slots first and those of a class by
// their numbers, opening those that are not open. One of each class must be open
// then; the others are returned all the same, so that a number always means the same
// lane.
func (c *conductor) lanesTo(ctx context.Context, d *domain, p place) ([]*laneInfo, error) {
	var lanes []*laneInfo
	for _, class := range sortedClasses(c.cfg.Classes) {
		var failed error
		open := 0
		for n := range c.cfg.Lanes.PerPeer {
			o, err := d.outgoing(p, class, n)
			if err != nil {
				event.LaneNotOpened.On(&c.log).Err(err).Str("peer", p.node).Str("domain", d.name).Str("class", class.Name).Int("number", n).Msg("lane not made")
				return nil, err
			}
			lanes = append(lanes, o.info)
			if p.session != nil {
				err = o.open(ctx, d, p.session)
				o.note(d, err)
			}
			if err == nil {
				open++
			} else if failed == nil {
				failed = err
			}
		}
		if open == 0 {
			return nil, fmt.Errorf("lane to %s, class %s: %w", p.node, class.Name, failed)
		}
	}
	return lanes, nil
}

// outgoing finds or makes lane number n of a class to a place.
func (d *domain) outgoing(p place, class config.Class, n int) (*outgoing, error) {
	c := d.conductor
	d.making.Lock() // two workers that ask at once get the same lane
	defer d.making.Unlock()
	key := laneKey{p.node, class.Name, n}
	c.mu.Lock()
	o := d.outs[key]
	c.mu.Unlock()
	if o != nil {
		return o, nil
	}
	local := p.session == nil
	info, ring, v, err := d.newLane(p.node, class, n, local)
	if err != nil {
		return nil, err
	}
	o = &outgoing{info: info}
	direction := counters.Out
	if local {
		direction = counters.Local
	}
	row := d.rowOf(info, direction)
	d.agent.Commands.Call(func() {
		o.lane = agent.NewOutLane(d.view, info.ID, ring, v, d.agent.GroupMax)
		o.lane.Row = row
		if info.Quota > 0 {
			o.lane.Sharing.Quota = info.Quota
		}
		d.view.AddOut(o.lane)
		if !local {
			o.lane.Peer = d.view.Peer(p.node)
		}
		if local {
			in := agent.NewInLane(d.view, info.ID, ring, v, d.agent.GroupMax)
			o.lane.Local, in.Local = in, o.lane
			d.view.AddIn(in)
			if d.view.OutOfService {
				o.lane.SetDraining() // it was being made when the node left service
			}
		}
	})
	if !local {
		ring.SetState(slots.LaneClosed) // until it is up
		v.Closed.Store(1)
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
	if err := s.awaitRepeated(ctx); err != nil {
		return err // requests may refer to regions
	}
	if !d.use() {
		return agent.ErrRetired
	}
	defer d.using.RUnlock()
	// A domain that gets new memory does not wait for a peer.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(d.alive, cancel)()
	o.mu.Lock()
	defer o.mu.Unlock()
	if open, err := o.isOpen(d, s); open || err != nil {
		return err
	}
	select {
	case s.asking <- struct{}{}:
		defer func() { <-s.asking }()
	case <-ctx.Done():
		return ctx.Err()
	case <-s.done:
		return s.Reason()
	}
	ctx, within := s.within(ctx, openTimeout)
	defer within()
	ctx, giveUp := context.WithCancelCause(ctx)
	defer giveUp(nil)
	end, err := d.endpoint(s, o.lane.Ring)
	if err != nil {
		return err
	}
	question := o.question(d, end)
	s.number(question)
	defer s.awaits(awaitedEnd{own: true, seq: question.Seq}, giveUp)()
	waiting, verdicts, err := o.connect(ctx, d, s, end, question)
	if err != nil {
		return o.abandon(d, s, end, err)
	}
	faultpoint.Here("open.connected")
	var left []agent.Absence
	gaveUp := false
	d.agent.Commands.Call(func() {
		if gaveUp = ctx.Err() != nil; !gaveUp { // else the peer's end may be gone already
			left, err = o.raise(d, s, end, waiting, verdicts)
		}
	})
	if gaveUp {
		return o.abandon(d, s, end, context.Cause(ctx))
	}
	if err != nil {
		if s.Reason() == nil {
			d.tellBroken(end.Opening, o.info, false, err.Error()) // its end is up, and no device need tell it
		}
		d.conductor.fabricFailed(s, err)
		return err
	}
	o.session, o.opened = s, time.Now()
	d.conductor.tellGone(d, left, nil)
	d.conductor.log.Debug().Str("peer", s.link.name).Str("domain", d.name).Str("class", o.info.Class).Int("number", o.info.Number).Uint16("lane", o.info.ID).Msg("lane open")
	return nil
}

// abandon gives up an end that was not connected, or whose connection was not used, for the reason err, which it returns as open does.
func (o *outgoing) abandon(d *domain, s *session, end *agent.LaneEndpoint, err error) error {
	end.Discard(d.agent)
	if accepted := end.Opening.Session != nil; accepted && s.Reason() == nil {
		d.tellBroken(end.Opening, o.info, false, err.Error()) // it waits for this end
	}
	if d.isRetired() {
		return agent.ErrRetired
	}
	if errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("not open in time (rdmad status on this node and on %s; is one overloaded?): %w", s.link.name, err)
	}
	return err
}

// isOpen reports whether the lane is connected over the session's link. An error: it is over
// another one's, which is going. o.mu is held.
func (o *outgoing) isOpen(d *domain, s *session) (bool, error) {
	up, draining := o.isUp(d)
	if o.session == s && !up {
		o.session = nil // broken has not been here yet
	}
	if o.session == s {
		if draining {
			o.undrainLocked(d, s.link) // lanesUndrained may not have been here yet
		}
		return true, nil
	}
	if o.session != nil {
		return false, fmt.Errorf("%w: the connection to %s is just being replaced", attach.ErrNoService, s.link.name)
	}
	return false, nil
}

// question is what the peer is asked with for its end of the lane, which still lacks what waits there.
func (o *outgoing) question(d *domain, end *agent.LaneEndpoint) *peerproto.Message {
	return &peerproto.Message{Type: peerproto.TypeOpen, Lane: &peerproto.Lane{
		Domain: d.name, Class: o.info.Class, Number: o.info.Number, Geometry: o.info.Geometry,
		Address: end.Endpoint.Address(), Key: end.MR.Remote(),
	}}
}

// connect has the peer make its end of the lane, by the question, and connects end to that. It returns the
// requests that wait for answers, and what the peer says of them. If it fails, end is the caller's,
// and has an Opening if the peer waits for it.
func (o *outgoing) connect(ctx context.Context, d *domain, s *session, end *agent.LaneEndpoint, question *peerproto.Message) (waiting []agent.SentRequest, verdicts []byte, err error) {
	var mirror uint64
	d.agent.Commands.Call(func() { waiting, mirror = o.lane.Outstanding(), o.lane.Mirror.Load() })
	question.Lane.Mirror, question.Lane.Sent = mirror, agent.EncodeSent(waiting)
	faultpoint.Here("open.before_ask")
	answer, err := s.askNumbered(ctx, question)
	faultpoint.Here("open.answered")
	if err != nil {
		return nil, nil, err
	}
	end.Opening = agent.Opening{Session: s, Seq: question.Seq}
	if waiting, verdicts, err = o.learn(d, answer.Lane, mirror, waiting); err != nil {
		return nil, nil, err
	}
	if err = end.Connect(ctx, answer.Lane, o.lane.Ring, fabric.Active); err != nil {
		if errors.Is(err, context.Canceled) {
			err = context.Cause(ctx)
		}
		d.conductor.fabricFailed(s, err)
	}
	return waiting, verdicts, err
}

// raise gives the connected end to the agent, on whose thread it runs, and which goes on with what
// waits. left are callers that are gone, of whose ends the peer is to be told.
func (o *outgoing) raise(d *domain, s *session, end *agent.LaneEndpoint, waiting []agent.SentRequest, verdicts []byte) (left []agent.Absence, err error) {
	if d.view.Retired {
		_ = end.Release()
		return nil, agent.ErrRetired
	}
	// As a task: the memory of the domain outlives those.
	o.lane.OnBroken = func(err error) { d.conductor.spawn(func() { o.broken(d, end.Opening, err) }) }
	o.lane.Plain = !s.carries
	err = o.lane.Up(end)
	faultpoint.Here("open.up")
	if err == nil {
		o.lane.Resync(waiting, verdicts)
		left = o.lane.Absences()
	}
	faultpoint.Here("open.resynced")
	return left, err
}

// learn notes which end of the lane the peer has, and returns its verdicts on the
// requests that wait for answers. None wait any more if it is another end than the one
// they were sent to: they were given an outcome.
func (o *outgoing) learn(d *domain, l *peerproto.Lane, asked uint64, waiting []agent.SentRequest) ([]agent.SentRequest, []byte, error) {
	if l == nil || l.Mirror == 0 {
		return nil, nil, fmt.Errorf("%w: a lane without a name", peerproto.ErrFrame)
	}
	if asked == l.Mirror {
		return waiting, l.Verdicts, agent.CheckVerdicts(l.Verdicts, len(waiting))
	}
	d.agent.Commands.Call(func() {
		o.lane.Lost("node " + o.info.Peer + " knows nothing of it any more")
		o.lane.Mirror.Store(l.Mirror)
	})
	return nil, nil, nil
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
		event.LaneNotOpened.On(&d.conductor.log).Err(err).Str("peer", o.info.Peer).Str("domain", d.name).Str("class", o.info.Class).Int("number", o.info.Number).Msg("lane not opened")
	}
}

// broken notes that the lane has lost its connection while its link lives, and opens
// it again. What one domain's workers write into their slots can
// close their own lanes; it must not reach further.
func (o *outgoing) broken(d *domain, conn agent.Opening, err error) {
	s := sessionOf(conn)
	event.LaneClosed.On(&d.conductor.log).Err(err).Str("peer", s.link.name).Str("domain", d.name).Str("class", o.info.Class).Int("number", o.info.Number).Msg("outgoing lane closed")
	d.tellBroken(conn, o.info, false, err.Error())
	o.mu.Lock()
	if up, _ := o.isUp(d); o.session == s && !up {
		o.session = nil
	}
	pause := o.pause.after(time.Since(o.opened))
	o.mu.Unlock()
	d.conductor.fabricFailed(s, err)
	if sleep(s.life, pause) {
		o.reopen(d, s)
	}
}

// isUp asks the agent whether the lane is connected, and whether it drains; o.mu is held.
func (o *outgoing) isUp(d *domain) (up, draining bool) {
	d.agent.Commands.Call(func() { up, draining = o.lane.End != nil, o.lane.Draining })
	return up, draining
}

// endpoint makes an unconnected endpoint for a ring: the peer will reach the
// ring's slots and nothing else. What the device has no room for, or cannot register, another fabric may.
func (d *domain) endpoint(s *session, ring *slots.Ring) (*agent.LaneEndpoint, error) {
	p, err := agent.NewLaneEndpoint(s.fabric.Device, d.agent.CQs[s.fabric.Number], d.conductor.tags.Add(1), ring, s.link.name)
	if err != nil {
		d.conductor.fabricFailed(s, err)
		return nil, err
	}
	p.Pin(&d.conductor.counts().PinnedBytes, len(ring.Slots()))
	return p, nil
}

// sortedClasses returns the classes by slot size.
func sortedClasses(cs []config.Class) []config.Class {
	return slices.SortedFunc(slices.Values(cs), func(a, b config.Class) int { return cmp.Compare(a.SlotSize, b.SlotSize) })
}
