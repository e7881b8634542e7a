package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/rdmad/rdmad/internal/attach"
	"github.com/rdmad/rdmad/internal/faultpoint"
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
	// asked counts the questions. Of the last one that the daemon has answered with
	// ErrNoService, refused has the number and the error; asking guards them.
	asked   atomic.Uint64
	refused struct {
		number uint64
		err    error
	}
}

// route is where a method's requests go.
type route struct {
	method uint32
	answer int
	// carries: something may go with a request.
	carries bool
	// largest is the most bytes of a message in slots.
	largest int
	sets    []*laneSet // smallest slots first
	// widest are the lanes that take the largest messages.
	widest *laneSet
	// reopened is when the daemon was last asked to open closed lanes, as of
	// shm.Nanotime.
	reopened atomic.Int64
	// looking: the way is about to be looked up again.
	looking atomic.Bool
}

// peer returns the node that it leads to.
func (r *route) peer() string { return r.sets[0].lanes[0].peer }

// Method looks target up: "node/service/method", or "service/method" for any
// node. The daemon opens lanes to the node if there are none; a node that is
// configured but not connected is waited for, within ctx and the daemon's own
// limit. Errors: ErrNoService, ErrInvalid, ErrClosed, ErrLimit or ctx's.
func (c *Conn) Method(ctx context.Context, target string) (*Method, error) {
	if m := (*c.methods.Load())[target]; m != nil {
		if c.ended.Load() {
			return nil, m.closed()
		}
		return m, nil
	}
	t, err := parseTarget(target)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	m := c.looked[target]
	if m == nil {
		m = &Method{conn: c, target: t, name: target, opts: callOptions{answer: -1, rendezvous: DefaultRendezvous}, route: &routeCell{asking: make(chan struct{}, 1)}}
		c.looked[target] = m
	}
	c.mu.Unlock()
	_, err = m.resolve(ctx, nil, preference{})
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
	v.opts.settle(m.conn.id)
	return &v
}

