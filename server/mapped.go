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

// whenQuiet calls unmap, now or later, at an instant at which no worker handles a hint and
// none of the lane's requests is kept: what is not in the server's table of lanes then is not
// used any more.
func (p *pool) whenQuiet(r *mapped, unmap func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.retired = append(p.retired, retiredLane{r, unmap})
	r.retired.Store(true)
	p.unmapRetired()
}

// unmapRetired runs with mu held.
func (p *pool) unmapRetired() {
	if len(p.retired) == 0 || p.serving > 0 || p.relieving {
		return
	}
	p.retired = slices.DeleteFunc(p.retired, func(r retiredLane) bool {
		if r.ring.kept.Load() > 0 {
			return false
		}
		r.unmap()
		return true
	})
}
