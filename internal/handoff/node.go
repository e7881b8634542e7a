package handoff

import (
	"github.com/rdmad/rdmad/internal/event"
	"github.com/rdmad/rdmad/internal/version"
)

// Node says of what is in a depot from which core it is.
type Node struct {
	Versions version.Set `json:"versions"`
	// Boot names the boot of the machine, Incarnation the start of the daemon.
	Boot        string `json:"boot"`
	Incarnation string `json:"incarnation"`
	// Errors are the distinct errors that were counted.
	Errors []event.Entry `json:"errors,omitempty"`
	// Out: the node is out of service, since when in nanoseconds of the clock on the wall.
	Out int64 `json:"out,omitempty"`
}

// NodeKey is the key of the node in the depot.
const NodeKey = "node"
