package daemon

import (
	"cmp"
	"runtime"
	"slices"
	"time"

	"github.com/rdmad/rdmad/internal/attach"
	"github.com/rdmad/rdmad/internal/counters"
	"github.com/rdmad/rdmad/internal/event"
)

// Status is the daemon's state, as tools get it.
type Status struct {
	Node        string  `json:"node"`
	Version     string  `json:"version"`
	Incarnation string  `json:"incarnation"`
	UptimeS     float64 `json:"uptime_s"`
	PIDs        PIDs    `json:"pids"`
	// Goroutines is how many the core has.
	Goroutines int `json:"goroutines"`
	// Listen is the address of the bootstrap listener, Fabric the provider in
	// use; both are empty for a node without peers.
	Listen string `json:"listen"`
	Fabric string `json:"fabric"`
	// FabricWanted is the provider that the configuration names. If it is
	// "auto" and tcp is used, FallbackReason says why.
	FabricWanted   string `json:"fabric_wanted"`
	FallbackReason string `json:"fallback_reason,omitempty"`
	// FabricDetail is what the device says of itself, for people.
	FabricDetail string `json:"fabric_detail,omitempty"`

	// TLS is this node's own certificate; nil if tls.mode is "off".
	TLS *CertStatus `json:"tls,omitempty"`
	// DataTLS is whether all data connections to peers are mutual TLS, or would be.
	DataTLS bool `json:"data_tls"`
	// Refusals are connections of peers that were refused, the latest first, one
	// entry for each reason and host.
	Refusals []RefusalStatus `json:"refusals"`

	// Upgrade is how the last replacement of the core by another program went; nil if
	// there was none since the supervisor started.
	Upgrade *UpgradeStatus `json:"upgrade,omitempty"`

	// Config is the configuration that is in force.
	Config *ConfigStatus `json:"config,omitempty"`

	// Errors are the distinct errors and warnings that the daemon has logged, or has not
	// because of their level or number, the latest first. Those of earlier cores are among
	// them. What they mean is in docs/runbook.md, by their codes.
	Errors []event.Entry `json:"errors"`

	// Draining is whether the node takes no new requests, because it is about to stop or
	// was taken out of service; Drain is set in the second case.
	Draining bool              `json:"draining"`
	Drain    *DrainStatus      `json:"drain,omitempty"`
	Agents   []AgentStatus     `json:"agents"`
	Peers    []PeerStatus      `json:"peers"`
	Lanes    []LaneStatus      `json:"lanes"`
	Services []ServiceStatus   `json:"services"`
	Workers  []WorkerStatus    `json:"workers"`
	Domains  []DomainStatus    `json:"domains"`
	Bulk     []BulkStatus      `json:"bulk"`
	Deaths   DeathStatus       `json:"deaths"`
	Counters map[string]uint64 `json:"counters"`
}

// PIDs are the daemon's processes.
type PIDs struct {
	Supervisor int `json:"supervisor"`
	Core       int `json:"core"`
}

// PeerStatus is the state of the link to a peer.
type PeerStatus struct {
	Name    string `json:"name"`
	Address string `json:"address"`
	// State is "connected", "draining" or "down".
	State string `json:"state"`
	// SinceS is how long it has been so, in seconds.
	SinceS float64 `json:"since_s"`
	// Error is why it is down, or was last.
	Error    string `json:"error,omitempty"`
	Services int    `json:"services"`
	// Fabric is the provider that carries the link while it is connected.
	Fabric string `json:"fabric,omitempty"`
	// TLS is what protects the bootstrap connection; nil if nothing does, or while
	// there is none.
	TLS *LinkTLS `json:"tls,omitempty"`
}

