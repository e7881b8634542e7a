package daemon

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/rdmad/rdmad/internal/attach"
	"github.com/rdmad/rdmad/internal/faultpoint"
	"github.com/rdmad/rdmad/internal/peerproto"
	"github.com/rdmad/rdmad/internal/printable"
	"github.com/rdmad/rdmad/slots"
)

// handleWorker deals with one message of a worker. An error ends the attachment.
func (c *conductor) handleWorker(w *worker, m *attach.Message) error {
	switch m.Type {
	case attach.TypeBye:
		c.mu.Lock()
		faultpoint.Here("bye.heard")
		if !w.bye {
			w.bye = true
			w.keepWorkerChange()
		}
		c.mu.Unlock()
		return nil
	case attach.TypeMapped:
		return c.mapped(w, m)
	case attach.TypeTaken:
		w.lent.read(m.Seq)
		if w.spiller != nil {
			w.spiller.taken(m.Seq)
		}
		return nil
	case attach.TypeFree:
		return c.free(w, m)
	case attach.TypeHave:
		return c.have(w, m)
	case attach.TypeResolve, attach.TypeRegister, attach.TypeWithdraw, attach.TypeStatus, attach.TypePing, attach.TypeAlloc, attach.TypeExport, attach.TypeTrace, attach.TypeDrain, attach.TypeStacks:
	default:
		return fmt.Errorf("%w: a %q message from a worker", attach.ErrInvalid, printable.Text(string(m.Type)))
	}
	return c.ask(w, m)
}

// answer answers one question of a worker.
func (c *conductor) answer(w *worker, m *attach.Message) {
	var a *attach.Message
	var err error
	switch m.Type {
	case attach.TypeResolve:
		if err = c.resolve(w, m); err == nil {
			return // resolve has answered, in order with the lanes
		}
	case attach.TypeAlloc:
		if err = c.alloc(w, m); err == nil {
			return // alloc has answered, with a descriptor
		}
	case attach.TypeExport:
		a, err = c.export(w, m)
	case attach.TypeRegister:
		a, err = c.register(w, m)
	case attach.TypeWithdraw:
		a, err = c.withdraw(w)
	case attach.TypeStatus:
		err = w.sendStatus(m.Seq)
	case attach.TypeStacks:
		err = c.stacksAsked(w, m)
	case attach.TypeDrain:
		if err = c.drainAsked(w, m); err == nil {
			err = w.sendStatus(m.Seq)
		}
	case attach.TypePing:
		a, err = c.ping(w, m)
	case attach.TypeTrace:
		a, err = c.trace(w, m)
	}
	if err != nil {
		a = &attach.Message{Type: attach.TypeFail, Fail: attach.FailFor(err)}
	}
	if a == nil {
		return // it has been answered
	}
	a.Seq = m.Seq
	w.reply(a)
}

// mapped notes that a service worker can take requests from a lane.
func (c *conductor) mapped(w *worker, m *attach.Message) error {
	if w.role != attach.RoleService || m.Lane == nil || int(m.Lane.ID) >= slots.MaxLanes {
		return fmt.Errorf("%w: a malformed mapped message", attach.ErrInvalid)
	}
	id := m.Lane.ID
	w.mu.Lock()
	given := w.given[id]
	w.mu.Unlock()
	if !given {
		return nil // of a lane that has been taken back meanwhile
	}
	d := w.domain
	// It waits: whoever says so again and again is not to fill the agent's queue.
	d.agent.Commands.Call(func() { d.view.Maps(w.view, id) })
	return nil
}

// register adds a worker to the methods it offers.
func (c *conductor) register(w *worker, m *attach.Message) (*attach.Message, error) {
	if w.role != attach.RoleService {
		return nil, fmt.Errorf("%w: only services register methods", attach.ErrInvalid)
	}
	for _, o := range m.Methods {
		if err := errors.Join(attach.CheckName(o.Service), attach.CheckName(o.Method)); err != nil {
			return nil, fmt.Errorf("%w: %w", attach.ErrInvalid, err)
		}
		if o.Answer < attach.AnswerLikeRequest || o.Answer > c.largestPayload() {
			return nil, fmt.Errorf("%w: answers of %d bytes for %s/%s, the largest class takes %d (declare no more: larger answers are fetched in parts)", attach.ErrInvalid, o.Answer, o.Service, o.Method, c.largestPayload())
		}
	}
	ids, changed, err := w.domain.enter(w, m.Methods)
	// All peers and all who wait for a service pay for each change: a worker is not to have them told of none, as often as it
	// likes. What was entered before something was refused stays, and is not new when it is asked for again.
	if changed {
		c.mu.Lock()
		w.keepWorkerChange()
		c.mu.Unlock()
		c.directoryChanged()
	}
	if err != nil {
		return nil, err
	}
	return &attach.Message{Type: attach.TypeRegistered, MethodIDs: ids}, nil
}

