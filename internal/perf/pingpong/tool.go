package pingpong

import (
	"context"
	"slices"

	"github.com/rdmad/rdmad/internal/fabric"
	"github.com/rdmad/rdmad/internal/perf"
)

// What carries the messages.
const (
	opSend     = "send"
	opWrite    = "write"
	opWriteImm = "write-imm"
	opRead     = "read"
)

// Ops are the values of Tool.Op.
var Ops = []string{opSend, opWrite, opWriteImm, opRead}

// Tool is what is to be measured. The client's Run returns a *report.Report, the server's
// nothing.
type Tool struct {
	perf.Work
	// Op is one of Ops.
	Op string `json:"op"`
}

// Name implements perf.Tool.
func (t *Tool) Name() string { return "pingpong" }

// Check implements perf.Tool.
func (t *Tool) Check(caps fabric.Caps) error {
	switch {
	case !slices.Contains(Ops, t.Op):
		return perf.Inputf("--op %q: want one of send, write, write-imm, read", t.Op)
	case t.Op == opWrite && t.Event:
		return perf.Inputf("--op write with --events: a plain write wakes nobody; use --op write-imm")
	case t.Op == opWrite && !caps.OrderedWrites:
		return perf.Inputf("--op write: writes have no order on this device, so that nobody can tell by looking at memory that one is there; use --op write-imm")
	}
	return t.Work.Check(caps)
}

const (
	// receives is how many are posted: one for the message under way, and one more because a
	// side posts again after it has looked at what has arrived.
	receives = 2
	// signalEvery is how often a message asks for a completion: its arrival is known by
	// the answer, but the send queue must be emptied.
	signalEvery = 16
	// depth is room for those and, with verified writes, as many counters.
	depth = 4 * signalEvery
	// counterSize is that of the counter behind a write, and of its source.
	counterSize = 8
	align       = 64
)

// Plan implements perf.Tool.
func (t *Tool) Plan(fabric.Role) perf.Plan {
	return perf.Plan{
		Event: t.Event, SendDepth: depth, RecvDepth: receives, Buffer: t.layout().size,
		Access: fabric.AccessRemoteWrite | fabric.AccessRemoteRead,
	}
}

// layout is where things are in the registered memory of both sides.
type layout struct {
	area    int           // of a message
	in      [receives]int // where messages arrive; writes in the first
	counter int           // of the other side's writes
	source  int           // of the counter of this side's
	size    int
}

func (t *Tool) layout() layout {
	area := (t.Largest() + align - 1) / align * align
	l := layout{area: area}
	for i := range l.in {
		l.in[i] = (1 + i) * area
	}
	l.counter = (1 + receives) * area
	l.source = l.counter + align
	l.size = l.source + align
	return l
}

// Run implements perf.Tool.
func (t *Tool) Run(ctx context.Context, s *perf.Session) (any, error) {
	e, err := newEnd(t, s)
	if err != nil {
		return nil, err
	}
	if s.Role == fabric.Active {
		return e.measure(ctx)
	}
	return nil, e.answer(ctx)
}