// LaneStatus is the state of a lane.
type LaneStatus struct {
	ID     uint16 `json:"id"`
	Domain string `json:"domain"`
	Peer   string `json:"peer"`
	Class  string `json:"class"`
	// Number tells apart the lanes of the class to or from the peer.
	Number int `json:"number"`
	// Direction is "out" for requests of this node, "in" for those of the
	// peer, "local" for requests from this node to itself.
	Direction string `json:"direction"`
	// State is "up" or "down".
	State    string `json:"state"`
	Slots    int    `json:"slots"`
	SlotSize int    `json:"slot_size"`
	// Busy is how many requests are under way.
	Busy int `json:"busy"`
	// Requests is how many have been sent, or have arrived, by the lane, and Groups
	// how many groups they were.
	Requests uint64 `json:"requests"`
	Groups   uint64 `json:"groups"`
	// Users is how many clients have the lane, Quota the most slots that one may
	// hold (0: all), and Share the most at present, because the ring is crowded
	// (0: it is not). All are 0 for requests of the peer.
	Users int `json:"users"`
	Quota int `json:"quota"`
	Share int `json:"share"`
	// Path is what the fabric says of the connection, for people: device, GIDs,
	// MTU, encryption. Empty while it is down, and for fabrics that say nothing.
	Path string `json:"path,omitempty"`
	LaneCounted
}

// ServiceStatus is a method served somewhere.
type ServiceStatus struct {
	Domain  string `json:"domain"`
	Node    string `json:"node"`
	Service string `json:"service"`
	Method  string `json:"method"`
	ID      uint32 `json:"id"`
	// State is "up", or "draining" if its node takes no new requests, because it is about to
	// stop or was taken out of service.
	State string `json:"state"`
	// Workers is how many processes serve it; 0 if that is the peer's business.
	Workers int `json:"workers"`
	// Counted is what this node has counted of it; nil if it is served elsewhere.
	Counted *ServiceCounted `json:"counted,omitempty"`
}

// WorkerStatus is an attached process.
type WorkerStatus struct {
	ID     int    `json:"id"`
	Domain string `json:"domain"`
	Role   string `json:"role"`
	Name   string `json:"name"`
	PID    int    `json:"pid"`
	UID    uint32 `json:"uid"`
	// Slots is how many slots its requests have in flight, SlotBytes their size,
	// and OverLimit how many requests were refused because they were more than
	// the process may have.
	Slots     int    `json:"slots"`
	SlotBytes int    `json:"slot_bytes"`
	OverLimit uint64 `json:"over_limit"`
	// SpilledAnswers is how many answers it has got that were moved out of their
	// slots because it did not take them, SpilledBytes their size, and SpillUnread
	// how much of it, it has not read.
	SpilledAnswers uint64 `json:"spilled_answers"`
	SpilledBytes   uint64 `json:"spilled_bytes"`
	SpillUnread    int    `json:"spill_unread"`
	// Offences is how often it has broken the protocol for certain.
	Offences uint64 `json:"offences"`
	// Regions is how many regions it has, RegionBytes their size. They include
	// those that it has freed and that are still in use.
	Regions     int `json:"regions"`
	RegionBytes int `json:"region_bytes"`
}

// DomainStatus is the state of a domain's memory.
type DomainStatus struct {
	Name string `json:"name"`
	// Generation is how often it was replaced by this core.
	Generation int `json:"generation"`
	// Damages is how many errors there were in it that are nobody's for certain,
	// Lingering how many processes have it that are disconnected.
	Damages   uint64 `json:"damages"`
	Lingering int    `json:"lingering"`
	// Held is how many of its earlier memories are held by processes that live although
	// they were disconnected.
	Held int `json:"held"`
}

// BulkStatus is the state of operations on regions between a domain and a peer.
type BulkStatus struct {
	Domain string `json:"domain"`
	Peer   string `json:"peer"`
	// Out is "up" or "down": the connection for operations of this node's
	// handlers. In is the same for those of the peer's.
	Out string `json:"out"`
	In  string `json:"in"`
	// Exports is how many regions of this node the peer knows, ExportBytes their
	// size; Imports is how many of the peer's this node knows.
	Exports     int `json:"exports"`
	ExportBytes int `json:"export_bytes"`
	Imports     int `json:"imports"`
	// Queued is how many operations of this node's handlers are under way.
	Queued int `json:"queued"`
}

