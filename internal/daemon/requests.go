package daemon

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rdmad/rdmad/internal/attach"
	"github.com/rdmad/rdmad/slots"
)

// handleWorker deals with one message of a worker. An error ends the attachment.
func (c *conductor) handleWorker(w *worker, m *attach.Message) error {
	switch m.Type {
	case attach.TypeBye:
		w.bye = true
		return nil
	case attach.TypeMapped:
		return c.mapped(w, m)
	case attach.TypeFree:
		return c.free(w, m)
	case attach.TypeResolve, attach.TypeRegister, attach.TypeStatus, attach.TypePing, attach.TypeAlloc, attach.TypeExport:
	default:
		return fmt.Errorf("%w: a %q message from a worker", attach.ErrInvalid, printable(string(m.Type)))
	}
	select {
	case w.asks <- struct{}{}:
	default:
		return fmt.Errorf("%w: more than %d questions at once", attach.ErrLimit, attach.MaxAsks)
	}
	if !c.spawn(func() {
		defer func() { <-w.asks }()
		c.answer(w, m)
	}) {
		return fmt.Errorf("%w: node %s is stopping", attach.ErrClosed, c.node)
	}
	return nil
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
	case attach.TypeStatus:
		a, err = c.statusMessage()
	case attach.TypePing:
		a, err = c.ping(m)
	}
	if err != nil {
		a = &attach.Message{Type: attach.TypeFail, Fail: attach.FailFor(err)}
	}
	a.Seq = m.Seq
	if err := w.conn.Send(a); err != nil {
		c.log.Debug().Err(err).Int("worker", w.id).Msg("answer not sent")
	}
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
		return fmt.Errorf("%w: mapped a lane it was not given", attach.ErrInvalid)
	}
	d := w.domain
	d.agent.commands.do(func() {
		w.view.mapped[id/64] |= 1 << (id % 64)
		d.view.drainQueues()
	})
	return nil
}

// register adds a worker to the methods it offers.
func (c *conductor) register(w *worker, m *attach.Message) (*attach.Message, error) {
	if w.role != attach.RoleService {
		return nil, fmt.Errorf("%w: only services register methods", attach.ErrInvalid)
	}
	a := &attach.Message{Type: attach.TypeRegistered}
	for _, o := range m.Methods {
		if err := errors.Join(attach.CheckName(o.Service), attach.CheckName(o.Method)); err != nil {
			return nil, fmt.Errorf("%w: %w", attach.ErrInvalid, err)
		}
		if o.Answer < attach.AnswerLikeRequest || o.Answer > c.largestPayload() {
			return nil, fmt.Errorf("%w: answers of %d bytes for %s/%s, the largest class takes %d", attach.ErrInvalid, o.Answer, o.Service, o.Method, c.largestPayload())
		}
	}
	d := w.domain
	for _, o := range m.Methods {
		id, err := d.offer(w, o)
		if err != nil {
			return nil, err
		}
		d.agent.commands.call(func() { d.view.register(id, w.view) })
		a.MethodIDs = append(a.MethodIDs, id)
	}
	c.directoryChanged()
	return a, nil
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
	return d.conductor.salt<<d.view.methodBits | uint32(n)
}

// offer notes that w serves the method and returns the method's id.
func (d *domain) offer(w *worker, o attach.Method) (uint32, error) {
	c := d.conductor
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.attached[w]; !ok {
		// It is gone already; its detachment must be the last word.
		return 0, fmt.Errorf("%w: worker %d has detached", attach.ErrClosed, w.id)
	}
	key := methodKey{o.Service, o.Method}
	m := d.methods[key]
	if m == nil {
		if limit := c.cfg.Limits.Services; len(d.methods) >= limit {
			return 0, fmt.Errorf("%w: %d methods in domain %s (limits.services)", attach.ErrLimit, limit, d.name)
		}
		m = &method{id: d.methodID(len(d.methods)), workers: make(map[*worker]bool)}
		d.methods[key] = m
	}
	m.answer = o.Answer
	m.workers[w] = true
	return m.id, nil
}

