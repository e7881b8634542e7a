package daemon

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/rdmad/rdmad/internal/agent"
	"github.com/rdmad/rdmad/internal/attach"
	"github.com/rdmad/rdmad/internal/event"
	"github.com/rdmad/rdmad/internal/fabric"
	"github.com/rdmad/rdmad/internal/peerproto"
)

// bulk is the conductor's side of one-sided operations between a domain and a peer.
// There are up to two connections for them, one for the operations of each side's
// handlers: so each is opened by the side that needs it, and the failure of one is
// not the other's.
//
// The regions that the peer may reach are registered in a protection domain of
// their own, which is the passive connection's. They are registered for one session
// with the peer: no key outlives it. What the peer knows outlives it: in the next session
// the regions are registered again, and named again with their new keys.
type bulk struct {
	domain *domain
	peer   string
	view   *agent.Peer

	// mu guards what follows.
	mu      sync.Mutex
	session *session // nil while nothing is registered
	pd      fabric.ProtectionDomain
	// made is when the connection for this node's operations was made last.
	made  time.Time
	pause backoff
	// accept is the newest connection that the peer has asked for, nil before the first. connecting are those that
	// are being made in pd.
	accept     *acceptance
	connecting sync.WaitGroup
	// exports are the regions that the peer knows, with their registrations, which are
	// nil for those that it was not told of again yet. noting is held, too, when it changes, and alone by who only wants to know
	// whether the peer knows a region at all: mu is held while the peer is told of all of them again, for as long as it takes it to read.
	exports map[*region]fabric.MemoryRegion
	noting  sync.Mutex
	// graves are needed as long as the peer has the connection that it has; see grave.go.
	graves []*grave
}

// laneBulk is the class of a connection for operations.
const laneBulk = "bulk"

// bulkWith finds or makes the bulk between a domain and a peer.
func (c *conductor) bulkWith(d *domain, peer string) *bulk {
	d.making.Lock()
	defer d.making.Unlock()
	c.mu.Lock()
	b := d.bulks[peer]
	c.mu.Unlock()
	if b != nil {
		return b
	}
	b = &bulk{domain: d, peer: peer, exports: make(map[*region]fabric.MemoryRegion)}
	d.agent.Commands.Call(func() {
		b.view = d.view.Peer(peer)
		b.view.Mover.Connect = func(attempt uint64) bool { return c.spawn(func() { b.open(attempt) }) }
		b.view.Mover.Register = func(e *agent.ActiveEnd, r *agent.Region) bool {
			return c.spawn(func() { b.registerLocal(e, r) })
		}
		b.view.Mover.Spawn = c.spawn
		b.view.Mover.Patience = func() time.Duration { return c.live().Node.LinkHold + agent.StandsStillAfter }
		b.view.Mover.Later = func() bool { return c.spawn(b.lookLater) }
	})
	c.mu.Lock()
	d.bulks[peer] = b
	c.mu.Unlock()
	return b
}

// note notes that the peer knows a region, and unnote that it does not any more, with mu held.
func (b *bulk) note(r *region, mr fabric.MemoryRegion) {
	b.noting.Lock()
	defer b.noting.Unlock()
	b.exports[r] = mr
}

func (b *bulk) unnote(r *region) {
	b.noting.Lock()
	defer b.noting.Unlock()
	delete(b.exports, r)
}

// knows reports whether the peer knows a region, or did in an earlier session and is still to be told of it. Who frees the region holds
// its mu, so that it does not become known meanwhile.
func (b *bulk) knows(r *region) bool {
	b.noting.Lock()
	defer b.noting.Unlock()
	_, known := b.exports[r]
	return known
}

// prepare makes the protection domain for a session, with mu held.
func (b *bulk) prepare(s *session) error {
	if err := s.Reason(); err != nil {
		return fmt.Errorf("%w: node %s: %w", attach.ErrNoService, b.peer, err)
	}
	if b.domain.isRetired() {
		return agent.ErrRetired
	}
	if b.session == s {
		return nil
	}
	if b.session != nil {
		return fmt.Errorf("%w: the connection to %s is just being replaced", attach.ErrNoService, b.peer)
	}
	pd, err := s.fabric.Device.AllocPD()
	if err != nil {
		return err
	}
	b.session, b.pd = s, pd
	return nil
}

