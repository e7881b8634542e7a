package observe

import (
	"context"
	"encoding/json"

	"github.com/rdmad/rdmad/internal/counters"
)

// Source is the daemon. All methods are safe for concurrent use.
type Source interface {
	// Status returns the daemon's state as JSON. It asks the agents, so it may take for
	// ever, whatever becomes of ctx.
	Status(ctx context.Context) (json.RawMessage, error)
	// Alive returns when all agents have answered. It may take for ever.
	Alive(ctx context.Context)
	// Snapshot returns what is counted. Nobody is asked.
	Snapshot() (*counters.Snapshot, error)
	// Facts returns what is known without asking an agent. It may take for ever, too, if the daemon hangs.
	Facts() Facts
}

// Facts is what the daemon knows without asking an agent.
type Facts struct {
	// Fabric is the provider in use, "" for none, and Detail what the device says of
	// itself.
	Fabric, Detail string
	// Draining: the node takes no new requests.
	Draining bool
	// Peers are in the order of their names.
	Peers []Peer
}

// Peer is a configured peer.
type Peer struct {
	Name string
	// Connected: there is a session. AgeS is for how long it has been so, or not, in
	// seconds.
	Connected bool
	AgeS      float64
}
