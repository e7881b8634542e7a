package server

import (
	"sync"

	"github.com/rdmad/rdmad/slots"
)

// Rights are what a handler may do with a region that its request refers to.
type Rights = slots.Rights

const (
	// MayWrite lets the handler write.
	MayWrite Rights = slots.RightWrite
	// MayRead lets the handler read.
	MayRead Rights = slots.RightRead
	// MayAtomic lets the handler compare and swap, and fetch and add.
	MayAtomic Rights = slots.RightAtomic
)

// RemoteRegion is a part of a region of the caller, which the handler can operate on
// until it returns. Operations block until they are done: when one returns without an
// error, the caller's memory has changed, or the local memory has. They are not
// ordered among each other. The methods are safe for concurrent use; an operation
// that another goroutine has begun when the handler returns is waited for, one that
// begins later fails with ErrExpired. Each error is a *RegionError, which tells what was
// to be where; errors.Is says why. The zero RemoteRegion has no bytes and no rights.
type RemoteRegion struct {
	call  *Call
	epoch uint64
	index uint8
	ref   slots.Ref
}

// callRegions are the regions of the request that a Call stands for at the moment.
type callRegions struct {
	mu   sync.Mutex
	gone sync.Cond // busy is 0
	// epoch tells the calls apart for which the same memory is used.
	epoch uint64
	open  bool
	busy  int
	n     int
	refs  [slots.MaxRefs]slots.Ref
}

// openRegions takes note of the request's regions, whose bytes the answer may
// overwrite. What is wrong with a reference the daemon has seen, and will see again.
func (c *Call) openRegions() {
	r := &c.regions
	p := c.ring.Payload(c.run)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.gone.L = &r.mu
	r.epoch++
	r.open, r.n = true, int(c.header.Refs)
	for i := range r.n {
		if !r.refs[i].Decode(p[i*slots.RefSize:]) {
			r.refs[i] = slots.Ref{}
		}
	}
}

// closeRegions makes operations fail and waits for those that are under way.
func (c *Call) closeRegions() {
	r := &c.regions
	r.mu.Lock()
	defer r.mu.Unlock()
	r.open, r.n = false, 0
	for r.busy > 0 {
		r.gone.Wait()
	}
}

// NumRegions returns how many regions the request refers to.
func (c *Call) NumRegions() int { return c.regions.n }

// Region returns the i-th region that the request refers to, from 0 on. It is the
// zero RemoteRegion if there is none.
func (c *Call) Region(i int) RemoteRegion {
	if i < 0 || i >= c.regions.n {
		return RemoteRegion{}
	}
	return RemoteRegion{call: c, epoch: c.regions.epoch, index: uint8(i), ref: c.regions.refs[i]}
}

// Regions returns all regions that the request refers to, in a new slice; see Region,
// which allocates nothing.
func (c *Call) Regions() []RemoteRegion {
	rs := make([]RemoteRegion, c.regions.n)
	for i := range rs {
		rs[i] = c.Region(i)
	}
	return rs
}

// Len returns the size in bytes.
func (r RemoteRegion) Len() int { return int(r.ref.Length) }

// Rights returns what the handler may do.
func (r RemoteRegion) Rights() Rights { return r.ref.Rights }

// begin checks an operation and counts it; end must follow unless it fails. It also
// prepares what all operations have in common.
func (r RemoteRegion) begin(kind slots.OpKind, right slots.Rights, off int64, n int) (q *opQueue, o slots.Op, err error) {
	switch {
	case r.ref.Rights&right == 0:
		return nil, o, ErrNotPermitted
	case off < 0 || !slots.Inside(uint64(off), uint64(n), r.ref.Length):
		return nil, o, ErrOutOfBounds
	}
	c := r.call
	c.regions.mu.Lock()
	defer c.regions.mu.Unlock()
	if !c.regions.open || c.regions.epoch != r.epoch {
		return nil, o, ErrExpired
	}
	c.regions.busy++
	return &c.server.ops, slots.Op{
		Kind: kind, Ref: r.index, Lane: c.lane, Slot: uint32(c.run.Index), Ticket: c.run.Ticket, Offset: uint64(off), Length: uint64(n),
	}, nil
}

// failed is the error of an operation on n bytes at off.
func (r RemoteRegion) failed(op string, off int64, n int, err error) error {
	return &RegionError{Op: op, Off: off, Len: n, Size: r.Len(), Err: err}
}

func (r RemoteRegion) end() {
	g := &r.call.regions
	g.mu.Lock()
	if g.busy--; g.busy == 0 {
		g.gone.Broadcast()
	}
	g.mu.Unlock()
}

// CompareAndSwap stores new in the 8 bytes at off if they are old, and returns what
// they were: it has stored new if that is old. The bytes are a number in the byte
// order of the machines; their place in the region must be a multiple of 8.
func (r RemoteRegion) CompareAndSwap(off int64, old, new uint64) (found uint64, err error) {
	return r.atomic("compare and swap", slots.OpCompareSwap, off, old, new)
}

// FetchAdd adds delta to the 8 bytes at off and returns what they were; see
// CompareAndSwap. The sum wraps around.
func (r RemoteRegion) FetchAdd(off int64, delta uint64) (old uint64, err error) {
	return r.atomic("fetch and add", slots.OpFetchAdd, off, 0, delta)
}

func (r RemoteRegion) atomic(what string, kind slots.OpKind, off int64, compare, swap uint64) (uint64, error) {
	q, o, err := r.begin(kind, slots.RightAtomic, off, slots.AtomicSize)
	if err != nil {
		return 0, r.failed(what, off, slots.AtomicSize, err)
	}
	defer r.end()
	o.Compare, o.Swap = compare, swap
	res, err := q.run(&o)
	if err == nil {
		err = opError(res.Status)
	}
	if err != nil {
		return 0, r.failed(what, off, slots.AtomicSize, err)
	}
	return res.Value, nil
}

// WriteFrom writes the bytes of src, a part of a region of this server, to the region
// at off, without a copy.
func (r RemoteRegion) WriteFrom(src RegionRef, off int64) error {
	return r.direct("write", slots.OpWrite, slots.RightWrite, src, off)
}

// ReadInto reads as many bytes of the region at off as dst has, a part of a region of
// this server, without a copy.
func (r RemoteRegion) ReadInto(dst RegionRef, off int64) error {
	return r.direct("read", slots.OpRead, slots.RightRead, dst, off)
}

func (r RemoteRegion) direct(what string, kind slots.OpKind, right slots.Rights, local RegionRef, off int64) error {
	if local.region == nil {
		return r.failed(what, off, 0, ErrInvalid)
	}
	q, o, err := r.begin(kind, right, off, int(local.n))
	if err != nil {
		return r.failed(what, off, local.Len(), err)
	}
	defer r.end()
	if !local.region.Of(r.call.server.session) {
		return r.failed(what, off, local.Len(), ErrNotPermitted) // its name may be that of another one here
	}
	o.Local, o.LocalOffset = local.region.ID(), local.off
	res, err := q.run(&o)
	if err == nil {
		err = opError(res.Status)
	}
	if err != nil {
		return r.failed(what, off, local.Len(), err)
	}
	return nil
}