// ping measures the round trip to a peer's daemon.
func (c *conductor) ping(m *attach.Message) (*attach.Message, error) {
	if m.Node == c.node {
		return &attach.Message{Type: attach.TypePong, Node: c.node}, nil
	}
	ctx, cancel := context.WithTimeout(c.ctx, 5*time.Second)
	defer cancel()
	s, err := c.connected(ctx, m.Node)
	if err != nil {
		return nil, err
	}
	start := time.Now()
	if _, err := s.ask(ctx, &peerMessage{Type: peerPing}); err != nil {
		return nil, fmt.Errorf("%w: ping %s: %w", attach.ErrClosed, m.Node, err)
	}
	return &attach.Message{Type: attach.TypePong, Node: m.Node, RTT: int64(time.Since(start))}, nil
}

// resolve finds the way to a method, opens what lanes it needs, and hands them
// to the worker with the answer.
func (c *conductor) resolve(w *worker, m *attach.Message) error {
	if w.role != attach.RoleClient || m.Target == nil {
		return fmt.Errorf("%w: a malformed resolve message", attach.ErrInvalid)
	}
	t := *m.Target
	if err := errors.Join(attach.CheckName(t.Service), attach.CheckName(t.Method)); err != nil {
		return fmt.Errorf("%w: %w", attach.ErrInvalid, err)
	}
	wait := c.cfg.Limits.ConnectWait
	if t.WaitMillis > 0 {
		wait = min(wait, time.Duration(min(t.WaitMillis, int64(time.Hour/time.Millisecond)))*time.Millisecond)
	}
	ctx, cancel := context.WithTimeout(c.ctx, wait+openTimeout)
	defer cancel()
	found, lanes, err := c.findLanes(ctx, w.domain, t, wait)
	if err != nil {
		return err
	}
	route := &attach.Route{Node: found.node, Method: found.id, Answer: found.answer}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, l := range lanes {
		w.giveLocked(l)
		route.Lanes = append(route.Lanes, l.ID)
	}
	if err := w.conn.Send(&attach.Message{Type: attach.TypeResolved, Seq: m.Seq, Route: route}); err != nil {
		c.log.Debug().Err(err).Int("worker", w.id).Msg("route not sent")
	}
	return nil
}

// findLanes finds a target and the lanes to it. It looks again when the connection
// to the place ended while the lanes were being opened.
func (c *conductor) findLanes(ctx context.Context, d *domain, t attach.Target, wait time.Duration) (place, []*laneInfo, error) {
	for {
		p, err := c.find(ctx, d, t, wait)
		if err != nil {
			return p, nil, err
		}
		lanes, err := c.lanesTo(ctx, d, p)
		if err == nil {
			return p, lanes, nil
		}
		if p.session == nil || p.session.reason() == nil || ctx.Err() != nil {
			if !errors.Is(err, attach.ErrLimit) {
				err = fmt.Errorf("%w: %w", attach.ErrNoService, err)
			}
			return p, nil, err
		}
	}
}

// place is where a method is served.
type place struct {
	node    string
	session *session // nil for this node
	id      uint32
	answer  int
}

// find looks a target up in the directory. It waits for a configured peer that
// is not connected, but not for a service on one that is.
func (c *conductor) find(ctx context.Context, d *domain, t attach.Target, wait time.Duration) (place, error) {
	timeout := time.NewTimer(wait)
	defer timeout.Stop()
	for {
		c.mu.Lock()
		p, retry, err := c.lookup(d, t)
		changed := c.changed
		c.mu.Unlock()
		if err == nil || !retry {
			return p, err
		}
		select {
		case <-changed:
		case <-timeout.C:
			return place{}, err
		case <-ctx.Done():
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
	if t.Node == "" || t.Node == c.node {
		if m := d.methods[key]; m != nil && len(m.workers) > 0 {
			return place{node: c.node, id: m.id, answer: m.answer}, false, nil
		}
		if t.Node != "" {
			return p, false, fmt.Errorf("%w: nobody on node %s serves %s/%s in domain %s", attach.ErrNoService, c.node, t.Service, t.Method, d.name)
		}
	}
	if t.Node != "" {
		l := c.links[t.Node]
		if l == nil {
			return p, false, fmt.Errorf("%w: node %q is not this node (%s) and not a [[peer]] of it", attach.ErrNoService, printable(t.Node), c.node)
		}
		return l.lookup(d, key)
	}
	err = fmt.Errorf("%w: no connected node serves %s/%s in domain %s", attach.ErrNoService, t.Service, t.Method, d.name)
	for _, l := range c.links {
		q, again, lerr := l.lookup(d, key)
		if lerr == nil {
			return q, false, nil
		}
		retry = retry || again
	}
	return p, retry, err
}
