package fabrictest

import (
	"math/rand/v2"
	"slices"

	"github.com/rdmad/rdmad/internal/fabric"
	"github.com/rdmad/rdmad/internal/poller"
)

// Plan says which faults a Faulty provider injects. The zero Plan has none.
type Plan struct {
	// Delay is the probability, below 1, that a Poll keeps what it has for a
	// later one.
	Delay float64
	// QueueFull is the probability, below 1, that a PostSend takes only some
	// of its work requests, or none, and returns ErrQueueFull.
	QueueFull float64
	// DisconnectAfter ends the connection of each endpoint that posts that
	// many work requests: the last one is taken and does not complete well.
	// 0 means never.
	DisconnectAfter int
	// HalfWrite lets the first half of that last work request, if it is a
	// write, land on the peer, without its immediate.
	HalfWrite bool
	// DropCompletions loses the good completions that were not polled before
	// the disconnect: work that was done is reported as flushed.
	DropCompletions bool
}

// halfID is the ID of a half-landed write; its completion is nobody's.
const halfID = ^uint64(0)

// Faulty wraps a provider and injects the faults of plan, the same ones for the
// same seed and the same calls: every endpoint draws from the seed and its Tag,
// every queue from the seed and the order of creation. Delayed completions keep
// their order. Regions are the inner provider's.
func Faulty(inner fabric.Provider, seed uint64, plan Plan) fabric.Provider {
	return &faultyProvider{Provider: inner, seed: seed, plan: plan}
}

type faultyProvider struct {
	fabric.Provider
	seed uint64
	plan Plan
}

// Open implements fabric.Provider.
func (p *faultyProvider) Open(o fabric.Options) (fabric.Device, error) {
	d, err := p.Provider.Open(o)
	if err != nil {
		return nil, err
	}
	return &faultyDevice{Device: d, p: p}, nil
}

type faultyDevice struct {
	fabric.Device
	p      *faultyProvider
	queues uint64
}

// CreateCQ implements fabric.Device.
func (d *faultyDevice) CreateCQ(depth int, p *poller.Poller) (fabric.CQ, error) {
	q, err := d.Device.CreateCQ(depth, p)
	if err != nil {
		return nil, err
	}
	d.queues++
	return &faultyCQ{
		CQ: q, plan: d.p.plan, rand: rand.New(rand.NewPCG(d.p.seed, d.queues)),
		cut: make(map[uint64]*faultyEndpoint),
	}, nil
}

// AllocPD implements fabric.Device.
func (d *faultyDevice) AllocPD() (fabric.ProtectionDomain, error) {
	pd, err := d.Device.AllocPD()
	if err != nil {
		return nil, err
	}
	return &faultyPD{ProtectionDomain: pd, p: d.p}, nil
}

type faultyPD struct {
	fabric.ProtectionDomain
	p *faultyProvider
}

// CreateEndpoint implements fabric.ProtectionDomain.
func (d *faultyPD) CreateEndpoint(a fabric.EndpointAttr) (fabric.Endpoint, error) {
	q, ok := a.CQ.(*faultyCQ)
	if !ok || q == nil {
		return nil, fabric.ErrInvalid
	}
	a.CQ = q.CQ
	e, err := d.ProtectionDomain.CreateEndpoint(a)
	if err != nil {
		return nil, err
	}
	return &faultyEndpoint{
		Endpoint: e, cq: q, tag: a.Tag, plan: d.p.plan,
		rand: rand.New(rand.NewPCG(d.p.seed, ^a.Tag)),
	}, nil
}

// faultyCQ delays completions and adds those of injected disconnects.
type faultyCQ struct {
	fabric.CQ
	plan Plan
	rand *rand.Rand
	// held are completions that the caller has not seen.
	held []fabric.Completion
	// cut are the endpoints whose connection was ended, by tag; ending are
	// those of them whose end is not in held yet.
	cut    map[uint64]*faultyEndpoint
	ending []*faultyEndpoint
	// nudge keeps the caller from sleeping once: it may wait for room in a
	// queue that is not really full.
	nudge bool
}

// Poll implements fabric.CQ.
func (q *faultyCQ) Poll(c []fabric.Completion) (int, error) {
	if len(c) == 0 {
		return q.CQ.Poll(c)
	}
	if err := q.fetch(len(c)); err != nil {
		return 0, err
	}
	if q.plan.Delay > 0 && q.rand.Float64() < q.plan.Delay {
		return 0, nil
	}
	n := copy(c, q.held)
	q.held = slices.Delete(q.held, 0, n)
	return n, nil
}

