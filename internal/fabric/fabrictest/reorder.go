package fabrictest

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"

	"github.com/rdmad/rdmad/internal/fabric"
	"github.com/rdmad/rdmad/internal/poller"
)

// Reorder wraps a provider so that writes and reads are carried out in an order that follows
// from a seed: those of one PostSend, and those of several, up to whatever a later Poll
// lets go. Sends keep their order among each other, and so do atomics. Completions come in
// posting order, each when everything up to its work request is done: what a fabric without
// OrderedWrites promises and no more.
type Reorder struct {
	fabric.Provider
	seed uint64
}

// NewReorder wraps p.
func NewReorder(p fabric.Provider, seed uint64) *Reorder { return &Reorder{p, seed} }

// Open opens a device of the wrapped provider.
func (r *Reorder) Open(o fabric.Options) (fabric.Device, error) {
	d, err := r.Provider.Open(o)
	if err != nil {
		return nil, err
	}
	r.seed++
	return &reorderDevice{Device: d, seed: r.seed}, nil
}

type reorderDevice struct {
	fabric.Device
	seed uint64
}

// Caps implements fabric.Device.
func (d *reorderDevice) Caps() fabric.Caps {
	c := d.Device.Caps()
	c.OrderedWrites = false
	return c
}

// AllocPD implements fabric.Device.
func (d *reorderDevice) AllocPD() (fabric.ProtectionDomain, error) {
	pd, err := d.Device.AllocPD()
	if err != nil {
		return nil, err
	}
	return &reorderPD{pd}, nil
}

// CreateCQ implements fabric.Device.
func (d *reorderDevice) CreateCQ(depth int, p *poller.Poller) (fabric.CQ, error) {
	q, err := d.Device.CreateCQ(depth, p)
	if err != nil {
		return nil, err
	}
	return &reorderCQ{CQ: q, r: rand.New(rand.NewPCG(d.seed, 7)), ends: map[uint64]*reorderEndpoint{}}, nil
}

type reorderPD struct{ fabric.ProtectionDomain }

// CreateEndpoint implements fabric.ProtectionDomain.
func (p *reorderPD) CreateEndpoint(a fabric.EndpointAttr) (fabric.Endpoint, error) {
	q, ok := a.CQ.(*reorderCQ)
	if !ok {
		return nil, fabric.ErrInvalid
	}
	a.CQ = q.CQ
	ep, err := p.ProtectionDomain.CreateEndpoint(a)
	if err != nil {
		return nil, err
	}
	return &reorderEndpoint{Endpoint: ep, cq: q, tag: a.Tag, depth: a.SendDepth}, nil
}

// reorderCQ belongs to its owner like what it wraps.
type reorderCQ struct {
	fabric.CQ
	r     *rand.Rand
	ends  map[uint64]*reorderEndpoint // that have posted, by tag
	order []*reorderEndpoint          // the same, in the order of their first posts
	ready []fabric.Completion
}

// reorderWR is a work request that has been taken.
type reorderWR struct {
	fabric.SendWR
	posted, done bool
	result       fabric.Completion
}

// reorderEndpoint holds work requests back.
type reorderEndpoint struct {
	fabric.Endpoint
	cq    *reorderCQ
	tag   uint64
	depth int
	// wrs are those that are not reported, in posting order; first is the number of the
	// first of them.
	wrs    []*reorderWR
	first  uint64
	failed error
}

// Connect implements fabric.Endpoint.
func (e *reorderEndpoint) Connect(ctx context.Context, peer []byte, role fabric.Role) error {
	return e.Endpoint.Connect(ctx, peer, role)
}

// Explain implements fabric.Explainer.
func (e *reorderEndpoint) Explain(c fabric.Completion) error {
	if x, ok := e.Endpoint.(fabric.Explainer); ok {
		return x.Explain(c)
	}
	return c.Status.Err()
}

// PostSend implements fabric.Endpoint. What is wrong is found out by posting it at once.
func (e *reorderEndpoint) PostSend(wrs []fabric.SendWR) (int, error) {
	if e.failed != nil {
		return 0, e.failed
	}
	if e.cq.ends[e.tag] == nil {
		e.cq.ends[e.tag] = e
		e.cq.order = append(e.cq.order, e)
	}
	for i := range wrs {
		if len(e.wrs) == e.depth {
			return i, fabric.ErrQueueFull
		}
		w := &reorderWR{SendWR: wrs[i]}
		e.wrs = append(e.wrs, w)
		hold := e.cq.r.IntN(3) > 0 && w.Flags&fabric.FlagInline == 0 && movable(w.Op) && e.sane(w)
		if hold {
			continue
		}
		err := e.post(w)
		if errors.Is(err, fabric.ErrClosed) && i > 0 {
			continue // one before it has ended the connection, which flushes this one
		}
		if err != nil {
			e.wrs = e.wrs[:len(e.wrs)-1]
			return i, err
		}
	}
	return len(wrs), nil
}

