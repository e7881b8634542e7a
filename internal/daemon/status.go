package daemon

import (
	"cmp"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/rdmad/rdmad/internal/attach"
)

// Status is the daemon's state, as tools get it.
type Status struct {
	Node        string  `json:"node"`
	Version     string  `json:"version"`
	Incarnation string  `json:"incarnation"`
	UptimeS     float64 `json:"uptime_s"`
	PIDs        PIDs    `json:"pids"`
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

	Draining bool              `json:"draining"`
	Peers    []PeerStatus      `json:"peers"`
	Lanes    []LaneStatus      `json:"lanes"`
	Services []ServiceStatus   `json:"services"`
	Workers  []WorkerStatus    `json:"workers"`
	Bulk     []BulkStatus      `json:"bulk"`
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
}

// LaneStatus is the state of a lane.
type LaneStatus struct {
	ID     uint16 `json:"id"`
	Domain string `json:"domain"`
	Peer   string `json:"peer"`
	Class  string `json:"class"`
	// Direction is "out" for requests of this node, "in" for those of the
	// peer, "local" for requests from this node to itself.
	Direction string `json:"direction"`
	// State is "up" or "down".
	State    string `json:"state"`
	Slots    int    `json:"slots"`
	SlotSize int    `json:"slot_size"`
	// Busy is how many requests are under way.
	Busy int `json:"busy"`
	// Path is what the fabric says of the connection, for people: device, GIDs,
	// MTU. Empty while it is down, and for fabrics that say nothing.
	Path string `json:"path,omitempty"`
}

// ServiceStatus is a method served somewhere.
type ServiceStatus struct {
	Domain  string `json:"domain"`
	Node    string `json:"node"`
	Service string `json:"service"`
	Method  string `json:"method"`
	ID      uint32 `json:"id"`
	// Workers is how many processes serve it; 0 if that is the peer's business.
	Workers int `json:"workers"`
}

// WorkerStatus is an attached process.
type WorkerStatus struct {
	ID     int    `json:"id"`
	Domain string `json:"domain"`
	Role   string `json:"role"`
	Name   string `json:"name"`
	PID    int    `json:"pid"`
	UID    uint32 `json:"uid"`
	// Regions is how many regions it has, RegionBytes their size. They include
	// those that it has freed and that are still in use.
	Regions     int `json:"regions"`
	RegionBytes int `json:"region_bytes"`
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

func (c *conductor) statusMessage() (*attach.Message, error) {
	data, err := json.Marshal(c.status())
	if err != nil {
		return nil, fmt.Errorf("status: %w", err)
	}
	return &attach.Message{Type: attach.TypeStatusIs, StatusJSON: data}, nil
}

// status collects the state of everything. Agents are asked first: no lock is
// held meanwhile.
func (c *conductor) status() *Status {
	s := &Status{
		Node: c.node, Version: Version, Incarnation: c.incarnation, UptimeS: time.Since(c.started).Seconds(),
		PIDs:   PIDs{Supervisor: c.supervisor, Core: pid},
		Fabric: c.provider, Listen: c.cfg.Node.Listen,
		Peers: []PeerStatus{}, Lanes: []LaneStatus{}, Services: []ServiceStatus{}, Workers: []WorkerStatus{}, Bulk: []BulkStatus{},
		Counters: map[string]uint64{"refused_connections": c.refused.Load()},
	}
	if c.fabric != nil {
		s.FabricWanted, s.FallbackReason, s.FabricDetail = c.fabric.wanted, c.fabric.fallback, c.fabric.detail
	}
	for _, a := range c.agents {
		var n counters
		a.commands.call(func() { n = a.count })
		n.addTo(s.Counters)
	}
	for _, d := range c.domains {
		c.mu.Lock()
		names := make(map[uint16]attach.Lane, len(d.lanes))
		for id, l := range d.lanes {
			names[id] = l.Lane
		}
		c.mu.Unlock()
		d.agent.commands.call(func() {
			s.Lanes = append(s.Lanes, d.view.laneStatus(d.name, names)...)
			s.Bulk = append(s.Bulk, d.view.bulkStatus(d.name)...)
		})
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	s.Draining = c.draining
	for _, l := range c.links {
		s.Peers = append(s.Peers, l.status())
		for domain, methods := range l.directory {
			for k, e := range methods {
				s.Services = append(s.Services, ServiceStatus{Domain: domain, Node: l.name, Service: k.service, Method: k.method, ID: e.ID})
			}
		}
	}
	for _, d := range c.domains {
		for k, m := range d.methods {
			if len(m.workers) > 0 {
				s.Services = append(s.Services, ServiceStatus{Domain: d.name, Node: c.node, Service: k.service, Method: k.method, ID: m.id, Workers: len(m.workers)})
			}
		}
	}
	for w := range c.attached {
		s.Workers = append(s.Workers, WorkerStatus{ID: w.id, Domain: w.domain.name, Role: string(w.role), Name: w.name, PID: w.pid, UID: w.uid,
			Regions: w.regions.count, RegionBytes: w.regions.bytes})
	}
	s.sort()
	return s
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
		p.State = "connected"
		if l.draining {
			p.State = "draining"
		}
	}
	for _, methods := range l.directory {
		p.Services += len(methods)
	}
	return p
}

// laneStatus describes the domain's lanes, on the agent's thread.
func (d *agentDomain) laneStatus(domain string, names map[uint16]attach.Lane) []LaneStatus {
	var ls []LaneStatus
	add := func(id uint16, direction string, up bool, pair *endpointPair, busy int) {
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
		ls = append(ls, LaneStatus{ID: id, Domain: domain, Peer: n.Peer, Class: n.Class, Direction: direction, State: state,
			Slots: n.Geometry.Slots, SlotSize: n.Geometry.SlotSize, Busy: busy, Path: path})
	}
	for _, l := range d.outLanes {
		if l.local != nil {
			add(l.id, "local", true, nil, l.busy)
		} else {
			add(l.id, "out", l.pair != nil, l.pair, l.busy)
		}
	}
	for _, l := range d.inLanes {
		if l.local == nil {
			add(l.id, "in", l.pair != nil, l.pair, l.busy)
		}
	}
	return ls
}

// addTo adds every counter to m under its JSON name.
func (n counters) addTo(m map[string]uint64) {
	v := reflect.ValueOf(n)
	for i := range v.NumField() {
		m[v.Type().Field(i).Tag.Get("json")] += v.Field(i).Uint()
	}
}
