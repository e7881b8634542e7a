package atomics

import (
	"context"

	"github.com/rdmad/rdmad/internal/fabric"
	"github.com/rdmad/rdmad/internal/perf"
)

// Name is the tool's.
const Name = "atomics"

// The types of operations, by perftest's names.
const (
	FetchAdd    = "FETCH_AND_ADD"
	CompareSwap = "CMP_AND_SWAP"
)

// Types are all of them.
var Types = []string{FetchAdd, CompareSwap}

const (
	// MaxClients bounds the connections of all clients together, MaxDepth the operations that each has under way.
	MaxClients = 256
	MaxDepth   = 1024
	// MaxIncrements bounds the increments of a type, of all connections together: each is
	// remembered.
	MaxIncrements = 1 << 28
)

// Tool implements perf.Crowd: one run of atomics. Its result is a *Result on the client's side.
type Tool struct {
	// Types are what is done, one after the other.
	Types []string `json:"types"`
	// Clients is the number of processes that count at the same time, Connections how many
	// each of them has, all of which count.
	Clients     int `json:"clients"`
	Connections int `json:"connections"`
	// Count is the number of increments of each connection, for each type.
	Count uint64 `json:"count"`
	// Depth is how many FetchAdd a connection has under way. CompareSwap needs the outcome of
	// the one before, so that it is one at a time.
	Depth int `json:"depth"`
	// Event: wait for completions by sleeping in the kernel instead of polling.
	Event bool `json:"event"`
}

// Name implements perf.Tool.
func (t *Tool) Name() string { return Name }

// Check implements perf.Tool.
func (t *Tool) Check(caps fabric.Caps) error {
	if !caps.Atomics {
		return perf.Inputf("this device does no atomic operations (see: rdmad devices)")
	}
	if len(t.Types) < 1 || len(t.Types) > len(Types) {
		return perf.Inputf("%d types of operations: want 1 or %d (--atomic-type)", len(t.Types), len(Types))
	}
	for i, name := range t.Types {
		if name != FetchAdd && name != CompareSwap || i > 0 && name == t.Types[0] {
			return perf.Inputf("%.40q: want %s or %s, once (--atomic-type)", name, FetchAdd, CompareSwap)
		}
	}
	most := min(MaxDepth, caps.MaxSendDepth)
	switch {
	case t.Clients < 1 || t.Clients > MaxClients:
		return perf.Inputf("%d clients: want 1 to %d (--clients)", t.Clients, MaxClients)
	case t.Connections < 1 || t.Connections > MaxClients/t.Clients:
		return perf.Inputf("%d connections of each of %d clients: want 1 to %d (--connections)", t.Connections, t.Clients, MaxClients/t.Clients)
	case t.Count < 1 || t.Count > MaxIncrements/uint64(t.all()):
		return perf.Inputf("%d increments of %d connections: want 1 to %d of each (--iters)", t.Count, t.all(), MaxIncrements/t.all())
	case t.Depth < 1 || t.Depth > most:
		return perf.Inputf("%d operations under way: want 1 to %d (--tx-depth)", t.Depth, most)
	}
	return nil
}

// all is the number of connections of all clients.
func (t *Tool) all() int { return t.Clients * t.Connections }

// Members implements perf.Crowd.
func (t *Tool) Members() int { return t.Clients }

// Plan implements perf.Tool. The client's is that of each of its processes.
func (t *Tool) Plan(role fabric.Role) perf.Plan {
	p := perf.Plan{Event: t.Event, Endpoints: t.Connections, SendDepth: t.Depth, RecvDepth: 1}
	if role == fabric.Active {
		p.Buffer = t.Connections * t.Depth * wordSize
		return p
	}
	p.Endpoints = t.all()
	// Some providers take an atomic operation for a write, and want the right to that, too.
	p.Buffer, p.Access = memorySize, fabric.AccessRemoteAtomic|fabric.AccessRemoteRead|fabric.AccessRemoteWrite
	return p
}

// Run implements perf.Tool.
func (t *Tool) Run(ctx context.Context, s *perf.Session) (any, error) {
	if s.Role == fabric.Passive {
		return nil, t.server(ctx, s)
	}
	if t.Clients > 1 {
		return nil, t.member(ctx, s)
	}
	result, err := t.client(ctx, s)
	if err != nil {
		return nil, err
	}
	return result, nil
}

// Kinds of messages over the link.
const (
	kindOver  = "over"
	kindFinal = "final"
	// kindValue is a member's.
	kindValue = "value"
)

// over is what the client says when all increments of a type are done.
type over struct {
	Type string `json:"type"`
}

// value is what a member reads when all members have counted.
type value struct {
	Value uint64 `json:"value"`
}

// final is what the server finds in its memory at the end of a type.
type final struct {
	Value uint64   `json:"value"`
	CPU   perf.CPU `json:"cpu"`
}