// register makes a region usable by the peer in this session, with mu held.
func (b *bulk) register(r *region) (fabric.MemoryRegion, error) {
	if mr := b.exports[r]; mr != nil {
		return mr, nil
	}
	// All rights: what a handler may do the peer's daemon knows, call by call.
	access := fabric.AccessRemoteWrite | fabric.AccessRemoteRead
	if b.session.fabric.Device.Caps().Atomics {
		access |= fabric.AccessRemoteAtomic
	}
	mr, err := b.pd.Register(r.view.Mem, access)
	if err != nil {
		return nil, fmt.Errorf("%w: register a region of %d bytes: %w", attach.ErrLimit, r.size, err)
	}
	b.note(r, mr)
	return mr, nil
}

// unregister ends all registrations, with mu held.
func (b *bulk) unregister() {
	if b.session == nil {
		return
	}
	var errs []error
	for r, mr := range b.exports {
		if mr != nil {
			errs = append(errs, mr.Close())
			b.note(r, nil)
		}
	}
	errs = append(errs, b.pd.Close())
	b.session, b.pd = nil, nil
	for _, g := range b.graves { // the connection was closed before
		g.leave(b.domain.conductor)
	}
	b.graves = nil
	if err := errors.Join(errs...); err != nil {
		event.RegistrationClose.On(&b.domain.conductor.log).Err(err).Str("peer", b.peer).Msg("closing registrations")
	}
}

var errRegionFree = fmt.Errorf("%w: the region is free", attach.ErrInvalid)

// export makes a region known to the peer. Again it only makes sure.
func (b *bulk) export(ctx context.Context, s *session, r *region) error {
	if !r.hold() { // it was freed while the worker's question waited for the link
		return errRegionFree
	}
	defer r.mu.RUnlock()
	b.mu.Lock()
	err := b.prepare(s)
	if err != nil {
		b.mu.Unlock()
		return err
	}
	mr, err := b.register(r)
	if err != nil {
		b.mu.Unlock()
		return err
	}
	key := b.name(r)
	key.Key = mr.Remote()
	b.mu.Unlock()
	if _, err := s.ask(ctx, &peerproto.Message{Type: peerproto.TypeExport, Region: key}); err != nil {
		return fmt.Errorf("%w: export to node %s: %w", attach.ErrNoService, b.peer, err)
	}
	freed := false
	b.mu.Lock()
	_, known := b.exports[r] // also if the session has ended since
	b.domain.agent.Commands.Call(func() {
		if freed = r.view.Freed; !freed && known && !r.view.Knows(b.view) {
			r.view.Exported = append(r.view.Exported, b.view)
		}
	})
	b.mu.Unlock()
	if freed {
		return errRegionFree
	}
	return nil
}

// unexport takes a region back from the peer, whose handlers may have it until they
// have answered, and ends its registration. It returns the session in which the peer may still come to it, or nil.
func (b *bulk) unexport(r *region) *session {
	if !b.knows(r) {
		return nil // whatever the peer is told meanwhile, and however slowly it reads that
	}
	for { // as often as the link is lost meanwhile
		if late, done := b.tryUnexport(r); done {
			return late
		}
	}
}

