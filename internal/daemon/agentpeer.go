package daemon

import (
	"github.com/rdmad/rdmad/internal/event"
	"github.com/rdmad/rdmad/internal/fabric"
	"github.com/rdmad/rdmad/internal/status"
	"github.com/rdmad/rdmad/slots"
)

// agentPeer is what an agent knows of one-sided operations between its domain and
// the domain of the same name on a peer. It belongs to the agent.
type agentPeer struct {
	name  string
	mover *mover
	// imports are the peer's regions that requests may refer to; leaving are those that
	// it wants back and handlers still have.
	imports map[slots.RegionID]*importedRegion
	leaving map[*importedRegion]struct{}
	// passive is the endpoint by which the peer reaches this node's regions; nil
	// while there is none.
	passive *passiveEnd
}

func newAgentPeer(d *agentDomain, name string) *agentPeer {
	p := &agentPeer{name: name, imports: make(map[slots.RegionID]*importedRegion), leaving: make(map[*importedRegion]struct{})}
	p.mover = &mover{domain: d, flows: make(map[int]*flow)}
	d.peers = append(d.peers, p)
	d.movers = append(d.movers, p.mover)
	return p
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
func (e *passiveEnd) sent(uint64) bool { return false }

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
		event.EndpointClose.On(&a.log).Err(err).Msg("closing an endpoint")
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
func (d *agentDomain) bulkStatus(domain string) (list []status.Bulk) {
	state := map[bool]string{false: "down", true: "up"}
	for _, p := range d.peers {
		s := status.Bulk{Domain: domain, Peer: p.name, Out: state[p.mover.end != nil], In: state[p.passive != nil], Imports: len(p.imports)}
		for _, r := range d.regions {
			if r != nil && r.knows(p) {
				s.Exports++
				s.ExportBytes += len(r.mem)
			}
		}
		if e := p.mover.end; e != nil {
			s.Queued += int(e.next - e.done)
		}
		s.Queued += len(p.mover.redo)
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