// enter makes w serve the methods and returns their ids, and whether that has changed anything, which it may have
// done even if it fails. Nobody finds a method before the agent knows that w serves it: what came meanwhile would be refused.
func (d *domain) enter(w *worker, methods []attach.Method) (ids []uint32, changed bool, err error) {
	for _, o := range methods {
		id, err := d.methodFor(w, o)
		if err != nil {
			return nil, changed, err
		}
		row := d.rowFor(methodKey{o.Service, o.Method})
		d.agent.Commands.Call(func() {
			d.view.Register(id, w.view)
			d.view.CountMethod(id, row)
		})
		anew, err := d.offer(w, o)
		if err != nil {
			return nil, changed, err
		}
		changed = changed || anew
		ids = append(ids, id)
	}
	return ids, changed, nil
}

func (c *conductor) largestPayload() int {
	largest := 0
	for _, cl := range c.cfg.Classes {
		largest = max(largest, geometryOf(cl).MaxPayload())
	}
	return largest
}

// methodID makes the id of the n-th method of the domain. The bits above the number
// are this incarnation's: a caller that has an id of the node's last incarnation
// must not reach another method.
func (d *domain) methodID(n int) uint32 {
	return d.conductor.salt<<d.view.MethodBits | uint32(n)
}

// mayOffer returns the error that w gets which registers methods and may not, or nil. conductor.mu is held.
func (d *domain) mayOffer(w *worker) error {
	if _, ok := d.conductor.attached[w]; !ok || d.retired {
		// It is gone already; its detachment must be the last word.
		return fmt.Errorf("%w: worker %d has detached", attach.ErrClosed, w.id)
	}
	if w.withdrawn {
		return fmt.Errorf("%w: worker %d has withdrawn what it serves", attach.ErrInvalid, w.id)
	}
	return nil
}

// methodFor returns the id of a method that w is about to serve. The domain has it from now on, whoever serves it.
func (d *domain) methodFor(w *worker, o attach.Method) (id uint32, err error) {
	c := d.conductor
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := d.mayOffer(w); err != nil {
		return 0, err
	}
	key := methodKey{o.Service, o.Method}
	m := d.methods[key]
	if m == nil {
		if limit := c.cfg.Limits.Services; d.nextMethod >= limit {
			return 0, fmt.Errorf("%w: domain %s has had %d methods of different names, which are never forgotten (limits.services)", attach.ErrLimit, d.name, limit)
		}
		m = &method{id: d.methodID(d.nextMethod), answer: o.Answer, workers: make(map[*worker]bool)}
		d.nextMethod++
		d.methods[key] = m
		d.keepMethod(key, m)
	}
	return m.id, nil
}

// offer notes that w serves a method of the domain, and returns whether that is news. The agent knows it already, and goes on doing so if w
// has left or withdrawn meanwhile: it has been, or will be, told that too, and gives w nothing of any method then.
func (d *domain) offer(w *worker, o attach.Method) (anew bool, err error) {
	c := d.conductor
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := d.mayOffer(w); err != nil {
		return false, err
	}
	key := methodKey{o.Service, o.Method}
	m := d.methods[key]
	if m.answer != o.Answer {
		m.answer, anew = o.Answer, true
		d.keepMethod(key, m)
	}
	anew = anew || !m.workers[w]
	m.workers[w] = true
	n := d.view.MethodNumber(m.id)
	for n/8 >= len(w.serves) {
		w.serves = append(w.serves, 0)
	}
	w.serves[n/8] |= 1 << (n % 8)
	return anew, nil
}

// pingTimeout bounds how long a ping waits for the link and for the peer's answer: less than tools wait by default, who are to hear why
// there is none.
const pingTimeout = 4 * time.Second