func parseTarget(s string) (attach.Target, error) {
	parts := strings.Split(s, "/")
	if len(parts) == 2 {
		parts = append([]string{""}, parts...)
	} else if parts[0] == "" {
		parts = nil // "/service/method" names no node, and says that it does
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

// preference says where a target without a node is to lead.
type preference struct {
	// avoid are nodes to which it leads only if no other serves it.
	avoid []string
	// stay: it leads where it has led so far, as long as the service is there.
	stay bool
}

// ask asks the daemon for the way to a target.
func (m *Method) ask(ctx context.Context, t attach.Target) (*attach.Message, error) {
	return m.conn.session.Ask(ctx, &attach.Message{Type: attach.TypeResolve, Target: &t})
}

// resolve asks the daemon for the route and remembers it, unless another goroutine
// has found one that is not the stale one.
func (m *Method) resolve(ctx context.Context, stale *route, p preference) (*route, error) {
	asked := m.route.asked.Load()
	select {
	case m.route.asking <- struct{}{}:
		defer func() { <-m.route.asking }()
	case <-ctx.Done():
		return nil, m.late(ctx, false)
	case <-m.conn.life.Done():
		return nil, m.closed()
	}
	if r := m.route.p.Load(); r != nil && r != stale {
		return r, nil
	}
	if last := &m.route.refused; last.number > asked {
		return nil, last.err // somebody has asked since, and waited for a node
	}
	number := m.route.asked.Add(1)
	t := m.target
	if t.Node == "" {
		t.Avoid = p.avoid
	}
	if d, ok := ctx.Deadline(); ok {
		t.WaitMillis = max(1, time.Until(d).Milliseconds())
	}
	faultpoint.Here("resolve.before")
	var a *attach.Message
	err := error(ErrNoService)
	if p.stay && t.Node == "" {
		here := t
		here.Node, here.WaitMillis = stale.peer(), 1
		a, err = m.ask(ctx, here)
	}
	if errors.Is(err, ErrNoService) {
		a, err = m.ask(ctx, t)
	}
	faultpoint.Here("resolve.after")
	if err != nil {
		if ctx.Err() != nil {
			return nil, m.late(ctx, false)
		}
		err = m.noWay(err)
		if end, ok := ctx.Deadline(); errors.Is(err, ErrNoService) && (!ok || time.Until(end) > ownLimit) {
			m.route.refused.number, m.route.refused.err = number, err
		}
		return nil, err
	}
	if a.Route == nil || len(a.Route.Lanes) == 0 {
		return nil, fmt.Errorf("client: %s: %w: an empty route", m.name, ErrInvalid)
	}
	r := &route{method: a.Route.Method, answer: a.Route.Answer, carries: a.Route.Carries}
	var lanes []*lane
	for _, id := range a.Route.Lanes {
		l := m.conn.lanes[int(id)%slots.MaxLanes].Load()
		if l == nil {
			return nil, fmt.Errorf("client: %s: %w: a route over unknown lane %d", m.name, ErrInvalid, id)
		}
		lanes = append(lanes, l)
	}
	r.sets = newLaneSets(lanes, a.Route.LeastOutstanding)
	r.widest = slices.MaxFunc(r.sets, func(a, b *laneSet) int { return cmp.Compare(a.geo.MaxPayload(), b.geo.MaxPayload()) })
	r.largest = r.widest.geo.MaxPayload()
	if stale != nil {
		r.reopened.Store(stale.reopened.Load())
	}
	m.route.p.Store(r)
	return r, nil
}

// deadline returns the end of ctx as a header has it: 0, which is never, if ctx has none, or one
// that nobody will see.
func deadline(ctx context.Context) int64 {
	end, ok := ctx.Deadline()
	if !ok {
		return 0
	}
	at, ok := shm.NanotimeOf(end)
	if !ok {
		return 0
	}
	return at
}

// ownLimit is how much earlier than a question's deadline a refusal comes that is not due to
// that, so that others who ask may take it over.
const ownLimit = 100 * time.Millisecond

// preferredRun is how many slots of a small class a message may take before a class with
// larger slots is preferred: every slot of a run costs a compare-and-swap, and what a message
// leaves free of a large slot is sent in vain when others follow it in a group. With slots of
// 128 bytes that is 1 KiB and what belongs to it.
const preferredRun = 12

// extra returns how many bytes a request of size bytes needs for what goes with it.
func (m *Method) extra(r *route, size int) int {
	if len(m.opts.carry) == 0 {
		return 0
	}
	limit := r.largest
	if m.opts.limited || m.opts.ordered {
		_, limit = m.fixed(r)
	}
	n := slots.CarrySize(len(m.opts.carry))
	if !r.carries || len(m.opts.carry) > MaxCarried || size > limit-n {
		return 0
	}
	return n
}

// pick chooses the lanes for a request of size bytes, with extra bytes that go with it, and
// the run and the answer capacity it needs there, which is none for a receipt.
func (m *Method) pick(r *route, size, extra int, receipt bool) (s *laneSet, run, answer int, err error) {
	answer = m.opts.answer
	if answer < 0 {
		answer = r.answer
	}
	switch {
	case receipt:
		answer = 0
	case answer == attach.AnswerLikeRequest:
		answer = size
	}
	if !m.opts.direct && !m.opts.limited && answer > r.largest {
		answer = min(partRoom, r.largest) // what does not fit is fetched
	}
	need, limit, remedy := max(size+extra, answer), 0, "see [[class]] in the daemon's configuration"
	if m.opts.limited || m.opts.ordered {
		if s, limit = m.fixed(r); m.opts.limited && limit == m.opts.within {
			remedy = "that is what client.Within says"
		}
		if need <= limit {
			return s, s.geo.RunFor(need), answer, nil
		}
	} else {
		if s := r.sets[0]; need <= s.single {
			return s, 1, answer, nil
		}
		limit = r.largest
		if s := r.setFor(need); s != nil {
			return s, s.geo.RunFor(need), answer, nil
		}
	}
	if size+extra <= limit {
		return nil, 0, 0, &TooLargeError{Target: m.name, What: "room for an answer", Size: answer, Limit: limit, remedy: remedy + "; client.AnswerSize asks for less"}
	}
	return nil, 0, 0, &TooLargeError{Target: m.name, What: "request", Size: size + extra, Limit: limit, remedy: remedy}
}

// setFor returns the lanes for messages of n bytes, or nil if that is too large.
func (r *route) setFor(n int) *laneSet {
	if n > r.largest {
		return nil
	}
	for i, s := range r.sets {
		k := s.geo.RunFor(n)
		if k > s.geo.MaxRun || k > preferredRun && i < len(r.sets)-1 && n <= r.sets[i+1].geo.MaxPayload() {
			continue
		}
		return s
	}
	return nil
}

// fixed returns the lanes for all requests of a method with Ordered or Within, and
// the largest message.
func (m *Method) fixed(r *route) (s *laneSet, limit int) {
	if m.opts.limited {
		if s := r.setFor(m.opts.within); s != nil {
			return s, m.opts.within
		}
	}
	return r.widest, r.widest.geo.MaxPayload()
}

// claim finds room for a request of size bytes and fills in d. It follows the
// method to a new route when the old one's lane is closed.
func (m *Method) claim(ctx context.Context, size int, d *draft) (err error) {
	if ctx.Err() != nil {
		return m.late(ctx, false)
	}
	r := m.route.p.Load()
	var stale *route
	for range maxReroutes {
		var run, answer, extra int
		var s *laneSet
		if r == nil {
			if r, err = m.resolve(ctx, stale, preference{}); err != nil {
				return err
			}
		}
		extra = m.extra(r, size)
		if s, run, answer, err = m.pick(r, size, extra, d.receipt); err != nil {
			return err
		}
		if err = m.claimIn(ctx, r, s, run, d); err == nil {
			d.route = r
			d.h.Ticket, d.h.Run, d.h.Length = d.u.Ticket, uint16(d.u.Len), uint32(size+extra)
			d.h.Method, d.h.Answer, d.h.Order = r.method, uint32(answer), m.opts.order
			if m.opts.direct {
				d.h.Flags |= slots.FlagInPlace
			}
			if d.extra = extra; extra > 0 {
				d.h.Flags |= slots.FlagCarry
				slots.PutCarried(d.l.ring.Payload(d.u)[size:], m.opts.carry)
			}
			faultpoint.Here("claim.held")
			d.h.From = uint16(m.conn.id)
			d.h.Deadline = deadline(ctx)
			return nil
		}
		if !errors.Is(err, slots.ErrClosed) {
			break
		}
		r, stale = nil, r
	}
	if errors.Is(err, slots.ErrClosed) {
		err = fmt.Errorf("%w: the lane to %s is closed", ErrNotExecuted, stale.peer())
	}
	if errors.Is(err, ErrDeadline) {
		late := m.late(ctx, false)
		late.Cause = &roomError{err, late.Cause}
		return late
	}
	return fmt.Errorf("client: %s: %w", m.name, err)
}

// claimIn claims a run in one of the lanes.
func (m *Method) claimIn(ctx context.Context, r *route, s *laneSet, run int, d *draft) (err error) {
	if m.conn.session.Rings.Tracing() && d.began == 0 {
		d.began = shm.Nanotime()
	}
	w := wish{run: run, noWait: m.opts.noWait, patient: d.patient}
	if len(s.lanes) == 1 || m.opts.pinned {
		if d.l = s.lanes[0]; len(s.lanes) > 1 {
			d.l = s.pinned(m.opts.pin)
		}
		d.u, err = d.l.claim(ctx, w)
		return err
	}
	closed := false
	if d.l, d.u, closed, err = s.claim(ctx, w); closed && err == nil {
		m.reopen(r)
	}
	return err
}

// reopenEvery is how often a method asks for lanes to be opened again while it can
// use others.
const reopenEvery = int64(100 * time.Millisecond)

// reopen has the daemon open lanes of a route that are closed, while others are used.
func (m *Method) reopen(r *route) {
	now, last := shm.Nanotime(), r.reopened.Load()
	if now-last < reopenEvery || !r.reopened.CompareAndSwap(last, now) {
		return
	}
	// It ends when the daemon answers, which takes it a bounded time, or with the
	// session. The lanes stay the same ones, so nothing waits for the new route.
	go func() { _, _ = m.resolve(context.Background(), r, preference{}) }()
}

const (
	// lookEvery is how long after a one-way message its way is looked up again, and lookLimit how long that may take: others
	// who look for the way wait meanwhile.
	lookEvery = time.Second
	lookLimit = 100 * time.Millisecond
)

// lookAgain has a route looked up again in a while, by which something was sent that says nothing of what has become of it: it may
// lead to nobody any more, or the method may have been declared anew. As long as its node has the service it stays the way:
// requests of an order, and what a service keeps of its callers, stay where they are.
func (m *Method) lookAgain(r *route) {
	if r.looking.Load() || !r.looking.CompareAndSwap(false, true) {
		return
	}
	time.AfterFunc(lookEvery, func() {
		if !m.conn.ended.Load() {
			ctx, cancel := context.WithTimeout(context.Background(), lookLimit)
			_, _ = m.resolve(ctx, r, preference{stay: true})
			cancel()
		}
		r.looking.Store(false) // if it is the route still
	})
}

// lost notes that a lane was closed under a request that is about to be sent again.
// The next claim looks for the way anew, unless other lanes are open.
func (m *Method) lost(l *lane) {
	if r := m.route.p.Load(); r != nil && slices.ContainsFunc(r.sets, func(s *laneSet) bool { return len(s.lanes) > 1 && slices.Contains(s.lanes, l) }) {
		return
	}
	m.route.p.Store(nil)
}

// maxReroutes bounds how often a request follows a method whose lanes close
// under its hands.
const maxReroutes = 3
