package daemon

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/rdmad/rdmad/internal/agent"
	"github.com/rdmad/rdmad/internal/attach"
	"github.com/rdmad/rdmad/internal/config"
	"github.com/rdmad/rdmad/internal/event"
	"github.com/rdmad/rdmad/internal/fabric"
	"github.com/rdmad/rdmad/shm"
	"github.com/rdmad/rdmad/slots"
)

// region is the conductor's side of a region: memory that a worker has asked for. It
// exists from the worker's question until the agent says that nothing needs it any
// more.
type region struct {
	domain *domain
	owner  *worker
	regionMemory
	seg  *shm.Segment
	view *agent.Region
	// want is how many bytes the worker has asked for, with the question seq.
	want int64
	seq  uint64
	// adopted: the last core has made it.
	adopted bool
	// owned ends with disown, when the owner is dead and its peers are being told to let go, or the region is gone.
	owned  context.Context
	disown context.CancelFunc

	// mu keeps release, after which the memory is not mapped any more, from what needs the region:
	// exports, which may wait for peers and do not wait for each other, and seg while its descriptor is sent.
	// Who comes later does not wait for it: see hold.
	mu sync.RWMutex
	// freeing: it was freed once; guarded by conductor.mu.
	freeing bool
}

// regionTable is the regions of a domain. Guarded by conductor.mu.
type regionTable struct {
	list []*region // by index; 0 is nobody's
	// count is how many there are, with those that are just being made.
	count int
	// generations are the last of each index, free the indices without a region.
	generations []uint32
	free        []uint32
	// base is the last generation of an index that is used for the first time, and
	// lastGeneration the greatest of all: what was before this core is not known, and
	// no id may come back.
	base, lastGeneration uint32
}

// maxRegions is the greatest index with which a region is taken over from the last core: the table becomes as long as
// that. Those of new regions are only as great as there are many at once.
const maxRegions = 1 << 24

// regionUse is what a worker has of regions. Guarded by conductor.mu.
type regionUse struct {
	bytes, count int
	// own are those that exist. Who needs a worker's does not look through the domain's, of which there may be very many: all
	// others wait for conductor.mu meanwhile.
	own map[*region]struct{}
	// freed is how many of them are free and still needed; changed is closed and
	// replaced when there is one less.
	freed   int
	changed chan struct{}
}

// allocTimeout bounds how long an alloc waits for regions that the worker has freed
// and whose last use is about to end.
const allocTimeout = time.Second

// alloc answers a worker's question for a region.
func (c *conductor) alloc(w *worker, m *attach.Message) error {
	if w.role == attach.RoleTool || m.Region == nil || m.Region.Size < 1 {
		return fmt.Errorf("%w: a malformed alloc message", attach.ErrInvalid)
	}
	if r := c.regionFor(w, m); r != nil {
		// The question of a worker that has seen a core die, who had done it.
		defer r.mu.RUnlock()
		c.sendRegion(r, m.Seq)
		return nil
	}
	if limit := int64(c.live().Limits.RegionBytes); m.Region.Size > limit {
		return fmt.Errorf("%w: a region of %d bytes, a process has at most %d (limits.region_bytes)", attach.ErrLimit, m.Region.Size, limit)
	}
	mem := memoryOf(int(m.Region.Size), c.live().Limits.RegionBytes, c.cfg.Memory.Hugepages)
	if err := c.reserve(w, mem.charged); err != nil {
		return err
	}
	r, err := c.newRegion(w, mem, m)
	if err != nil {
		c.unreserve(w, mem.charged)
		return err
	}
	defer r.mu.RUnlock()
	c.sendRegion(r, m.Seq)
	return nil
}

// sendRegion answers an alloc; r.mu is held for reading.
func (c *conductor) sendRegion(r *region, seq uint64) {
	id := attach.InfoOf(r.view.ID)
	id.Size = r.want
	if err := r.owner.conn.Hand(&attach.Message{Type: attach.TypeRegion, Seq: seq, Region: id}, r.seg.FD()); err != nil {
		c.log.Debug().Err(err).Int("worker", r.owner.id).Msg("region not sent")
		r.owner.untold(err) // it would wait for ever
	}
}

