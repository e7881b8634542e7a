package scaling

import (
	"os"

	"github.com/rdmad/rdmad/internal/config"
	"github.com/rdmad/rdmad/slots"
)

// Memory is what a configuration makes a node take, in bytes where nothing else is said.
// A peer is one that is called and that calls, from each domain, by lanes of every class.
type Memory struct {
	// Rings are the classes, each with what one end of one lane of it takes.
	Rings []RingMemory `json:"rings"`
	// Way is one direction between a domain and a peer: a lane of each class, times
	// lanes.per_peer.
	Way LaneMemory `json:"way"`
	// Domain is a domain without workers and lanes, Worker an attached worker without
	// requests, Peer a peer with lanes both ways to one domain.
	Domain int        `json:"domain"`
	Worker int        `json:"worker"`
	Peer   LaneMemory `json:"peer"`
	// RegionsPerWorker is the most that the regions of a worker may add.
	RegionsPerWorker int `json:"regions_per_worker"`
	// SpillPerWorker is the most that unread answers of a worker may add.
	SpillPerWorker int `json:"spill_per_worker"`
	// Domains, Workers and Peers are how many the totals are for.
	Domains int `json:"domains"`
	Workers int `json:"workers"`
	Peers   int `json:"peers"`
	// Total is all of it without regions and spills.
	Total int `json:"total"`
	// Locked is what the fabric verbs pins of it, and what RLIMIT_MEMLOCK must allow besides
	// the fabric's own queues; Descriptors are those of core and supervisor together for workers
	// and lanes; RLIMIT_NOFILE, which is for each process, is enough if it allows as many.
	Locked      int `json:"locked"`
	Descriptors int `json:"descriptors"`
}

// RingMemory is what one end of a lane of a class takes.
type RingMemory struct {
	Class    string `json:"class"`
	Slots    int    `json:"slots"`
	SlotSize int    `json:"slot_size"`
	LaneMemory
}

// LaneMemory is Lane for JSON.
type LaneMemory struct {
	// Ring is the shared segment and Locked what is pinned of it, Vault what the daemon
	// keeps of it in memory of its own that outlives the core, Private the rest.
	Ring    int `json:"ring"`
	Locked  int `json:"locked"`
	Vault   int `json:"vault"`
	Private int `json:"private"`
	Total   int `json:"total"`
}

func laneMemory(l Lane, times int) LaneMemory {
	return LaneMemory{Ring: times * l.Ring, Locked: times * l.Pinned, Vault: times * l.Vault, Private: times * l.Private, Total: times * l.Total()}
}

// Explain computes the memory of a node with the given number of workers in all domains
// together. The node calls itself, too: by one way of lanes for each domain.
func Explain(c *config.Config, workers int) Memory {
	way, lanes := Lanes(c)
	m := Memory{
		Way: laneMemory(way, 1), Peer: laneMemory(way, 2), Domain: slots.DomainSegmentSize, Worker: Worker(),
		RegionsPerWorker: c.Limits.RegionBytes, SpillPerWorker: c.Limits.SpillBytes,
		Domains: len(c.Domains), Workers: workers, Peers: len(c.Peers),
	}
	for _, class := range c.Classes {
		m.Rings = append(m.Rings, RingMemory{class.Name, class.Slots, class.SlotSize, laneMemory(LaneOf(class), 1)})
	}
	remote := 2 * m.Peers * m.Domains
	ways := remote + m.Domains
	m.Total = ways*way.Total() + m.Domains*m.Domain + workers*m.Worker + m.Peers*linkPrivate
	m.Locked = remote * way.Pinned
	m.Descriptors = workers*WorkerFDs + m.Peers + ways*lanes*LaneFDs + 4*m.Domains
	return m
}

// Mapped returns the size of a segment as it is mapped: whole pages.
func Mapped(bytes int) int {
	page := os.Getpagesize()
	return (bytes + page - 1) / page * page
}
