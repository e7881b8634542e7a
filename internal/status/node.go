package status

import "github.com/rdmad/rdmad/internal/event"

// Node is the daemon's state, as tools get it.
type Node struct {
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
	TLS *Certificate `json:"tls,omitempty"`
	// DataTLS is whether all data connections to peers are mutual TLS, or would be.
	DataTLS bool `json:"data_tls"`
	// Refusals are connections of peers that were refused, the latest first, one
	// entry for each reason and host.
	Refusals []Refusal `json:"refusals"`

	// Upgrade is how the last replacement of the core by another program went; nil if
	// there was none since the supervisor started.
	Upgrade *Upgrade `json:"upgrade,omitempty"`

	// Config is the configuration that is in force.
	Config *Config `json:"config,omitempty"`

	// Errors are the distinct errors and warnings that the daemon has logged, or has not
	// because of their level or number, the latest first. Those of earlier cores are among
	// them. What they mean is in docs/runbook.md, by their codes.
	Errors []event.Entry `json:"errors"`

	// Draining is whether the node takes no new requests, because it is about to stop or
	// was taken out of service; Drain is set in the second case.
	Draining bool              `json:"draining"`
	Drain    *Drain            `json:"drain,omitempty"`
	Agents   []Agent           `json:"agents"`
	Peers    []Peer            `json:"peers"`
	Lanes    []Lane            `json:"lanes"`
	Services []Service         `json:"services"`
	Workers  []Worker          `json:"workers"`
	Domains  []Domain          `json:"domains"`
	Bulk     []Bulk            `json:"bulk"`
	Deaths   Deaths            `json:"deaths"`
	Counters map[string]uint64 `json:"counters"`
}

// PIDs are the daemon's processes.
type PIDs struct {
	Supervisor int `json:"supervisor"`
	Core       int `json:"core"`
}

// Peer is the state of the link to a peer.
type Peer struct {
	Name    string `json:"name"`
	Address string `json:"address"`
	// State is "connected", "draining" or "down".
	State string `json:"state"`
	// SinceS is how long it has been so, in seconds.
	SinceS float64 `json:"since_s"`
	// Error is why it is down.
	Error    string `json:"error,omitempty"`
	Services int    `json:"services"`
	// Fabric is the provider that carries the link while it is connected.
	Fabric string `json:"fabric,omitempty"`
	// TLS is what protects the bootstrap connection; nil if nothing does, or while
	// there is none.
	TLS *Channel `json:"tls,omitempty"`
}

// Lane is the state of a lane.
type Lane struct {
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
	// Uncounted: the lane has no row of counters of its own, and is counted as "other" with all of those. The rest
	// is 0 then.
	Uncounted bool `json:"uncounted,omitempty"`
	LaneCounted
}

// Service is a method served somewhere.
type Service struct {
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
	// Counted is what this node has counted of it; nil if it is served elsewhere, or has no row of counters of its
	// own.
	Counted *ServiceCounted `json:"counted,omitempty"`
}

// Worker is an attached process.
type Worker struct {
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

// Domain is the state of a domain's memory.
type Domain struct {
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

// Bulk is the state of operations on regions between a domain and a peer.
type Bulk struct {
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

// Agent is how an agent waits for work and wakes others.
type Agent struct {
	Name string `json:"name"`
	// Idle is what it does where there is nothing to do: "event", "adaptive" or "busy". It is "event" although
	// "adaptive" is configured where the daemon has no processor to spare for polling.
	Idle string `json:"idle"`
	// SpinUS is for how many microseconds it polls before it sleeps, with "adaptive".
	SpinUS float64 `json:"spin_us"`
	// Wakes is what it wakes many processes with: "io_uring", or "futex" where it may not use one, or gave it up.
	Wakes string `json:"wakes"`
	// CPU is the processor that it keeps to, -1 for none.
	CPU int `json:"cpu"`
}

// Drain is how far a node that was taken out of service has come.
type Drain struct {
	// SinceS is for how long it has been out of service, in seconds.
	SinceS float64 `json:"since_s"`
	// Complete: nothing is under way to its services, and nothing can come.
	Complete bool `json:"complete"`
	// Requests is how many requests to its services have no outcome yet, of peers and
	// of its own workers.
	Requests int `json:"requests"`
	// Peers are the connected ones that have not said that they have nothing on its
	// way to this node.
	Peers []string `json:"peers"`
}