// ping measures the round trip to a peer's daemon.
func (c *conductor) ping(w *worker, m *attach.Message) (*attach.Message, error) {
	if m.Node == c.node {
		return &attach.Message{Type: attach.TypePong, Node: c.node}, nil
	}
	ctx, cancel := context.WithTimeout(c.ctx, pingTimeout)
	defer cancel()
	for {
		s, err := c.connected(ctx, w.gone, m.Node)
		if err != nil {
			return nil, err
		}
		start := time.Now()
		if _, err = s.ask(ctx, &peerproto.Message{Type: peerproto.TypePing}); err == nil {
			return &attach.Message{Type: attach.TypePong, Node: m.Node, RTT: int64(time.Since(start))}, nil
		}
		if c.followed(ctx, s) {
			continue
		}
		outcome := attach.ErrNoService
		if c.ctx.Err() != nil {
			outcome = attach.ErrClosed
		}
		return nil, fmt.Errorf("%w: node %s has not answered a ping: %w", outcome, m.Node, err)
	}
}

// followed reports whether a session has ended and it is worth asking the peer by the
// next one: two nodes that find each other again may first do so by two connections.
func (c *conductor) followed(ctx context.Context, s *session) bool {
	return s.Reason() != nil && ctx.Err() == nil && sleep(ctx, time.Millisecond)
}

// resolve finds the way to a method, opens what lanes it needs, and hands them
// to the worker with the answer.
func (c *conductor) resolve(w *worker, m *attach.Message) error {
	if w.role != attach.RoleClient || m.Target == nil {
		return fmt.Errorf("%w: a malformed resolve message", attach.ErrInvalid)
	}
	t := *m.Target
	if err := t.Check(); err != nil {
		return fmt.Errorf("%w: %w", attach.ErrInvalid, err)
	}
	wait := c.live().Limits.ConnectWait
	if t.WaitMillis > 0 {
		wait = min(wait, time.Duration(min(t.WaitMillis, int64(time.Hour/time.Millisecond)))*time.Millisecond)
	}
	ctx, cancel := context.WithTimeout(c.ctx, wait+openTimeout)
	defer cancel()
	found, lanes, err := c.findLanes(ctx, w.gone, w.domain, t, wait)
	if err != nil {
		return err
	}
	route := &attach.Route{
		Node: found.node, Method: found.id, Answer: found.answer, Carries: found.carries,
		LeastOutstanding: c.live().Lanes.Balance == "least-outstanding",
	}
	d := w.domain
	d.agent.Commands.Do(func() {
		for _, l := range lanes {
			d.view.Joins(w.view, l.ID)
		}
	})
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, l := range lanes {
		w.giveLocked(l)
		route.Lanes = append(route.Lanes, l.ID)
	}
	if err := w.conn.Send(&attach.Message{Type: attach.TypeResolved, Seq: m.Seq, Route: route}); err != nil {
		c.log.Debug().Err(err).Int("worker", w.id).Msg("route not sent")
		w.untold(err)
	}
	return nil
}

// findLanes finds a target and the lanes to it, for who waits until gone is closed. It looks again when the connection
// to the place ended while the lanes were being opened.
func (c *conductor) findLanes(ctx context.Context, gone <-chan struct{}, d *domain, t attach.Target, wait time.Duration) (place, []*laneInfo, error) {
	end := time.Now().Add(wait)
	for {
		p, err := c.find(ctx, gone, d, t, wait)
		if err != nil {
			return p, nil, err
		}
		lanes, err := c.lanesTo(ctx, d, p)
		if err == nil {
			return p, lanes, nil
		}
		if t.Node == "" && len(t.Avoid) < attach.MaxAvoid && !slices.Contains(t.Avoid, p.node) && ctx.Err() == nil && !errors.Is(err, attach.ErrLimit) {
			t.Avoid = append(slices.Clip(t.Avoid), p.node) // any other will do; it may have begun to drain
			continue
		}
		ends := p.session != nil && !errors.Is(err, attach.ErrLimit) && p.session.endsSoon(ctx)
		left := time.Until(end)
		switch {
		case ends && ctx.Err() == nil:
		case c.drainsAway(p) && left > 0 && ctx.Err() == nil:
			wait = min(wait, left) // it has begun to since it was found, and may be back in time
		default:
			if !errors.Is(err, attach.ErrLimit) {
				err = fmt.Errorf("%w: %w", attach.ErrNoService, err)
			}
			return p, nil, err
		}
	}
}

// drainsAway reports whether a place is on a peer that takes no requests at present.
func (c *conductor) drainsAway(p place) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	l := c.links[p.node]
	return l != nil && p.session != nil && l.session == p.session && l.draining
}

// lateLoss is how much later than the fabric a session may notice that the peer's core
// has died.
const lateLoss = 100 * time.Millisecond

