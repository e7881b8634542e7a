package daemon

import (
	"cmp"
	"runtime"
	"slices"
	"time"

	"github.com/rdmad/rdmad/internal/agent"
	"github.com/rdmad/rdmad/internal/attach"
	"github.com/rdmad/rdmad/internal/counters"
	"github.com/rdmad/rdmad/internal/fabric/tcp"
	"github.com/rdmad/rdmad/internal/status"
	"github.com/rdmad/rdmad/internal/version"
)

// status returns the state of everything, and others who ask get the same.
func (c *conductor) status() *statusRound { return c.statuses.get(c.collect) }

// collect collects the state of everything. Agents are asked first: mu is not
// held meanwhile.
func (c *conductor) collect() *status.Node {
	s := c.nodeStatus()
	c.addAgents(s)
	seen := c.addDomains(s)
	c.mu.Lock()
	defer c.mu.Unlock()
	s.Draining, s.Drain = c.drainsNow(), c.drainStatus(seen.serving)
	for i := range s.Domains {
		for old := range c.held {
			if old.name == s.Domains[i].Name {
				s.Domains[i].Held++
			}
		}
	}
	c.addPeers(s)
	c.addServices(s, seen.served)
	for w := range c.attached {
		s.Workers = append(s.Workers, w.status(seen.flights[w.view]))
	}
	sortStatus(s)
	return s
}

// nodeStatus is the state of the node itself, as far as no agent is asked for it.
func (c *conductor) nodeStatus() *status.Node {
	s := &status.Node{
		Node: c.node, Version: version.Version, Incarnation: c.incarnation, UptimeS: time.Since(c.started).Seconds(), Goroutines: runtime.NumGoroutine(),
		PIDs:   status.PIDs{Supervisor: c.supervisor, Core: ownPID},
		Listen: c.cfg.Node.Listen,
		Agents: []status.Agent{}, Peers: []status.Peer{}, Lanes: []status.Lane{}, Services: []status.Service{}, Workers: []status.Worker{}, Bulk: []status.Bulk{}, Domains: []status.Domain{},
		Refusals: c.refusals.Status(), Upgrade: c.told.Upgrade(), Config: c.configStatus(), Errors: c.errors(),
		Counters: c.sums(),
	}
	if c.guard.Required() {
		s.TLS = &status.Certificate{}
		if leaf := c.guard.Certificate(); leaf != nil {
			s.TLS = certStatus(leaf)
		}
	}
	if len(c.fabrics) > 0 {
		f := c.fabrics[0]
		s.DataTLS = f.Name == tcp.Name && c.dataSecurity() != nil
		s.Fabric, s.FabricWanted, s.FallbackReason, s.FabricDetail = f.Name, f.Wanted, f.Fallback, f.Detail
	}
	return s
}

// addAgents asks the agents what they do, have counted, and know of processes that died.
func (c *conductor) addAgents(s *status.Node) {
	var died agent.Deaths
	for _, a := range c.agents {
		var n counters.AgentCounts
		a.Commands.Call(func() {
			n = *a.Count
			died.Merge(&a.Deaths)
			s.Agents = append(s.Agents, a.Status())
		})
		counters.AddTo(s.Counters, &n)
	}
	s.Deaths = died.Status()
}

// sightings is what agents know of what else a status is made of.
type sightings struct {
	flights map[*agent.Worker]agent.Flight
	// served has what is counted of each method, by its id.
	served map[uint32]*status.ServiceCounted
	// serving is how many requests are being served.
	serving int
}

// addDomains asks the agents for the state of each domain and its lanes.
func (c *conductor) addDomains(s *status.Node) sightings {
	seen := sightings{flights: map[*agent.Worker]agent.Flight{}, served: map[uint32]*status.ServiceCounted{}}
	for _, d := range c.allDomains() {
		c.mu.Lock()
		names := make(map[uint16]attach.Lane, len(d.lanes))
		for id, l := range d.lanes {
			names[id] = l.Lane
		}
		c.mu.Unlock()
		state := status.Domain{Name: d.name, Generation: d.generation}
		d.agent.Commands.Call(func() {
			state.Damages, state.Lingering = d.view.Damages.Total, d.view.Disconnected()
			s.Lanes = append(s.Lanes, d.view.LaneStatus(d.name, names)...)
			s.Bulk = append(s.Bulk, d.view.BulkStatus(d.name)...)
			d.view.Flights(seen.flights)
			d.view.ServicesCounted(seen.served)
			seen.serving += d.view.Serving()
		})
		s.Domains = append(s.Domains, state)
	}
	return seen
}

