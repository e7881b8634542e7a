package client

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync/atomic"
	"time"

	"github.com/rdmad/rdmad/internal/attach"
	"github.com/rdmad/rdmad/shm"
	"github.com/rdmad/rdmad/slots"
)

// Method is a target that has been looked up: the quick way to call it often.
// Its methods are safe for concurrent use.
type Method struct {
	conn   *Conn
	target attach.Target
	name   string
	opts   callOptions
	route  *routeCell
}

// routeCell is shared by all variants of a method made by With.
type routeCell struct {
	p atomic.Pointer[route]
	// asking lets one goroutine at a time ask the daemon; the others take over
	// what it learns.
	asking chan struct{}
}

// route is where a method's requests go.
type route struct {
	method uint32
	answer int
	lanes  []*lane // smallest slots first
}

// Method looks target up: "node/service/method", or "service/method" for any
// node. The daemon opens lanes to the node if there are none; a node that is
// configured but not connected is waited for, within ctx and the daemon's own
// limit. Errors: ErrNoService, ErrInvalid, ErrClosed, ErrLimit or ctx's.
func (c *Conn) Method(ctx context.Context, target string) (*Method, error) {
	if m := (*c.methods.Load())[target]; m != nil {
		return m, nil
	}
	t, err := parseTarget(target)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	m := c.looked[target]
	if m == nil {
		m = &Method{conn: c, target: t, name: target, opts: callOptions{answer: -1}, route: &routeCell{asking: make(chan struct{}, 1)}}
		c.looked[target] = m
	}
	c.mu.Unlock()
	_, err = m.resolve(ctx, nil)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.looked[target] == m {
		delete(c.looked, target)
	}
	if err != nil {
		return nil, err
	}
	if have := (*c.methods.Load())[target]; have != nil {
		return have, nil
	}
	next := maps.Clone(*c.methods.Load())
	next[target] = m
	c.methods.Store(&next)
	return m, nil
}

// With returns a variant of the method with other options.
func (m *Method) With(opts ...CallOption) *Method {
	v := *m
	for _, f := range opts {
		f(&v.opts)
	}
	return &v
}

func parseTarget(s string) (attach.Target, error) {
	parts := strings.Split(s, "/")
	if len(parts) == 2 {
		parts = append([]string{""}, parts...)
	}
	if len(parts) != 3 {
		return attach.Target{}, fmt.Errorf("client: %w: target %q, want node/service/method or service/method", ErrInvalid, s)
	}
	t := attach.Target{Node: parts[0], Service: parts[1], Method: parts[2]}
	for _, name := range []string{t.Service, t.Method} {
		if err := attach.CheckName(name); err != nil {
			return t, fmt.Errorf("client: %w: target %q: %w", ErrInvalid, s, err)
		}
	}
	return t, nil
}

// resolve asks the daemon for the route and remembers it, unless another goroutine
// has found one that is not the stale one.
func (m *Method) resolve(ctx context.Context, stale *route) (*route, error) {
	select {
	case m.route.asking <- struct{}{}:
		defer func() { <-m.route.asking }()
	case <-ctx.Done():
		return nil, &DeadlineError{Target: m.name, Cause: ctx.Err()}
	}
	if r := m.route.p.Load(); r != nil && r != stale {
		return r, nil
	}
	t := m.target
	if d, ok := ctx.Deadline(); ok {
		t.WaitMillis = max(1, time.Until(d).Milliseconds())
	}
	a, err := m.conn.session.Ask(ctx, &attach.Message{Type: attach.TypeResolve, Target: &t})
	if err != nil {
		if ctx.Err() != nil {
			return nil, &DeadlineError{Target: m.name, Cause: ctx.Err()}
		}
		return nil, fmt.Errorf("client: %s: %w", m.name, err)
	}
	if a.Route == nil || len(a.Route.Lanes) == 0 {
		return nil, fmt.Errorf("client: %s: %w: an empty route", m.name, ErrInvalid)
	}
	r := &route{method: a.Route.Method, answer: a.Route.Answer}
	for _, id := range a.Route.Lanes {
		l := m.conn.lanes[int(id)%slots.MaxLanes].Load()
		if l == nil {
			return nil, fmt.Errorf("client: %s: %w: a route over unknown lane %d", m.name, ErrInvalid, id)
		}
		r.lanes = append(r.lanes, l)
	}
	m.route.p.Store(r)
	return r, nil
}

// preferredRun is how many slots of a small class a message may take before a
// class with larger slots is preferred.
const preferredRun = 8

// pick chooses the lane for a request of size bytes and the run and the answer
// capacity it needs there.
func (m *Method) pick(r *route, size int) (l *lane, run, answer int, err error) {
	answer = m.opts.answer
	if answer < 0 {
		answer = r.answer
	}
	if answer == attach.AnswerLikeRequest {
		answer = size
	}
	need, limit := max(size, answer), 0
	if c := r.lanes[0]; need <= c.single {
		return c, 1, answer, nil
	}
	for i, c := range r.lanes {
		g := c.ring.Geometry()
		limit = max(limit, g.MaxPayload())
		k := g.RunFor(need)
		if k > g.MaxRun || k > preferredRun && i < len(r.lanes)-1 && need <= r.lanes[i+1].ring.Geometry().MaxPayload() {
			continue
		}
		return c, k, answer, nil
	}
	what := "request"
	if size <= limit {
		what = "room for an answer"
	}
	return nil, 0, 0, &TooLargeError{Target: m.name, What: what, Size: need, Limit: limit}
}

// claim finds room for a request of size bytes and fills in d. It follows the
// method to a new route when the old one's lane is closed.
func (m *Method) claim(ctx context.Context, size int, d *draft) (err error) {
	if ctx.Err() != nil {
		return &DeadlineError{Target: m.name, Cause: context.Cause(ctx)}
	}
	r := m.route.p.Load()
	var l *lane
	var stale *route
	for range maxReroutes {
		var run, answer int
		if r == nil {
			if r, err = m.resolve(ctx, stale); err != nil {
				return err
			}
		}
		if l, run, answer, err = m.pick(r, size); err != nil {
			return err
		}
		if d.u, err = l.claim(ctx, run, m.opts.noWait); err == nil {
			d.l = l
			d.h.Ticket, d.h.Run, d.h.Length = d.u.Ticket, uint16(d.u.Len), uint32(size)
			d.h.Method, d.h.Answer = r.method, uint32(answer)
			if end, ok := ctx.Deadline(); ok {
				d.h.Deadline = shm.Nanotime() + int64(time.Until(end))
			}
			return nil
		}
		if !errors.Is(err, slots.ErrClosed) {
			break
		}
		r, stale = nil, r
	}
	if errors.Is(err, slots.ErrClosed) {
		err = fmt.Errorf("%w: the lane to %s is closed", ErrNotExecuted, l.peer)
	}
	if errors.Is(err, ErrDeadline) {
		return &DeadlineError{Target: m.name, Cause: err}
	}
	return fmt.Errorf("client: %s: %w", m.name, err)
}

// maxReroutes bounds how often a request follows a method whose lanes close
// under its hands.
const maxReroutes = 3