// endsSoon waits for the end of a session over which something has failed, and reports
// whether that was why.
func (s *session) endsSoon(ctx context.Context) bool {
	late := time.NewTimer(lateLoss)
	defer late.Stop()
	select {
	case <-s.done:
	case <-late.C:
	case <-ctx.Done():
	}
	return s.Reason() != nil
}

// place is where a method is served.
type place struct {
	node    string
	session *session // nil for this node
	id      uint32
	answer  int
	carries bool
}

// find looks a target up in the directory. It waits for a configured peer that
// is not connected, until gone is closed, but not for a service on one that is.
func (c *conductor) find(ctx context.Context, gone <-chan struct{}, d *domain, t attach.Target, wait time.Duration) (place, error) {
	timeout := time.NewTimer(wait)
	defer timeout.Stop()
	for over := false; ; {
		c.mu.Lock()
		p, retry, err := c.lookup(d, t)
		changed := c.changed
		c.mu.Unlock()
		if err == nil || !retry || over {
			return p, err
		}
		select {
		case <-changed:
		case <-timeout.C:
			over = true // unless it is there by now
		case <-gone:
			return place{}, err
		case <-ctx.Done():
			if c.ctx.Err() == nil {
				return place{}, err // nobody waits any longer
			}
			return place{}, fmt.Errorf("%w: node %s is stopping", attach.ErrClosed, c.node)
		}
	}
}

// lookup is one look into the directory, with mu held. retry says that waiting
// may help.
func (c *conductor) lookup(d *domain, t attach.Target) (p place, retry bool, err error) {
	if c.draining {
		return p, false, fmt.Errorf("%w: node %s is draining", attach.ErrClosed, c.node)
	}
	key := methodKey{t.Service, t.Method}
	switch l := c.links[t.Node]; {
	case t.Node == "":
		return c.lookupAnywhere(d, key, t.Avoid)
	case t.Node == c.node:
		return c.lookupHere(d, key)
	case l == nil:
		return p, false, fmt.Errorf("%w: node %q is not this node (%s) and not a [[peer]] of it", attach.ErrNoService, printable.Text(t.Node), c.node)
	default:
		return l.lookup(d, key)
	}
}

// lookupHere finds a method on this node. retry is lookup's.
func (c *conductor) lookupHere(d *domain, key methodKey) (p place, retry bool, err error) {
	if c.outage != nil {
		return p, true, fmt.Errorf("%w: node %s is out of service (rdmad drain)", attach.ErrNoService, c.node)
	}
	if m := d.methods[key]; m != nil && len(m.workers) > 0 {
		return place{node: c.node, id: m.id, answer: m.answer, carries: m.carries()}, false, nil
	}
	return p, c.tenancy.expecting.Load(), fmt.Errorf("%w: nobody on node %s serves %s/%s in domain %s", attach.ErrNoService, c.node, key.service, key.method, d.name)
}

// lookupAnywhere finds a method on this node or else on a connected one. Nodes to avoid
// come last: a caller may be wrong about them, and there may be no other.
func (c *conductor) lookupAnywhere(d *domain, key methodKey, avoid []string) (p place, retry bool, err error) {
	for _, avoided := range []bool{false, true} {
		if slices.Contains(avoid, c.node) == avoided {
			p, again, err := c.lookupHere(d, key)
			if err == nil {
				return p, false, nil
			}
			retry = retry || again
		}
		for _, l := range c.links {
			if slices.Contains(avoid, l.name) != avoided {
				continue
			}
			q, again, lerr := l.lookup(d, key)
			if lerr == nil {
				return q, false, nil
			}
			retry = retry || again
		}
	}
	return place{}, retry, fmt.Errorf("%w: no node serves %s/%s in domain %s%s", attach.ErrNoService, key.service, key.method, d.name, c.nearly(d, key))
}

// nearly says who would serve a method if something were different, or nothing. mu is held.
func (c *conductor) nearly(d *domain, key methodKey) string {
	if m := d.methods[key]; m != nil && len(m.workers) > 0 && c.outage != nil {
		return fmt.Sprintf("; node %s does, and is out of service (rdmad drain)", c.node)
	}
	unconnected, draining := 0, ""
	for name, l := range c.links {
		if l.session == nil {
			unconnected++
		} else if _, ok := l.directory[d.name][key]; ok && l.draining && (draining == "" || name < draining) {
			draining = name
		}
	}
	switch {
	case draining != "":
		return fmt.Sprintf("; node %s does, and is draining", draining)
	case unconnected > 0:
		return fmt.Sprintf("; %d of %d peers are not connected", unconnected, len(c.links))
	}
	return ""
}