// regionFor returns the region that was made for a question, with mu held for reading, or nil. Only a worker that has seen a core die
// asks a question again.
func (c *conductor) regionFor(w *worker, m *attach.Message) *region {
	if !w.adopted || m.Seq == 0 {
		return nil
	}
	c.mu.Lock()
	var found *region
	for r := range w.regions.own {
		if r.seq == m.Seq && r.want == m.Region.Size && !r.freeing {
			found = r
		}
	}
	c.mu.Unlock()
	if found == nil || !found.hold() {
		return nil
	}
	return found
}

// hold locks mu for reading, unless the region was freed. It does not wait: the release has mu until every
// peer has given the region back, which is up to their handlers.
func (r *region) hold() bool {
	if !r.mu.TryRLock() {
		return false
	}
	c := r.domain.conductor
	c.mu.Lock()
	freeing := r.freeing
	c.mu.Unlock()
	if freeing {
		r.mu.RUnlock()
	}
	return !freeing
}

// reserve counts a region of size bytes among w's.
func (c *conductor) reserve(w *worker, size int) error {
	timeout := time.NewTimer(allocTimeout)
	defer timeout.Stop()
	for over := false; ; {
		c.mu.Lock()
		u, err := &w.regions, c.roomForRegion(w.domain)
		switch _, attached := c.attached[w]; {
		case !attached:
			err = fmt.Errorf("%w: worker %d has detached", attach.ErrClosed, w.id)
		case u.count >= c.live().Limits.RegionCount:
			err = fmt.Errorf("%w: the process has %d regions (limits.region_count)", attach.ErrLimit, u.count)
		case size > c.live().Limits.RegionBytes-u.bytes:
			err = fmt.Errorf("%w: the process has %d bytes in regions and wants %d more, of %d (limits.region_bytes)", attach.ErrLimit, u.bytes, size, c.live().Limits.RegionBytes)
		case err == nil:
			u.bytes += size
			u.count++
			w.domain.regions.count++
		}
		if u.changed == nil {
			u.changed = make(chan struct{})
		}
		changed, hope := u.changed, u.freed > 0
		c.mu.Unlock()
		if err == nil || !hope || over {
			return err
		}
		select {
		case <-changed:
		case <-timeout.C:
			over = true // unless there is room by now
		case <-c.ctx.Done():
			return err
		}
	}
}

// unreserve ends what reserve began.
func (c *conductor) unreserve(w *worker, size int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.unreserveLocked(w, size)
}

// unreserveLocked is unreserve for who holds c.mu.
func (c *conductor) unreserveLocked(w *worker, size int) {
	w.regions.bytes -= size
	w.regions.count--
	w.domain.regions.count--
	if w.regions.changed != nil {
		close(w.regions.changed)
	}
	w.regions.changed = make(chan struct{})
}

// newRegion makes a region, with mu held for reading, and makes the agent know it. From then on
// its worker, or the worker's death, can free it.
func (c *conductor) newRegion(w *worker, mem regionMemory, m *attach.Message) (*region, error) {
	d := w.domain
	seg, err := shm.Create(shm.CreateOptions{
		Name: "rdmad-region", Kind: shm.KindRegion, Size: shm.HeaderSize + mem.size, Hugepages: mem.pages,
		Available: leaving(config.LeftByRegions), HugeAvailable: leavingOf(hugePages, config.LeftByRegions),
	})
	if err != nil {
		return nil, withoutMemory(err)
	}
	r := &region{domain: d, owner: w, regionMemory: mem, want: m.Region.Size, seq: m.Seq, seg: seg}
	r.owned, r.disown = context.WithCancel(c.ctx)
	r.mu.RLock()
	c.mu.Lock()
	if _, attached := c.attached[w]; !attached || d.retired {
		c.mu.Unlock()
		r.disown()
		_ = seg.Close()
		return nil, fmt.Errorf("%w: worker %d has detached", attach.ErrClosed, w.id)
	}
	last := d.regions.lastGeneration
	r.view = d.newRegionView(r, d.regions.enter(r))
	if d.regions.lastGeneration != last {
		d.keepCounts()
	}
	c.keep(r.key(), r.meta(), seg.FD())
	c.mu.Unlock()
	d.agent.Commands.Call(func() { d.view.AddRegion(r.view) })
	return r, nil
}

