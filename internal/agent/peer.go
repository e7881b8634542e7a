package agent

import (
	"slices"

	"github.com/rdmad/rdmad/internal/event"
	"github.com/rdmad/rdmad/internal/fabric"
	"github.com/rdmad/rdmad/internal/status"
	"github.com/rdmad/rdmad/slots"
)

// Peer is what an agent knows of one-sided operations between its domain and
// the domain of the same name on a peer. It belongs to the agent.
type Peer struct {
	Name  string
	Mover *mover
	// imports are the peer's regions that requests may refer to; leaving are those that
	// it wants back and handlers still have.
	imports map[slots.RegionID]*importedRegion
	leaving map[slots.RegionID]*importedRegion
	// Passive is the endpoint by which the peer reaches this node's regions; nil
	// while there is none.
	Passive *PassiveEnd
}

// newPeer returns what an agent knows of the node name, with which there is no connection yet.
func newPeer(d *Domain, name string) *Peer {
	p := &Peer{Name: name, imports: make(map[slots.RegionID]*importedRegion), leaving: make(map[slots.RegionID]*importedRegion)}
	p.Mover = &mover{domain: d, flows: make(map[int]*flow)}
	d.Peers = append(d.Peers, p)
	d.Movers = append(d.Movers, p.Mover)
	return p
}

// RemovePeer makes the agent forget a peer with which there is no connection, and reports whether it does: not while there are
// lanes to or from it, regions that one of the two knows of, or operations.
func (d *Domain) RemovePeer(p *Peer) bool {
	m := p.Mover
	if p.Passive != nil || len(p.imports)+len(p.leaving) > 0 || m.End != nil || m.opening || m.watching || len(m.active)+len(m.parked)+len(m.redo) > 0 {
		return false
	}
	if slices.ContainsFunc(d.OutLanes, func(l *OutLane) bool { return l.Peer == p }) || slices.ContainsFunc(d.InLanes, func(l *InLane) bool { return l.Peer == p }) {
		return false
	}
	if slices.ContainsFunc(d.regions, func(r *Region) bool { return r != nil && r.Knows(p) }) {
		return false
	}
	d.Peers, d.Movers = Without(d.Peers, p), Without(d.Movers, m)
	return true
}

// Without returns list without x, in place.
func Without[T comparable](list []T, x T) []T {
	for i, have := range list {
		if have == x {
			return append(list[:i], list[i+1:]...)
		}
	}
	return list
}

// PassiveEnd is this node's end of a connection by which a peer operates on its
// regions: it only has to exist.
type PassiveEnd struct {
	Agent *Agent
	// Tag is what completions of the endpoint have.
	Tag      uint64
	Endpoint fabric.Endpoint
	Opening  Opening
	// OnBroken is as that of an InLane.
	OnBroken func(error)
	// peer is whose it is, from Accept on.
	peer *Peer
}

// immediate implements connectionEnd. Nothing sends one here: without posted receives it
// does not arrive.
func (e *PassiveEnd) immediate(uint32) {}

// violation implements connectionEnd, for the same reason.
func (e *PassiveEnd) violation(string) {}

// sent implements connectionEnd. Nothing is sent from here.
func (e *PassiveEnd) sent(uint64) bool { return false }

// broken implements connectionEnd.
func (e *PassiveEnd) broken(c *fabric.Completion) {
	err := cause(e.Endpoint, c)
	e.Close(e.Agent)
	if e.peer.Passive == e {
		e.peer.Passive = nil
	}
	if e.OnBroken != nil {
		go e.OnBroken(err)
	}
}

// Close ends the connection.
func (e *PassiveEnd) Close(a *Agent) {
	if a.ends[e.Tag] != e {
		return
	}
	delete(a.ends, e.Tag)
	if err := e.Endpoint.Close(); err != nil {
		event.EndpointClose.On(&a.log).Err(err).Msg("closing an endpoint")
	}
}

// Peer finds or makes what the agent knows of a peer.
func (d *Domain) Peer(name string) *Peer {
	for _, p := range d.Peers {
		if p.Name == name {
			return p
		}
	}
	return newPeer(d, name)
}

// BulkStatus describes the operations of the domain, on the agent's thread.
func (d *Domain) BulkStatus(domain string) (list []status.Bulk) {
	state := map[bool]string{false: "down", true: "up"}
	for _, p := range d.Peers {
		s := status.Bulk{Domain: domain, Peer: p.Name, Out: state[p.Mover.End != nil], In: state[p.Passive != nil], Imports: len(p.imports)}
		for _, r := range d.regions {
			if r != nil && r.Knows(p) {
				s.Exports++
				s.ExportBytes += len(r.Mem)
			}
		}
		if e := p.Mover.End; e != nil {
			s.Queued += int(e.next - e.done)
		}
		s.Queued += len(p.Mover.redo)
		for _, f := range p.Mover.flows {
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

// Accept makes e the peer's connection, in place of the last one.
func (p *Peer) Accept(e *PassiveEnd) error {
	if err := e.Opening.Session.Reason(); err != nil {
		return err
	}
	if p.Mover.domain.Retired {
		return ErrRetired
	}
	if p.Passive != nil {
		p.Passive.Close(e.Agent)
	}
	p.Passive = nil
	if err := e.Endpoint.Activate(); err != nil {
		return err
	}
	p.Passive, e.peer = e, p
	e.Agent.ends[e.Tag] = e
	return nil
}