// movable reports whether an operation has no order.
func movable(op fabric.Op) bool {
	return op == fabric.OpWrite || op == fabric.OpWriteImm || op == fabric.OpRead
}

// sane reports whether a work request is likely to be taken: its memory is there.
func (e *reorderEndpoint) sane(w *reorderWR) bool {
	l := &w.Local
	if l.Len == 0 {
		return true
	}
	return l.Region != nil && l.Offset <= uint64(len(l.Region.Bytes())) && uint64(l.Len) <= uint64(len(l.Region.Bytes()))-l.Offset && e.known(w)
}

// known reports whether the wrapped endpoint has taken a work request with the same region,
// so that holding one back hides no mistake of its caller.
func (e *reorderEndpoint) known(w *reorderWR) bool {
	return slices.ContainsFunc(e.wrs, func(o *reorderWR) bool { return o.posted && o.Local.Region == w.Local.Region })
}

// post hands a work request on, under its number, signaled.
func (e *reorderEndpoint) post(w *reorderWR) error {
	wr := w.SendWR
	wr.Flags |= fabric.FlagSignaled
	wr.ID = e.first + uint64(slices.Index(e.wrs, w))
	_, err := e.Endpoint.PostSend([]fabric.SendWR{wr})
	if err == nil {
		w.posted = true
	}
	return err
}

// letGo posts some of what is held back, or all of it, in any order.
func (e *reorderEndpoint) letGo(all bool) {
	var held []*reorderWR
	for _, w := range e.wrs {
		if !w.posted {
			held = append(held, w)
		}
	}
	e.cq.r.Shuffle(len(held), func(i, j int) { held[i], held[j] = held[j], held[i] })
	for _, w := range held {
		if !all && e.cq.r.IntN(2) == 0 {
			continue
		}
		if err := e.post(w); err != nil {
			return // no room, or the end: then a disconnect follows
		}
	}
}

// Poll implements fabric.CQ.
func (q *reorderCQ) Poll(c []fabric.Completion) (int, error) {
	if len(c) == 0 {
		return q.CQ.Poll(c)
	}
	for _, e := range q.order {
		e.letGo(false)
	}
	got := make([]fabric.Completion, len(c))
	n, err := q.CQ.Poll(got)
	for _, d := range got[:n] {
		q.translate(d)
	}
	k := copy(c, q.ready)
	q.ready = slices.Delete(q.ready, 0, k)
	return k, err
}

// translate handles a completion of the wrapped queue.
func (q *reorderCQ) translate(d fabric.Completion) {
	e := q.ends[d.Tag]
	if e == nil || d.Op == fabric.OpRecv || d.Op == fabric.OpRecvImm {
		if e != nil && d.Status != fabric.StatusSuccess {
			e.flush(d.Status == fabric.StatusFlushed)
		}
		q.ready = append(q.ready, d)
		return
	}
	if d.Op == fabric.OpDisconnect {
		e.flush(true)
		q.ready = append(q.ready, d)
		return
	}
	if at := d.ID - e.first; at < uint64(len(e.wrs)) {
		w := e.wrs[at]
		w.done, w.result = true, d
		w.result.ID = w.ID
	}
	e.retire()
}

// retire reports what is done, in order.
func (e *reorderEndpoint) retire() {
	for len(e.wrs) > 0 && e.wrs[0].done {
		w := e.wrs[0]
		e.wrs = e.wrs[1:]
		e.first++
		if w.Flags&fabric.FlagSignaled != 0 || w.result.Status != fabric.StatusSuccess {
			e.cq.ready = append(e.cq.ready, w.result)
		}
	}
}

// flush ends everything that is held back, if the connection has ended.
func (e *reorderEndpoint) flush(ended bool) {
	if !ended {
		return
	}
	e.failed = fabric.ErrClosed
	for _, w := range e.wrs {
		if !w.done {
			w.done = true
			w.result = fabric.Completion{Tag: e.tag, ID: w.ID, Op: w.Op, Status: fabric.StatusFlushed}
		}
	}
	e.retire()
}

// Close implements fabric.Endpoint.
func (e *reorderEndpoint) Close() error {
	err := e.Endpoint.Close()
	if e.cq.ends[e.tag] == e {
		for _, w := range e.wrs {
			if !w.posted {
				w.posted, w.done = true, true
				w.result = fabric.Completion{Tag: e.tag, ID: w.ID, Op: w.Op, Status: fabric.StatusFlushed}
			}
		}
		e.failed = fabric.ErrClosed
		e.retire()
	}
	return err
}

// Arm implements fabric.CQ. What is held back is let go before a sleep.
func (q *reorderCQ) Arm() (bool, error) {
	held := len(q.ready) > 0
	for _, e := range q.order {
		if e.failed == nil && slices.ContainsFunc(e.wrs, func(w *reorderWR) bool { return !w.posted }) {
			e.letGo(true)
			held = true
		}
	}
	if held {
		return false, nil
	}
	return q.CQ.Arm()
}

var (
	_ fabric.Provider  = (*Reorder)(nil)
	_ fabric.Explainer = (*reorderEndpoint)(nil)
)