// status collects the state of everything. Agents are asked first: mu is not
// held meanwhile.
func (c *conductor) status() *Status {
	// One at a time: agents have a part in each, and however many ask at once, they do no more than one between two cycles.
	c.statusTurn.Lock()
	defer c.statusTurn.Unlock()
	s := &Status{
		Node: c.node, Version: Version, Incarnation: c.incarnation, UptimeS: time.Since(c.started).Seconds(), Goroutines: runtime.NumGoroutine(),
		PIDs:   PIDs{Supervisor: c.supervisor, Core: pid},
		Listen: c.cfg.Node.Listen,
		Agents: []AgentStatus{}, Peers: []PeerStatus{}, Lanes: []LaneStatus{}, Services: []ServiceStatus{}, Workers: []WorkerStatus{}, Bulk: []BulkStatus{}, Domains: []DomainStatus{},
		Refusals: c.refusals.status(), Upgrade: c.told.upgrade(), Config: c.configStatus(), Errors: c.errors(),
		Counters: c.sums(),
	}
	if c.guard != nil {
		s.TLS = &CertStatus{}
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
	served := map[uint32]*ServiceCounted{}
	serving := 0
	domains := c.allDomains()
	for _, d := range domains {
		c.mu.Lock()
		names := make(map[uint16]attach.Lane, len(d.lanes))
		for id, l := range d.lanes {
			names[id] = l.Lane
		}
		c.mu.Unlock()
		state := DomainStatus{Name: d.name, Generation: d.generation}
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
				s.Services = append(s.Services, ServiceStatus{Domain: domain, Node: l.name, Service: k.service, Method: k.method, ID: e.ID, State: state})
			}
		}
	}
	for _, d := range c.allDomains() {
		for k, m := range d.methods {
			if len(m.workers) > 0 {
				s.Services = append(s.Services, ServiceStatus{Domain: d.name, Node: c.node, Service: k.service, Method: k.method, ID: m.id, State: serviceState(s.Draining), Workers: len(m.workers), Counted: served[m.id]})
			}
		}
	}
	for w := range c.attached {
		f := flights[w.view]
		unread := 0
		if w.spiller != nil {
			unread = w.spiller.held()
		}
		s.Workers = append(s.Workers, WorkerStatus{ID: w.id, Domain: w.domain.name, Role: string(w.role), Name: w.name, PID: w.pid, UID: w.uid,
			Slots: f.slots, SlotBytes: f.bytes, OverLimit: f.overLimit, SpilledAnswers: f.spilled, SpilledBytes: f.spilledBytes, SpillUnread: unread, Offences: f.offences, Regions: w.regions.count, RegionBytes: w.regions.bytes})
	}
	s.sort()
	return s
}

// serviceState says in a word how the services of a node are.
func serviceState(draining bool) string {
	if draining {
		return "draining"
	}
	return "up"
}

func (s *Status) sort() {
	slices.SortFunc(s.Peers, func(a, b PeerStatus) int { return cmp.Compare(a.Name, b.Name) })
	slices.SortFunc(s.Lanes, func(a, b LaneStatus) int {
		return cmp.Or(cmp.Compare(a.Domain, b.Domain), cmp.Compare(a.ID, b.ID))
	})
	slices.SortFunc(s.Bulk, func(a, b BulkStatus) int {
		return cmp.Or(cmp.Compare(a.Domain, b.Domain), cmp.Compare(a.Peer, b.Peer))
	})
	slices.SortFunc(s.Services, func(a, b ServiceStatus) int {
		return cmp.Or(cmp.Compare(a.Domain, b.Domain), cmp.Compare(a.Node, b.Node), cmp.Compare(a.Service, b.Service), cmp.Compare(a.Method, b.Method))
	})
	slices.SortFunc(s.Workers, func(a, b WorkerStatus) int {
		return cmp.Or(cmp.Compare(a.Domain, b.Domain), cmp.Compare(a.ID, b.ID), cmp.Compare(a.PID, b.PID))
	})
}

// status describes the link; conductor.mu is held.
func (l *link) status() PeerStatus {
	p := PeerStatus{Name: l.name, Address: l.address, State: "down", SinceS: time.Since(l.since).Seconds()}
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
func (d *agentDomain) laneStatus(domain string, names map[uint16]attach.Lane) []LaneStatus {
	var ls []LaneStatus
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
		ls = append(ls, LaneStatus{ID: id, Domain: domain, Peer: n.Peer, Class: n.Class, Number: n.Number, Direction: direction, State: state,
			Slots: n.Geometry.Slots, SlotSize: n.Geometry.SlotSize, Busy: busy, Requests: moved.requests, Groups: moved.groups, Path: path, LaneCounted: CountedOfLane(row)})
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