func (d *domain) newRegionView(r *region, id slots.RegionID) *agent.Region {
	c := d.conductor
	return &agent.Region{
		ID: id, Owner: r.owner.id, Mem: r.seg.Bytes()[shm.HeaderSize : shm.HeaderSize+r.size],
		OnQuiet: func() { c.spawn(func() { c.release(r) }) },
	}
}

// grow makes room for n indices.
func (t *regionTable) grow(n int) {
	for len(t.list) < n {
		t.list, t.generations = append(t.list, nil), append(t.generations, t.base)
	}
}

// restore enters a region with the id that it had.
func (t *regionTable) restore(r *region, i, generation uint32) slots.RegionID {
	t.grow(int(i) + 1)
	t.list[i], t.generations[i] = r, generation
	r.owner.regions.add(r)
	return slots.MakeRegionID(i, generation)
}

// enter gives a region an id.
func (t *regionTable) enter(r *region) slots.RegionID {
	t.grow(1)
	var i uint32
	if n := len(t.free); n > 0 {
		i, t.free = t.free[n-1], t.free[:n-1]
	} else {
		i = uint32(len(t.list))
		t.grow(len(t.list) + 1)
	}
	t.list[i] = r
	r.owner.regions.add(r)
	t.generations[i]++
	t.lastGeneration = max(t.lastGeneration, t.generations[i])
	return slots.MakeRegionID(i, t.generations[i])
}

// remove ends what enter or restore began.
func (t *regionTable) remove(r *region) {
	i := r.view.ID.Index()
	t.list[i] = nil
	t.free = append(t.free, i)
	delete(r.owner.regions.own, r)
}

func (u *regionUse) add(r *region) {
	if u.own == nil {
		u.own = make(map[*region]struct{})
	}
	u.own[r] = struct{}{}
}

// find returns the region with the given id if w owns it, else nil.
func (t *regionTable) find(w *worker, id slots.RegionID) *region {
	if i := id.Index(); uint64(i) < uint64(len(t.list)) {
		if r := t.list[i]; r != nil && r.owner == w && t.generations[i] == id.Generation() {
			return r
		}
	}
	return nil
}

// free frees a region that its worker uses no more. One that is free, or was never
// the worker's, is not worth an error: the worker may have lost track.
func (c *conductor) free(w *worker, m *attach.Message) error {
	if w.role == attach.RoleTool || m.Region == nil {
		return fmt.Errorf("%w: a malformed free message", attach.ErrInvalid)
	}
	c.mu.Lock()
	r := w.domain.regions.find(w, m.Region.ID())
	c.mu.Unlock()
	if r != nil {
		r.free()
	}
	return nil
}

// free makes the region unusable; it is released when nothing needs it any more.
func (r *region) free() {
	c := r.domain.conductor
	c.mu.Lock()
	again := r.freeing
	r.freeing = true
	if !again {
		r.owner.regions.freed++
		if !r.domain.retired {
			c.keepChange(r.key(), r.meta())
		}
	}
	c.mu.Unlock()
	if !again {
		r.domain.agent.Commands.Call(r.view.Free)
	}
}

