package daemon

import (
	"context"
	"fmt"
	"slices"

	"github.com/rdmad/rdmad/internal/attach"
	"github.com/rdmad/rdmad/internal/event"
	"github.com/rdmad/rdmad/internal/faultpoint"
	"github.com/rdmad/rdmad/shm"
)

// adoptRegions makes the regions that were there when the last core ended, after their
// owners, and returns those that were free already.
func (d *domain) adoptRegions(left []leftover[regionMeta]) (freed []*region) {
	c := d.conductor
	for i := range left {
		r, err := d.adoptRegion(&left[i])
		if err != nil {
			event.RegionNotAdopted.On(&c.log).Err(err).Str("domain", d.name).Int("region", left[i].n).Msg("region not adopted")
			c.keepNoMore(left[i].item.Key)
			continue
		}
		if r.freeing {
			freed = append(freed, r)
		}
	}
	c.mu.Lock()
	for i := 1; i < len(d.regions.list); i++ {
		if d.regions.list[i] == nil {
			d.regions.free = append(d.regions.free, uint32(i))
		}
	}
	c.mu.Unlock()
	return freed
}

func (d *domain) adoptRegion(l *leftover[regionMeta]) (*region, error) {
	c, m := d.conductor, &l.meta
	w := d.workers[m.Owner]
	if w == nil || l.n < 1 || l.n > maxRegions || m.Size < 1 || m.Generation == 0 || m.Generation > d.regions.lastGeneration || m.Want < 1 || m.Want > int64(m.Size) {
		return nil, fmt.Errorf("%w: region %d of worker %d, %d bytes", errKept, l.n, m.Owner, m.Size)
	}
	c.mu.Lock()
	err := c.roomToAdopt()
	c.mu.Unlock()
	if err != nil {
		return nil, err
	}
	seg, err := shm.Adopt(take(l.item, 0), shm.HeaderSize+m.Size)
	if err != nil {
		return nil, err
	}
	r := &region{domain: d, owner: w, regionMemory: regionMemory{size: m.Size, charged: chargeFor(m.Size, len(seg.Bytes()))}, want: m.Want, seq: m.Seq, adopted: true, seg: seg, freeing: m.Freed}
	r.owned, r.disown = context.WithCancel(c.ctx)
	c.mu.Lock()
	r.view = d.newRegionView(r, d.regions.restore(r, uint32(l.n), m.Generation))
	w.regions.bytes += r.charged
	w.regions.count++
	d.regions.count++
	c.mu.Unlock()
	d.agent.Commands.Call(func() { d.view.AddRegion(r.view) })
	faultpoint.Here("adopt.region")
	return r, nil
}

// freeUntold frees the regions of an adopted worker that it does not know of: it has
// freed them, and the last core had no time to, or it was never told of them and does
// not ask any more. Those that this core has made are none: the worker may have asked after
// it had put together what it has, and before it said so.
func (c *conductor) freeUntold(w *worker, h *attach.Have) {
	if !h.AllRegions {
		return
	}
	known := make(map[attach.RegionInfo]bool)
	for _, r := range h.Regions {
		known[attach.RegionInfo{Index: r.Index, Generation: r.Generation}] = true
	}
	c.mu.Lock()
	var free []*region
	for r := range w.regions.own {
		if r.adopted && !known[*attach.InfoOf(r.view.ID)] && !slices.Contains(h.Asking, r.seq) {
			free = append(free, r)
		}
	}
	c.mu.Unlock()
	for _, r := range free {
		r.free()
	}
}
