package rc

import (
	"context"
	"time"

	"github.com/rdmad/rdmad/internal/fabric"
	"github.com/rdmad/rdmad/internal/perf"
)

// Name is the tool's.
const Name = "rc"

// MaxPollTimeout bounds Tool.PollTimeout: a session gives up by itself then.
const MaxPollTimeout = perf.Stall

// Tool implements perf.Tool: one run of rc. Its result is a *Result on the client's side.
type Tool struct {
	// Size is the number of bytes that each operation moves.
	Size int `json:"size"`
	// Seed makes the bytes.
	Seed uint64 `json:"seed"`
	// PollTimeout is how long each completion may take.
	PollTimeout time.Duration `json:"poll_timeout"`
	// Event: wait for completions by sleeping in the kernel instead of polling.
	Event bool `json:"event"`
}

// Name implements perf.Tool.
func (t *Tool) Name() string { return Name }

// Check implements perf.Tool.
func (t *Tool) Check(fabric.Caps) error {
	switch {
	case t.Size < 1 || t.Size > perf.LargestSize:
		return perf.Inputf("%d bytes: want 1 to %d (--size)", t.Size, perf.LargestSize)
	case t.PollTimeout < time.Millisecond || t.PollTimeout > MaxPollTimeout:
		return perf.Inputf("%v for a completion: want 1ms to %v (--poll-timeout)", t.PollTimeout, MaxPollTimeout)
	}
	return nil
}

// Plan implements perf.Tool.
func (t *Tool) Plan(fabric.Role) perf.Plan {
	return perf.Plan{
		Event: t.Event, SendDepth: 2, RecvDepth: 1, Buffer: place{t.Size}.total(),
		Access: fabric.AccessRemoteWrite | fabric.AccessRemoteRead,
	}
}

// Run implements perf.Tool.
func (t *Tool) Run(ctx context.Context, s *perf.Session) (any, error) {
	r, err := newRun(t, s)
	if err != nil {
		return nil, err
	}
	result, err := r.all(ctx)
	if err != nil || s.Role == fabric.Passive {
		return nil, err
	}
	return result, nil
}

// The operations, as results name them.
const (
	opSend  = "send"
	opWrite = "write"
	opRead  = "read"
)

// step is one operation. From is the side that posts it.
type step struct {
	op   string
	from fabric.Role
}

// steps are those of a run, the server's send first.
var steps = []step{
	{opSend, fabric.Passive}, {opSend, fabric.Active},
	{opRead, fabric.Active}, {opRead, fabric.Passive},
	{opWrite, fabric.Active}, {opWrite, fabric.Passive},
}

// sideName is what a side is called.
func sideName(r fabric.Role) string {
	if r == fabric.Active {
		return "client"
	}
	return "server"
}

func otherRole(r fabric.Role) fabric.Role { return fabric.Active + fabric.Passive - r }
