package randomfill

import (
	"context"

	"github.com/rdmad/rdmad/internal/fabric"
	"github.com/rdmad/rdmad/internal/perf"
)

// Name is the tool's.
const Name = "randomfill"

const (
	// MaxRounds bounds the requests of a run, MaxDepth the writes under way.
	MaxRounds = 1 << 20
	MaxDepth  = 1 << 14
)

// Tool implements perf.Tool: one run of randomfill. Its result is a *Result on the client's
// side.
type Tool struct {
	Layout
	// Seed makes the bytes, and the lists where there are none.
	Seed uint64 `json:"seed"`
	// Rounds is how many requests are made one after the other, each with other bytes.
	Rounds uint64 `json:"rounds"`
	// Depth is how many writes the server may have under way.
	Depth int `json:"depth"`
	// Event: wait for completions by sleeping in the kernel instead of polling.
	Event bool `json:"event"`
	// Lists are the client's: which pages to fill. With nil lists each round draws others from
	// the seed. They travel with the requests.
	Lists *Lists `json:"-"`
}

// written is what the server says of a round, after the client has verified it.
type written struct {
	Ns        int64    `json:"ns"`
	QueueFull uint64   `json:"queue_full"`
	Ordered   bool     `json:"ordered_writes"`
	CPU       perf.CPU `json:"cpu"`
}

// verified is the client's word for a round that has arrived.
type verified struct {
	Round uint64 `json:"round"`
}

// Kinds of messages over the link.
const (
	kindVerified = "verified"
	kindWritten  = "written"
)

// Name implements perf.Tool.
func (t *Tool) Name() string { return Name }

// Check implements perf.Tool.
func (t *Tool) Check(caps fabric.Caps) error {
	if err := t.Layout.Check(); err != nil {
		return err
	}
	switch {
	case t.Rounds < 1 || t.Rounds > MaxRounds:
		return perf.Inputf("%d requests: want 1 to %d (--iters)", t.Rounds, MaxRounds)
	case t.Depth < 1 || t.Depth > min(MaxDepth, caps.MaxSendDepth):
		return perf.Inputf("%d writes under way: want 1 to %d (--tx-depth)", t.Depth, min(MaxDepth, caps.MaxSendDepth))
	}
	if t.Lists != nil {
		return t.CheckLists(*t.Lists)
	}
	return nil
}

// Plan implements perf.Tool.
func (t *Tool) Plan(role fabric.Role) perf.Plan {
	p := perf.Plan{Event: t.Event, SendDepth: 1, RecvDepth: 1, Buffer: requestSize(t.Pages)}
	if role == fabric.Active {
		p.Regions, p.Access = []int{t.Region, t.Region}, fabric.AccessRemoteWrite
		return p
	}
	p.SendDepth = t.Depth
	size := t.Pages * t.PageSize
	p.Regions = []int{size, size}
	return p
}

// Run implements perf.Tool.
func (t *Tool) Run(ctx context.Context, s *perf.Session) (any, error) {
	if s.Role == fabric.Passive {
		return nil, t.server(ctx, s)
	}
	result, err := t.client(ctx, s)
	if err != nil {
		return nil, err
	}
	return result, nil
}
