package scaling

import (
	"time"

	"github.com/rdmad/rdmad/internal/config"
)

// Fleet is a number of nodes of which each is a peer of each.
type Fleet struct {
	// Nodes are in the fleet, and each of them calls Calls others and is called by as
	// many. Workers are attached to each, Methods are what each node serves.
	Nodes, Calls, Workers, Methods int
	// Outstanding is how many requests of a node are on the wire.
	Outstanding int
	// Handshake is the processor time of a node for its end of a new link, Cores what it
	// has of processors.
	Handshake time.Duration
	Cores     int
}

// Estimate is what a fleet needs at each of its nodes.
type Estimate struct {
	Node
	// AllLinks is how many links the fleet has, and Restart how long it takes to set them up
	// after a restart of everything, for processors alone.
	AllLinks int
	Restart  time.Duration
	// Directory is what a node sends when one of its methods appears or goes, and
	// Directories what it gets from all others after a restart, in bytes.
	Directory, Directories int
	// Resync is what a node asks and is told when all its lanes come back with requests
	// outstanding, in bytes, and Opens the messages for that.
	Resync, Opens int
}

const (
	// listingBytes is the size of a method in a directory, with names of about 10 bytes.
	listingBytes = 96
	// sentBytes is what a request that waits for its answer takes in the question of a
	// lane, and verdictBytes in the answer; as base64 in JSON.
	sentBytes, verdictBytes = 28, 2
	// openBytes is the size of the question or the answer otherwise.
	openBytes = 400
)

// Estimate computes what a node of the fleet needs with a configuration.
func (f Fleet) Estimate(c *config.Config) Estimate {
	peers := f.Nodes - 1
	calls := min(f.Calls, peers)
	_, lanes := Lanes(c)
	return Estimate{
		Node:        Of(c, Load{Workers: f.Workers, Peers: peers, Calls: calls, Called: calls}),
		AllLinks:    f.Nodes * peers / 2,
		Restart:     time.Duration(peers) * f.Handshake / time.Duration(f.Cores),
		Directory:   peers * f.Methods * listingBytes,
		Directories: peers * f.Methods * listingBytes,
		Resync:      2*calls*lanes*openBytes + f.Outstanding*(sentBytes+verdictBytes),
		Opens:       2 * calls * lanes,
	}
}
