package agent

import (
	"github.com/rdmad/rdmad/internal/fabric"
	"github.com/rdmad/rdmad/slots"
)

// importedRegion is a region of a peer that this node's handlers may be given. It
// outlives the session that it came by: if the link comes back in time, the peer names
// it again, with a new key, and what handlers have of it goes on.
type importedRegion struct {
	id  slots.RegionID
	key fabric.RemoteKey
	// refs counts the grants on it.
	refs int
	// suspended: the key is that of a session that is over. dead: it is not named
	// again. revoked: its owner is dead.
	suspended, dead, revoked bool
	// onQuiet is called, once, when the peer wants it back and nobody has a grant on it.
	onQuiet func()
}

func (r *importedRegion) quiet() {
	if f := r.onQuiet; f != nil && r.refs == 0 {
		r.onQuiet = nil
		f()
	}
}

// MaxImports bounds the regions that a peer can make this node know of in one
// domain.
const MaxImports = 64 << 10

// knows reports whether requests of the peer may refer to the region.
func (p *Peer) knows(id slots.RegionID) bool {
	r := p.imports[id]
	return r != nil && !r.suspended
}

// Imported notes a region of the peer, perhaps again. False: it has too many, or says
// now that this one has another size, or has not got this one back yet.
func (p *Peer) Imported(id slots.RegionID, key fabric.RemoteKey) bool {
	if r := p.imports[id]; r != nil {
		if r.key.Len != key.Len {
			return false // the bounds of grants were checked with that
		}
		r.key, r.suspended = key, false
		return true
	}
	if len(p.imports) >= MaxImports || p.leaving[id] != nil {
		return false
	}
	p.imports[id] = &importedRegion{id: id, key: key}
	p.Mover.open() // the first operation finds the connection made
	return true
}

// Withdrawn forgets a region that the peer wants back. quiet is called, soon, when
// no handler has a grant on it.
func (p *Peer) Withdrawn(id slots.RegionID, quiet func()) {
	r := p.imports[id]
	if r == nil {
		quiet()
		return
	}
	delete(p.imports, id)
	p.leaving[id] = r
	p.Mover.takenBack++
	r.onQuiet = func() {
		delete(p.leaving, id)
		quiet()
	}
	r.quiet()
}

// Revoked ends the use of a region whose owner is dead, also of one that the peer wants back already. The
// peer does not wait for ever until it has it.
func (p *Peer) Revoked(id slots.RegionID) {
	r := p.imports[id]
	if r == nil {
		r = p.leaving[id]
	}
	if r == nil || r.revoked {
		return // nothing uses it since, and a peer may say so as often as it likes
	}
	r.revoked = true
	p.Mover.abandon(func(o *operation) bool { return o.far == r }, slots.OpExpired)
}

// Suspend closes the connections of a session that is over. Operations wait until
// Resume or Forget.
func (p *Peer) Suspend(d *Domain) {
	for _, r := range p.imports {
		r.suspended = true
	}
	// The peer has nothing registered any more and will not name these again.
	for _, r := range p.leaving {
		r.dead, r.onQuiet = true, nil
	}
	clear(p.leaving)
	p.Mover.suspend()
	p.Mover.abandon(func(o *operation) bool { return o.far.dead }, slots.OpLost)
	if p.Passive != nil {
		p.Passive.Close(d.agent)
		p.Passive = nil
	}
}

// Resume lets operations go on, over a session in which the peer has named all of its
// regions again that there still are.
func (p *Peer) Resume() {
	p.Forget()
	p.Mover.resume(len(p.imports) > 0)
}

// Forget ends the imports that the peer has not named again, and the operations on them.
func (p *Peer) Forget() {
	for id, r := range p.imports {
		if r.suspended {
			r.dead = true
			delete(p.imports, id)
		}
	}
	p.Mover.abandon(func(o *operation) bool { return o.far.dead }, slots.OpLost)
}
