package server

import (
	"slices"
	"sync/atomic"

	"github.com/rdmad/rdmad/slots"
)

// mapped is the ring of a lane whose memory this process has mapped.
type mapped struct {
	*slots.Ring
	// kept are picked requests that are to be answered by another goroutine than the worker
	// that has picked them, and retired says that the memory is to go. Both are looked at
	// by who changes the other, so that the last of the requests or whenQuiet unmaps.
	kept    atomic.Int64
	retired atomic.Bool
}

// retiredLane is the memory of a lane that is to be unmapped.
type retiredLane struct {
	ring  *mapped
	unmap func()
	// users are the batches with hints of the lane that were under way when it was taken out of the server's table.
	users []batchUse
}

// batchUse is a batch before its worker takes more.
type batchUse struct {
	b    *batch
	turn uint64
}

// keep has the memory of a request's lane last beyond the worker that has picked it. A drop
// must follow.
func (p *pool) keep(r *mapped) { r.kept.Add(1) }

// drop ends a keep.
func (p *pool) drop(r *mapped) {
	if r.kept.Add(-1) == 0 && r.retired.Load() {
		p.mu.Lock()
		p.unmapRetired()
		p.mu.Unlock()
	}
}

// whenQuiet calls unmap, now or later, when no worker can be looking at the lane with that id, which is not in the server's
// table any more, and none of its requests is kept. Whatever handlers do that came by other lanes, it does not wait for them.
func (p *pool) whenQuiet(id uint16, r *mapped, unmap func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	retired := retiredLane{ring: r, unmap: unmap}
	for _, b := range p.batches {
		// A worker looks at what its hints name. What it takes from now on is not in the table.
		if slices.ContainsFunc(b.hints[:b.n], func(h slots.Hint) bool { return h.Lane() == id }) {
			retired.users = append(retired.users, batchUse{b, b.turn})
		}
	}
	p.retired = append(p.retired, retired)
	r.retired.Store(true)
	p.unmapRetired()
}

// unmapRetired runs with mu held.
func (p *pool) unmapRetired() {
	if len(p.retired) == 0 || p.relieving {
		return
	}
	p.retired = slices.DeleteFunc(p.retired, func(r retiredLane) bool {
		if r.ring.kept.Load() > 0 || slices.ContainsFunc(r.users, func(u batchUse) bool { return u.b.turn == u.turn }) {
			return false
		}
		r.unmap()
		return true
	})
}
