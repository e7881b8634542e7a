package daemon

import (
	"slices"

	"github.com/rdmad/rdmad/slots"
)

// agentRegion is what an agent knows of a region. It belongs to the agent.
type agentRegion struct {
	id    slots.RegionID
	owner int // the worker's id
	mem   []byte
	// refs counts what needs the memory: requests that refer to the region,
	// work requests with it as local memory, and a registration under way.
	refs int
	// freed: no request and no operation may begin to use it.
	freed bool
	// revoked: its owner is dead, and operations on it fail.
	revoked bool
	// exported are the peers that know the region.
	exported []*agentPeer
	// onQuiet is called, once, when the region is freed and nothing needs it.
	onQuiet func()
}

// hold keeps the region's memory and registrations until release.
func (r *agentRegion) hold() { r.refs++ }

// release ends a hold.
func (r *agentRegion) release() {
	if r.refs--; r.refs == 0 && r.freed {
		r.quiet()
	}
}

// free keeps everybody from using the region anew.
func (r *agentRegion) free() {
	if !r.freed {
		r.freed = true
		if r.refs == 0 {
			r.quiet()
		}
	}
}

// revoke ends the use of a region whose owner is dead by handlers of this node.
func (r *agentRegion) revoke(d *agentDomain) {
	r.revoked = true
	d.abandon(func(o *agentOp) bool { return o.near == r }, slots.OpExpired)
}

func (r *agentRegion) quiet() {
	if f := r.onQuiet; f != nil {
		r.onQuiet = nil
		f()
	}
}

// addRegion makes the agent know a region.
func (d *agentDomain) addRegion(r *agentRegion) {
	if r.freed {
		return // its worker has gone meanwhile
	}
	for int(r.id.Index()) >= len(d.regions) {
		d.regions = append(d.regions, nil)
	}
	d.regions[r.id.Index()] = r
}

// removeRegion forgets a region.
func (d *agentDomain) removeRegion(r *agentRegion) {
	if i := int(r.id.Index()); i < len(d.regions) && d.regions[i] == r {
		d.regions[i] = nil
	}
}

// region returns the region with the given id if worker owner may use it, else nil.
func (d *agentDomain) region(id slots.RegionID, owner int) *agentRegion {
	if i := id.Index(); uint64(i) < uint64(len(d.regions)) {
		if r := d.regions[i]; r != nil && r.id == id && r.owner == owner && !r.freed {
			return r
		}
	}
	return nil
}

// held are the regions that a request in the journal refers to.
type held struct {
	list [slots.MaxRefs]*agentRegion
	n    int
}

// refersTo reads the references of a request of worker owner, from slot i of a
// ring, and holds the regions until letGo. peer is where the request goes, nil for
// this node. Not StatusOK: why the request is refused.
func (d *agentDomain) refersTo(r *slots.Ring, i, run, owner, n int, peer *agentPeer) (*held, slots.Status, string) {
	h := d.takeHeld()
	p := r.PayloadAt(i, run)
	for k := range n {
		var ref slots.Ref
		ok := ref.Decode(p[k*slots.RefSize:])
		g := d.region(ref.Region, owner)
		switch {
		case !ok || g == nil || !slots.Inside(ref.Offset, ref.Length, uint64(len(g.mem))):
			d.letGo(h)
			return nil, slots.StatusInvalid, "a reference to no region of this process, or beyond its end"
		case peer != nil && !slices.Contains(g.exported, peer):
			d.letGo(h)
			return nil, slots.StatusNotExported, "a region is not known to the node"
		}
		g.hold()
		h.list[h.n] = g
		h.n++
	}
	return h, slots.StatusOK, ""
}

// takeHeld returns an empty list, of those that letGo has put back if there are any.
func (d *agentDomain) takeHeld() *held {
	if n := len(d.spareHeld); n > 0 {
		h := d.spareHeld[n-1]
		d.spareHeld = d.spareHeld[:n-1]
		return h
	}
	return new(held)
}

// letGo ends what refersTo began.
func (d *agentDomain) letGo(h *held) {
	for k := range h.n {
		h.list[k].release()
		h.list[k] = nil
	}
	h.n = 0
	d.spareHeld = append(d.spareHeld, h)
}
