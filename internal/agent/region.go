package agent

import (
	"slices"

	"github.com/rdmad/rdmad/slots"
)

// Region is what an agent knows of a region. It belongs to the agent.
type Region struct {
	ID    slots.RegionID
	Owner int // the worker's id
	Mem   []byte
	// refs counts what needs the memory: requests that refer to the region,
	// work requests with it as local memory, and a registration under way.
	refs int
	// Freed: no request and no operation may begin to use it.
	Freed bool
	// Revoked: its owner is dead, and operations on it fail.
	Revoked bool
	// Exported are the peers that know the region.
	Exported []*Peer
	// OnQuiet is called, once, when the region is freed and nothing needs it.
	OnQuiet func()
}

// hold keeps the region's memory and registrations until release.
func (r *Region) hold() { r.refs++ }

// release ends a hold.
func (r *Region) release() {
	if r.refs--; r.refs == 0 && r.Freed {
		r.quiet()
	}
}

// Free keeps everybody from using the region anew.
func (r *Region) Free() {
	if !r.Freed {
		r.Freed = true
		if r.refs == 0 {
			r.quiet()
		}
	}
}

// Revoke ends the use of a region whose owner is dead by handlers of this node.
func (r *Region) Revoke(d *Domain) {
	r.Revoked = true
	d.near.abandon(func(o *operation) bool { return o.near == r }, slots.OpExpired)
}

func (r *Region) quiet() {
	if f := r.OnQuiet; f != nil {
		r.OnQuiet = nil
		f()
	}
}

// AddRegion makes the agent know a region.
func (d *Domain) AddRegion(r *Region) {
	if r.Freed {
		return // its worker has gone meanwhile
	}
	for int(r.ID.Index()) >= len(d.regions) {
		d.regions = append(d.regions, nil)
	}
	d.regions[r.ID.Index()] = r
}

// RemoveRegion forgets a region.
func (d *Domain) RemoveRegion(r *Region) {
	if i := int(r.ID.Index()); i < len(d.regions) && d.regions[i] == r {
		d.regions[i] = nil
	}
}

// region returns the region with the given id if worker owner may use it, else nil.
func (d *Domain) region(id slots.RegionID, owner int) *Region {
	if i := id.Index(); uint64(i) < uint64(len(d.regions)) {
		if r := d.regions[i]; r != nil && r.ID == id && r.Owner == owner && !r.Freed {
			return r
		}
	}
	return nil
}

// held are the regions that a request in the journal refers to.
type held struct {
	list [slots.MaxRefs]*Region
	n    int
}

// refersTo reads the references of a request of worker owner, from slot i of a
// ring, and holds the regions until letGo. peer is where the request goes, nil for
// this node. Not StatusOK: why the request is refused.
func (d *Domain) refersTo(r *slots.Ring, i, run, owner, n int, peer *Peer) (*held, slots.Status, string) {
	h := d.takeHeld()
	p := r.PayloadAt(i, run)
	for k := range n {
		var ref slots.Ref
		ok := ref.Decode(p[k*slots.RefSize:])
		g := d.region(ref.Region, owner)
		switch {
		case !ok || g == nil || !slots.Inside(ref.Offset, ref.Length, uint64(len(g.Mem))):
			d.letGo(h)
			return nil, slots.StatusInvalid, "a reference to no region of this process, or beyond its end"
		case peer != nil && !slices.Contains(g.Exported, peer):
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
func (d *Domain) takeHeld() *held {
	if n := len(d.spareHeld); n > 0 {
		h := d.spareHeld[n-1]
		d.spareHeld = d.spareHeld[:n-1]
		return h
	}
	return new(held)
}

// letGo ends what refersTo began.
func (d *Domain) letGo(h *held) {
	for k := range h.n {
		h.list[k].release()
		h.list[k] = nil
	}
	h.n = 0
	d.spareHeld = append(d.spareHeld, h)
}

// Knows reports whether a peer knows the region. It belongs to the agent.
func (r *Region) Knows(p *Peer) bool { return slices.Contains(r.Exported, p) }
