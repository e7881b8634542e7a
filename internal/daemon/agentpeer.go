package daemon

import (
	"github.com/rdmad/rdmad/internal/fabric"
	"github.com/rdmad/rdmad/slots"
)

// agentPeer is what an agent knows of one-sided operations between its domain and
// the domain of the same name on a peer. It belongs to the agent.
type agentPeer struct {
	name  string
	mover *mover
	// imports are the peer's regions, of one session.
	imports map[slots.RegionID]*importedRegion
	// passive is the endpoint by which the peer reaches this node's regions; nil
	// while there is none.
	passive *passiveEnd
}

func newAgentPeer(d *agentDomain, name string) *agentPeer {
	p := &agentPeer{name: name, imports: make(map[slots.RegionID]*importedRegion)}
	p.mover = &mover{domain: d, flows: make(map[int]*flow)}
	d.peers = append(d.peers, p)
	d.movers = append(d.movers, p.mover)
	return p
}

// maxImports bounds the regions that a peer can make this node know of in one
// domain.
const maxImports = 64 << 10

// imported notes a region of the peer. False: it has too many.
func (p *agentPeer) imported(id slots.RegionID, key fabric.RemoteKey) bool {
	if r := p.imports[id]; r != nil {
		r.key = key
		return true
	}
	if len(p.imports) >= maxImports {
		return false
	}
	p.imports[id] = &importedRegion{key: key}
	p.mover.open() // the first operation finds the connection made
	return true
}

// withdrawn forgets a region that the peer wants back. quiet is called, soon, when
// no handler has a grant on it.
func (p *agentPeer) withdrawn(id slots.RegionID, quiet func()) {
	r := p.imports[id]
	if r == nil {
		quiet()
		return
	}
	delete(p.imports, id)
	r.gone, r.onQuiet = true, quiet
	r.quiet()
}

// revoked ends the use of a region whose owner is dead.
func (p *agentPeer) revoked(d *agentDomain, id slots.RegionID) {
	if r := p.imports[id]; r != nil {
		r.revoked = true
		d.abandon(func(o *agentOp) bool { return o.far == r }, slots.OpExpired)
	}
}

// down forgets what came by a session that is over, and closes the connections.
func (p *agentPeer) down(d *agentDomain) {
	for _, r := range p.imports {
		r.dead, r.onQuiet = true, nil
	}
	clear(p.imports)
	for _, r := range d.regions {
		if r != nil {
			r.exported = without(r.exported, p)
		}
	}
	p.mover.fail()
	p.mover.abandon(func(*agentOp) bool { return true }, slots.OpLost)
	if p.passive != nil {
		p.passive.close(d.agent)
		p.passive = nil
	}
}

// without returns list without x, in place.
func without[T comparable](list []T, x T) []T {
	for i, have := range list {
		if have == x {
			return append(list[:i], list[i+1:]...)
		}
	}
	return list
}

// passiveEnd is this node's end of a connection by which a peer operates on its
// regions: it only has to exist.
type passiveEnd struct {
	agent    *agent
	tag      uint64
	ep       fabric.Endpoint
	opening  opening
	onBroken func(error)
}

// immediate implements laneEnd. Nothing sends one here: without posted receives it
// does not arrive.
func (e *passiveEnd) immediate(uint32) {}

// sent implements laneEnd. Nothing is sent from here.
func (e *passiveEnd) sent(uint64) {}

// broken implements laneEnd.
func (e *passiveEnd) broken(c *fabric.Completion) {
	err := cause(e.ep, c)
	e.close(e.agent)
	if e.onBroken != nil {
		go e.onBroken(err)
	}
}

func (e *passiveEnd) close(a *agent) {
	if a.ends[e.tag] != e {
		return
	}
	delete(a.ends, e.tag)
	if err := e.ep.Close(); err != nil {
		a.log.Warn().Err(err).Msg("closing an endpoint")
	}
}

// peer finds or makes what the agent knows of a peer.
func (d *agentDomain) peer(name string) *agentPeer {
	for _, p := range d.peers {
		if p.name == name {
			return p
		}
	}
	return newAgentPeer(d, name)
}

// bulkStatus describes the operations of the domain, on the agent's thread.
func (d *agentDomain) bulkStatus(domain string) (list []BulkStatus) {
	state := map[bool]string{false: "down", true: "up"}
	for _, p := range d.peers {
		s := BulkStatus{Domain: domain, Peer: p.name, Out: state[p.mover.end != nil], In: state[p.passive != nil], Imports: len(p.imports)}
		for _, r := range d.regions {
			if r != nil && r.knows(p) {
				s.Exports++
				s.ExportBytes += len(r.mem)
			}
		}
		if e := p.mover.end; e != nil {
			s.Queued += int(e.next - e.done)
		}
		for _, f := range p.mover.flows {
			for o := f.head; o != nil; o = o.next {
				if o.posted == 0 {
					s.Queued++
				}
			}
		}
		list = append(list, s)
	}
	return list
}