// addPeers adds the peers and what they serve; mu is held.
func (c *conductor) addPeers(s *status.Node) {
	for _, l := range c.links {
		s.Peers = append(s.Peers, l.status())
		state := serviceState(l.draining)
		for domain, methods := range l.directory {
			for k, e := range methods {
				s.Services = append(s.Services, status.Service{Domain: domain, Node: l.name, Service: k.service, Method: k.method, ID: e.ID, State: state})
			}
		}
	}
}

// addServices adds what this node serves; mu is held.
func (c *conductor) addServices(s *status.Node, served map[uint32]*status.ServiceCounted) {
	state := serviceState(s.Draining)
	for _, d := range c.allDomains() {
		for k, m := range d.methods {
			if len(m.workers) > 0 {
				s.Services = append(s.Services, status.Service{Domain: d.name, Node: c.node, Service: k.service, Method: k.method, ID: m.id, State: state, Workers: len(m.workers), Counted: served[m.id]})
			}
		}
	}
}

// status describes the process, of which the agent knows f; conductor.mu is held.
func (w *worker) status(f agent.Flight) status.Worker {
	unread := 0
	if w.spiller != nil {
		unread = w.spiller.held()
	}
	return status.Worker{ID: w.id, Domain: w.domain.name, Role: string(w.role), Name: w.name, PID: w.pid, UID: w.uid,
		Slots: f.Slots, SlotBytes: f.Bytes, OverLimit: f.OverLimit, SpilledAnswers: f.Spilled, SpilledBytes: f.SpilledBytes, SpillUnread: unread, Offences: f.Offences, Regions: w.regions.count, RegionBytes: w.regions.bytes}
}

// serviceState says in a word how the services of a node are.
func serviceState(draining bool) string {
	if draining {
		return "draining"
	}
	return "up"
}

func sortStatus(s *status.Node) {
	slices.SortFunc(s.Peers, func(a, b status.Peer) int { return cmp.Compare(a.Name, b.Name) })
	slices.SortFunc(s.Lanes, func(a, b status.Lane) int {
		return cmp.Or(cmp.Compare(a.Domain, b.Domain), cmp.Compare(a.ID, b.ID))
	})
	slices.SortFunc(s.Bulk, func(a, b status.Bulk) int {
		return cmp.Or(cmp.Compare(a.Domain, b.Domain), cmp.Compare(a.Peer, b.Peer))
	})
	slices.SortFunc(s.Services, func(a, b status.Service) int {
		return cmp.Or(cmp.Compare(a.Domain, b.Domain), cmp.Compare(a.Node, b.Node), cmp.Compare(a.Service, b.Service), cmp.Compare(a.Method, b.Method))
	})
	slices.SortFunc(s.Workers, func(a, b status.Worker) int {
		return cmp.Or(cmp.Compare(a.Domain, b.Domain), cmp.Compare(a.ID, b.ID), cmp.Compare(a.PID, b.PID))
	})
}

// status describes the link; conductor.mu is held.
func (l *link) status() status.Peer {
	p := status.Peer{Name: l.name, Address: l.address, State: "down", SinceS: time.Since(l.changed).Seconds()}
	if l.lastErr != nil {
		p.Error = l.lastErr.Error()
	}
	if l.session != nil {
		p.State, p.Fabric = "connected", l.session.fabric.Name
		p.TLS = channelStatus(l.session.conn)
		if l.draining {
			p.State = "draining"
		}
	}
	for _, methods := range l.directory {
		p.Services += len(methods)
	}
	return p
}
