package daemon

import (
	"cmp"
	"runtime"
	"slices"
	"time"

	"github.com/rdmad/rdmad/internal/attach"
	"github.com/rdmad/rdmad/internal/counters"
	"github.com/rdmad/rdmad/internal/status"
	"github.com/rdmad/rdmad/internal/version"
)

// status collects the state of everything. Agents are asked first: mu is not
// held meanwhile.
func (c *conductor) status() *status.Node {
	// One at a time: agents have a part in each, and however many ask at once, they do no more than one between two cycles.
	c.statusTurn.Lock()
	defer c.statusTurn.Unlock()
	s := &status.Node{
		Node: c.node, Version: version.Version, Incarnation: c.incarnation, UptimeS: time.Since(c.started).Seconds(), Goroutines: runtime.NumGoroutine(),
		PIDs:   status.PIDs{Supervisor: c.supervisor, Core: pid},
		Listen: c.cfg.Node.Listen,
		Agents: []status.Agent{}, Peers: []status.Peer{}, Lanes: []status.Lane{}, Services: []status.Service{}, Workers: []status.Worker{}, Bulk: []status.Bulk{}, Domains: []status.Domain{},
		Refusals: c.refusals.status(), Upgrade: c.told.Upgrade(), Config: c.configStatus(), Errors: c.errors(),
		Counters: c.sums(),
	}
	if c.guard != nil {
		s.TLS = &status.Certificate{}
		if leaf := c.guard.keeper.Material().Leaf; leaf != nil {
			s.TLS = certStatus(leaf)
		}
	}
	if len(c.fabrics) > 0 {
		f := c.fabrics[0]
		s.DataTLS = f.name == tcpName && c.dataSecurity() != nil
		s.Fabric, s.FabricWanted, s.FallbackReason, s.FabricDetail = f.name, f.wanted, f.fallback, f.detail
	}
	var died deaths
	for _, a := range c.agents {
		var n counters.AgentCounts
		a.commands.call(func() {
			n = *a.count
			died.merge(&a.deaths)
			s.Agents = append(s.Agents, a.status())
		})
		counters.AddTo(s.Counters, &n)
	}
	s.Deaths = died.status()
	flights := map[*agentWorker]flight{}
	served := map[uint32]*status.ServiceCounted{}
	serving := 0
	domains := c.allDomains()
	for _, d := range domains {
		c.mu.Lock()
		names := make(map[uint16]attach.Lane, len(d.lanes))
		for id, l := range d.lanes {
			names[id] = l.Lane
		}
		c.mu.Unlock()
		state := status.Domain{Name: d.name, Generation: d.generation}
		d.agent.commands.call(func() {
			state.Damages, state.Lingering = d.view.damages.total, d.view.disconnected()
			s.Lanes = append(s.Lanes, d.view.laneStatus(d.name, names)...)
			s.Bulk = append(s.Bulk, d.view.bulkStatus(d.name)...)
			d.view.flights(flights)
			d.view.servicesCounted(served)
			serving += d.view.serving()
		})
		s.Domains = append(s.Domains, state)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	s.Draining, s.Drain = c.drainsNow(), c.drainStatus(serving)
	for i := range s.Domains {
		for old := range c.held {
			if old.name == s.Domains[i].Name {
				s.Domains[i].Held++
			}
		}
	}
	for _, l := range c.links {
		s.Peers = append(s.Peers, l.status())
		state := serviceState(l.draining)
		for domain, methods := range l.directory {
			for k, e := range methods {
				s.Services = append(s.Services, status.Service{Domain: domain, Node: l.name, Service: k.service, Method: k.method, ID: e.ID, State: state})
			}
		}
	}
	for _, d := range c.allDomains() {
		for k, m := range d.methods {
			if len(m.workers) > 0 {
				s.Services = append(s.Services, status.Service{Domain: d.name, Node: c.node, Service: k.service, Method: k.method, ID: m.id, State: serviceState(s.Draining), Workers: len(m.workers), Counted: served[m.id]})
			}
		}
	}
	for w := range c.attached {
		f := flights[w.view]
		unread := 0
		if w.spiller != nil {
			unread = w.spiller.held()
		}
		s.Workers = append(s.Workers, status.Worker{ID: w.id, Domain: w.domain.name, Role: string(w.role), Name: w.name, PID: w.pid, UID: w.uid,
			Slots: f.slots, SlotBytes: f.bytes, OverLimit: f.overLimit, SpilledAnswers: f.spilled, SpilledBytes: f.spilledBytes, SpillUnread: unread, Offences: f.offences, Regions: w.regions.count, RegionBytes: w.regions.bytes})
	}
	sortStatus(s)
	return s
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
	p := status.Peer{Name: l.name, Address: l.address, State: "down", SinceS: time.Since(l.since).Seconds()}
	if l.lastErr != nil {
		p.Error = l.lastErr.Error()
	}
	if l.session != nil {
		p.State, p.Fabric = "connected", l.session.fabric.name
		p.TLS = l.session.conn.status()
		if l.draining {
			p.State = "draining"
		}
	}
	for _, methods := range l.directory {
		p.Services += len(methods)
	}
	return p
}

// traffic counts the requests of a lane, and their groups.
type traffic struct{ requests, groups uint64 }

// laneStatus describes the domain's lanes, on the agent's thread.
func (d *agentDomain) laneStatus(domain string, names map[uint16]attach.Lane) []status.Lane {
	var ls []status.Lane
	add := func(id uint16, direction string, up bool, pair *endpointPair, busy int, moved traffic, row *counters.Lane) {
		n, ok := names[id]
		if !ok {
			return // made after the names were taken
		}
		state, path := "down", ""
		if up {
			state = "up"
		}
		if pair != nil {
			path = describe(pair.ep)
		}
		ls = append(ls, status.Lane{ID: id, Domain: domain, Peer: n.Peer, Class: n.Class, Number: n.Number, Direction: direction, State: state,
			Slots: n.Geometry.Slots, SlotSize: n.Geometry.SlotSize, Busy: busy, Requests: moved.requests, Groups: moved.groups, Path: path, LaneCounted: status.CountedOfLane(row)})
	}
	for _, l := range d.outLanes {
		before := len(ls)
		if l.local != nil {
			add(l.id, "local", true, nil, l.busy, l.moved, l.row)
		} else {
			add(l.id, "out", l.pair != nil, l.pair, l.busy, l.moved, l.row)
		}
		for i := before; i < len(ls); i++ {
			ls[i].Users, ls[i].Share = l.sharing.users, l.sharing.word.Slots()
			if l.sharing.quota < l.geo.Slots {
				ls[i].Quota = l.sharing.quota
			}
		}
	}
	for _, l := range d.inLanes {
		if l.local == nil {
			add(l.id, "in", l.pair != nil, l.pair, l.busy, l.moved, l.row)
		}
	}
	return ls
}

// flight is what a worker has in flight.
type flight struct {
	slots, bytes int
	overLimit    uint64
	offences     uint64
	// spilled are answers, spilledBytes their size.
	spilled, spilledBytes uint64
}

// flights enters the domain's workers into m, on the agent's thread.
func (d *agentDomain) flights(m map[*agentWorker]flight) {
	for _, w := range d.workers {
		if w == nil {
			continue
		}
		f := flight{offences: w.offences.total, bytes: w.bytes, overLimit: w.overLimit, spilled: w.spilledAnswers, spilledBytes: w.spilledBytes}
		for _, l := range d.outLanes {
			f.slots += int(l.sharing.taken[w.id])
		}
		m[w] = f
	}
}