// freeRegions frees the regions of a worker that is gone.
func (c *conductor) freeRegions(w *worker) {
	c.mu.Lock()
	mine := slices.Collect(maps.Keys(w.regions.own))
	c.mu.Unlock()
	for _, r := range mine {
		r.free()
		d := r.domain
		d.agent.Commands.Call(func() { r.view.Revoke(d.view) })
	}
	// Peers that read slowly keep nobody from the process's id, nor each other from hearing of it. What was not said
	// when a region is released need not be.
	if len(mine) > 0 {
		for _, b := range w.domain.allBulks() {
			c.spawn(func() {
				for _, r := range mine {
					b.revoke(r)
				}
			})
		}
	}
	for _, r := range mine {
		r.disown()
	}
}

// allBulks returns the ways to operate on regions.
func (d *domain) allBulks() []*bulk {
	d.conductor.mu.Lock()
	defer d.conductor.mu.Unlock()
	return slices.Collect(maps.Values(d.bulks))
}

// release gives a region's memory back, when every peer that knows it has said that
// no handler can reach it any more, or has had the time to when the owner is dead.
func (c *conductor) release(r *region) {
	d := r.domain
	r.mu.Lock()
	defer r.mu.Unlock()
	var peers sync.WaitGroup
	bulks := d.allBulks()
	late := make([]*session, len(bulks))
	for i, b := range bulks {
		peers.Go(func() { late[i] = b.unexport(r) })
	}
	peers.Wait()
	var visits []visit
	for i, s := range late {
		if s != nil {
			visits = append(visits, visit{bulks[i], s})
		}
	}
	locals := make(map[*agent.ActiveEnd]fabric.MemoryRegion)
	d.agent.Commands.Call(func() {
		for _, m := range d.view.Movers {
			if m.End != nil {
				if mr := m.End.Forget(r.view); mr != nil {
					locals[m.End] = mr
				}
			}
		}
		d.view.RemoveRegion(r.view)
	})
	for _, mr := range locals {
		if err := mr.Close(); err != nil {
			event.RegistrationClose.On(&c.log).Err(err).Msg("closing a region's registration")
		}
	}
	if len(locals) > 0 {
		d.agent.Commands.Call(func() {
			for e := range locals {
				e.Closed() // it may have ended meanwhile
			}
		})
	}
	c.mu.Lock()
	d.regions.remove(r)
	d.keepNoMore(r.key())
	// One step with the counts: who finds a full quota and nothing freed gives up.
	r.owner.regions.freed--
	c.unreserveLocked(r.owner, r.charged)
	c.mu.Unlock()
	r.disown()
	// Its owner may hold it for ever, and that must not count for nobody.
	_ = r.seg.Discard()
	if err := r.bury(visits); err != nil {
		event.RegistrationClose.On(&c.log).Err(err).Msg("giving up a region's memory")
	}
	c.dispose(d)
}

// export answers a worker's question to make its region known to a node.
func (c *conductor) export(w *worker, m *attach.Message) (*attach.Message, error) {
	if w.role != attach.RoleClient || m.Region == nil {
		return nil, fmt.Errorf("%w: a malformed export message", attach.ErrInvalid)
	}
	c.mu.Lock()
	r := w.domain.regions.find(w, m.Region.ID())
	freeing := r != nil && r.freeing
	c.mu.Unlock()
	switch {
	case r == nil:
		return nil, fmt.Errorf("%w: no region of this process", attach.ErrInvalid)
	case freeing:
		return nil, errRegionFree
	}
	a := &attach.Message{Type: attach.TypeExported, Node: m.Node}
	if m.Node == c.node {
		return a, nil
	}
	ctx, cancel := context.WithTimeout(c.ctx, c.live().Limits.ConnectWait+openTimeout)
	defer cancel()
	for {
		s, err := c.connected(ctx, w.gone, m.Node)
		if err != nil {
			return nil, err
		}
		if err = c.bulkWith(w.domain, m.Node).export(ctx, s, r); err == nil {
			return a, nil
		}
		if !c.followed(ctx, s) {
			return nil, err
		}
	}
}