// tryUnexport is unexport in one session. Not done: that has ended.
func (b *bulk) tryUnexport(r *region) (late *session, done bool) {
	b.mu.Lock()
	s, mr := b.session, b.exports[r]
	if mr == nil {
		// The peer does not know it, or only from a session that is over: it will not
		// hear of it again, and cannot reach it.
		b.unnote(r)
		b.mu.Unlock()
		return nil, true
	}
	b.mu.Unlock()
	ctx, cancel := context.WithCancel(b.domain.conductor.ctx)
	defer cancel()
	// Of a dead owner's region it is told to use it no more: a peer that does not answer must not keep the
	// memory of one process after the other.
	defer context.AfterFunc(r.owned, func() { time.AfterFunc(answerTimeout, cancel) })()
	// Without an answer the session is over, and with it every access.
	_, err := s.ask(ctx, &peerproto.Message{Type: peerproto.TypeUnexport, Region: b.name(r)})
	if err != nil && ctx.Err() == nil && s.Reason() == nil {
		s.end(fmt.Errorf("a region was not given back: %w", err))
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.session != s {
		return nil, false // the peer may have been told again
	}
	b.unnote(r)
	if s.fabric.Device.Caps().LateAccess {
		late = s
	}
	if err := mr.Close(); err != nil {
		late = s
		event.RegistrationClose.On(&b.domain.conductor.log).Err(err).Str("peer", b.peer).Msg("closing a region's registration")
	}
	return late, true
}

// revoke makes operations of the peer's handlers on a region fail, whose owner is
// dead.
func (b *bulk) revoke(r *region) {
	b.mu.Lock()
	s, known := b.session, b.exports[r] != nil
	b.mu.Unlock()
	if known { // else repeat says so
		b.sendRevoke(s, r)
	}
}

func (b *bulk) sendRevoke(s *session, r *region) {
	if err := s.send(&peerproto.Message{Type: peerproto.TypeRevoke, Region: b.name(r)}); err != nil {
		s.end(err)
	}
}

// name is what a region is called between the nodes.
func (b *bulk) name(r *region) *peerproto.Region {
	id := r.view.ID
	return &peerproto.Region{Domain: b.domain.name, Index: id.Index(), Generation: id.Generation()}
}

// open makes the connection for the operations of this node's handlers. While some wait for it, it tries again for as
// long as they wait for a lost link: that it cannot be made may be the first sign that the link is lost, or the peer's
// side of the last one may not be closed yet.
func (b *bulk) open(attempt uint64) {
	c := b.domain.conductor
	s := c.sessionWith(b.peer)
	if s == nil {
		return // it has ended, and with it the attempt
	}
	// The session may be the one after: the attempt has ended with its own, and another one is that one's.
	late := false
	b.domain.agent.Commands.Call(func() { late = !b.view.Mover.Opens(attempt) })
	if late {
		return
	}
	b.mu.Lock()
	pause := b.pause.after(time.Since(b.made))
	b.mu.Unlock()
	if !sleep(s.life, pause) {
		return // as below
	}
	until := time.Now().Add(c.live().Node.LinkHold)
	for wait := firstRetry; ; wait = min(2*wait, lastRetry) {
		again, err := b.try(attempt, s, until)
		if err != nil && c.ctx.Err() == nil && (wait == firstRetry || !again) {
			event.OpsNotConnected.On(&c.log).Err(err).Str("peer", b.peer).Str("domain", b.domain.name).Msg("no connection for operations on regions")
		}
		if !again {
			return
		}
		select {
		case <-s.done:
			return // the mover waits for the next session, or will in a moment
		case <-time.After(jitter(wait)):
		case <-c.ctx.Done():
		}
	}
}

// try tries once, and reports whether it is to be tried again in this session: operations wait, and it is
// not yet the given time.
func (b *bulk) try(attempt uint64, s *session, until time.Time) (again bool, err error) {
	d := b.domain
	c := d.conductor
	ctx, cancel := s.within(c.ctx, openTimeout)
	defer cancel()
	ctx, giveUp := context.WithCancelCause(ctx)
	defer giveUp(nil)
	e, heard, err := b.connect(ctx, giveUp, s)
	defer heard()
	if err == nil {
		b.mu.Lock() // before the agent has it, which may find it broken at once and ask for the next one
		b.made = time.Now()
		b.mu.Unlock()
	}
	var unused agent.Opening
	uncertain := false
	d.agent.Commands.Call(func() {
		over := s.Reason()
		if d.view.Retired {
			over = agent.ErrRetired
		}
		if over != nil {
			// The mover waits for the next session, or will in a moment.
			if err == nil {
				e.Close()
			}
			err = over
			return
		}
		if err == nil && ctx.Err() != nil { // the peer's end may be gone already
			unused, err = e.Opening, context.Cause(ctx)
			e.Close()
		}
		if err != nil {
			e = nil
			again = c.ctx.Err() == nil && time.Now().Before(until) && b.view.Mover.Awaits(attempt)
			if uncertain = !again && b.view.Mover.Uncertain(); again || uncertain {
				return
			}
		}
		if serr := b.view.Mover.Connected(attempt, e); serr != nil {
			err = serr
			b.view.Mover.Broken(serr)
		}
	})
	if unused.Session != nil {
		d.tellBulkBroken(unused, false, err)
	}
	if uncertain {
		// Before the operations end, the peer must have closed its end of the last connection:
		// it does before it makes another session.
		s.end(fmt.Errorf("what was under way to regions there may still arrive: %w", err))
	}
	return again, err
}

// connect makes this node's end of a connection. giveUp ends ctx: it is called when the peer says that its end is gone, until heard is.
func (b *bulk) connect(ctx context.Context, giveUp context.CancelCauseFunc, s *session) (_ *agent.ActiveEnd, heard func(), err error) {
	heard = func() {}
	d := b.domain
	c := d.conductor
	// As with lanes: the peer must come to read the answers to its own questions.
	select {
	case s.asking <- struct{}{}:
		defer func() { <-s.asking }()
	case <-ctx.Done():
		return nil, heard, ctx.Err()
	}
	e, err := agent.NewActiveEnd(d.agent, s.fabric.Device, d.agent.CQs[s.fabric.Number], c.tags.Add(1), b.peer)
	if err != nil {
		return nil, heard, err
	}
	question := &peerproto.Message{Type: peerproto.TypeOpen, Lane: &peerproto.Lane{Domain: d.name, Class: laneBulk, Bulk: true, Address: e.Endpoint.Address()}}
	s.number(question)
	heard = s.awaits(awaitedEnd{own: true, seq: question.Seq}, giveUp)
	answer, err := s.askNumbered(ctx, question)
	accepted := err == nil
	if err == nil && (answer.Lane == nil || len(answer.Lane.Address) > fabric.MaxAddress) {
		err = fmt.Errorf("%w: a connection without a usable address", peerproto.ErrFrame)
	}
	if err == nil {
		err = e.Endpoint.Connect(ctx, answer.Lane.Address, fabric.Active)
	}
	if errors.Is(err, context.Canceled) {
		err = context.Cause(ctx)
	}
	e.Opening = agent.Opening{Session: s, Seq: question.Seq}
	renews := s.fabric.Device.Caps().LateAccess
	d.agent.Commands.Call(func() { b.view.Mover.Renews = renews })
	e.Atomics = e.Atomics && err == nil && !answer.Lane.NoAtomics
	if err != nil {
		d.agent.Commands.Call(func() {
			e.Over = true
			e.Release()
		})
		if accepted && s.Reason() == nil {
			d.tellBulkBroken(e.Opening, false, err) // it waits for this end
		}
		return nil, heard, err
	}
	e.OnBroken = func(err error) {
		c.spawn(func() {
			event.OpsClosed.On(&c.log).Err(err).Str("peer", b.peer).Str("domain", d.name).Msg("connection for operations closed")
			d.tellBulkBroken(e.Opening, false, err)
		})
	}
	return e, heard, nil
}

// registerLocal registers a worker's memory with a connection's device.
func (b *bulk) registerLocal(e *agent.ActiveEnd, r *agent.Region) {
	mr, err := e.PD.Register(r.Mem, 0)
	if err != nil {
		event.RegionNotRegistered.On(&b.domain.conductor.log).Err(err).Int("bytes", len(r.Mem)).Msg("cannot register a region")
		mr = nil
	}
	b.domain.agent.Commands.Call(func() { b.view.Mover.Registered(e, r, mr) })
}