// fetch moves completions of the inner queue to held.
func (q *faultyCQ) fetch(limit int) error {
	buf := make([]fabric.Completion, limit)
	n, err := q.CQ.Poll(buf)
	if err != nil {
		return err
	}
	for _, c := range buf[:n] {
		if e := q.cut[c.Tag]; e != nil {
			if c.ID == halfID || c.Op == fabric.OpDisconnect {
				continue
			}
			c = q.lose(c)
		}
		q.held = append(q.held, c)
	}
	if n == limit {
		return nil
	}
	// All that the ended connections had to say has been fetched.
	for _, e := range q.ending {
		q.held = append(q.held, e.last, fabric.Completion{Tag: e.tag, Op: fabric.OpDisconnect, Status: fabric.StatusFlushed})
	}
	q.ending = nil
	return nil
}

// lose turns a good completion into a flushed one if the plan says so.
func (q *faultyCQ) lose(c fabric.Completion) fabric.Completion {
	if !q.plan.DropCompletions || c.Status != fabric.StatusSuccess {
		return c
	}
	if c.Op == fabric.OpRecvImm {
		c.Op = fabric.OpRecv
	}
	c.Status, c.Imm, c.Len = fabric.StatusFlushed, 0, 0
	return c
}

// Arm implements fabric.CQ.
func (q *faultyCQ) Arm() (bool, error) {
	armed, err := q.CQ.Arm()
	if len(q.held) > 0 || len(q.ending) > 0 || q.nudge {
		q.nudge, armed = false, false
	}
	return armed, err
}

// faultyEndpoint counts work requests and ends its connection.
type faultyEndpoint struct {
	fabric.Endpoint
	cq     *faultyCQ
	tag    uint64
	plan   Plan
	rand   *rand.Rand
	posted int
	dead   bool
	closed bool
	// last is the completion of the work request that ended the connection.
	last fabric.Completion
}

// PostSend implements fabric.Endpoint.
func (e *faultyEndpoint) PostSend(wrs []fabric.SendWR) (int, error) {
	if e.dead || e.closed {
		return 0, fabric.ErrClosed
	}
	var full error
	if len(wrs) > 0 && e.plan.QueueFull > 0 && e.rand.Float64() < e.plan.QueueFull {
		wrs = wrs[:e.rand.IntN(len(wrs))]
		full = fabric.ErrQueueFull
		e.cq.nudge = true
	}
	if limit := e.plan.DisconnectAfter; limit > 0 && e.posted+len(wrs) >= limit {
		before := limit - e.posted - 1
		n, err := e.Endpoint.PostSend(wrs[:before])
		e.posted += n
		if err != nil {
			return n, err
		}
		return n + 1, e.disconnect(wrs[n])
	}
	n, err := e.Endpoint.PostSend(wrs)
	e.posted += n
	if err == nil {
		err = full
	}
	return n, err
}

// disconnect takes w as the connection's last work request.
func (e *faultyEndpoint) disconnect(w fabric.SendWR) error {
	e.dead = true
	e.last = fabric.Completion{Tag: e.tag, ID: w.ID, Op: w.Op, Status: fabric.StatusFlushed}
	if e.plan.HalfWrite && (w.Op == fabric.OpWrite || w.Op == fabric.OpWriteImm) {
		w.ID, w.Op, w.Flags = halfID, fabric.OpWrite, w.Flags&fabric.FlagInline
		w.Local.Len /= 2
		// It is as good if it does not land: the connection ends anyway.
		_, _ = e.Endpoint.PostSend([]fabric.SendWR{w})
	}
	e.cq.cut[e.tag] = e
	e.cq.ending = append(e.cq.ending, e)
	for i, c := range e.cq.held {
		if c.Tag == e.tag {
			e.cq.held[i] = e.cq.lose(c)
		}
	}
	return e.Endpoint.Close()
}

// PostRecv implements fabric.Endpoint.
func (e *faultyEndpoint) PostRecv(wrs []fabric.RecvWR) (int, error) {
	if e.dead || e.closed {
		return 0, fabric.ErrClosed
	}
	return e.Endpoint.PostRecv(wrs)
}

// Close implements fabric.Endpoint.
func (e *faultyEndpoint) Close() error {
	e.closed = true
	return e.Endpoint.Close()
}
