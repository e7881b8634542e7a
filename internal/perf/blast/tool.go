package blast

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

const (
	// DefaultTxDepth and DefaultRxDepth are perftest's.
	DefaultTxDepth = 128
	DefaultRxDepth = 512
	// verifyMemory bounds the memory for messages that are kept to be verified: the window
	// is smaller where messages are large.
	verifyMemory = 64 << 20
	// usualMemory is what messages share that nobody looks at: little enough to stay in a
	// processor's cache.
	usualMemory = 1 << 20
	align       = 64
	// creditDepth is how many credits may be under way. The server sends one for a quarter
	// of the window, and at most two more for each size.
	creditDepth = 16
)

// Tool is what is to be measured. The client's Run returns a *report.Report, the server's
// nothing.
type Tool struct {
	perf.Work
	// Op is one of Ops.
	Op string `json:"op"`
	// TxDepth is how many messages the client has in its send queue, RxDepth how many
	// receives the server posts and so how many messages it has not seen.
	TxDepth int `json:"tx_depth"`
	RxDepth int `json:"rx_depth"`
	// PostList is how many work requests are posted by one call.
	PostList int `json:"post_list"`
}

// Name implements perf.Tool.
func (t *Tool) Name() string { return "blast" }

// Check implements perf.Tool.
func (t *Tool) Check(caps fabric.Caps) error {
	// One work request more is the read behind writes.
	most := caps.MaxSendDepth - 1
	switch {
	case !slices.Contains(Ops, t.Op):
		return perf.Inputf("--op %q: want one of send, write, write-imm, read", t.Op)
	case t.TxDepth < 1 || t.TxDepth > most:
		return perf.Inputf("--tx-depth %d: this device takes 1 to %d", t.TxDepth, most)
	case t.RxDepth < 1 || t.RxDepth > caps.MaxRecvDepth:
		return perf.Inputf("--rx-depth %d: this device takes 1 to %d", t.RxDepth, caps.MaxRecvDepth)
	case t.PostList < 1 || t.PostList > t.TxDepth:
		return perf.Inputf("--post-list %d: want 1 to --tx-depth %d", t.PostList, t.TxDepth)
	}
	return t.Work.Check(caps)
}

// credited says that the server gives credits.
func (t *Tool) credited() bool { return t.Op == opSend || t.Op == opWriteImm }

// layout is where things are in the registered memory of both sides.
type layout struct {
	// stride is the room of a message, slots how many there are: message n is in slot
	// n % slots.
	stride, slots int
	// window is how many messages may be on their way, or not be verified yet.
	window int
	// word is where credits are written, source where from, and where reads that only
	// wait for something go.
	word, source int
	size         int
}

func (t *Tool) layout() layout {
	l := layout{stride: (t.Largest() + align - 1) / align * align, window: t.TxDepth}
	if t.credited() {
		l.window = t.RxDepth
	}
	if t.Verify {
		l.window = min(l.window, max(1, verifyMemory/l.stride))
		l.slots = l.window
	} else {
		l.slots = min(l.window, max(1, usualMemory/l.stride))
	}
	l.word = l.slots * l.stride
	l.source = l.word + align
	l.size = l.source + align
	return l
}

// Plan implements perf.Tool.
func (t *Tool) Plan(role fabric.Role) perf.Plan {
	l := t.layout()
	p := perf.Plan{Event: t.Event, Buffer: l.size, SendDepth: t.TxDepth + 1, RecvDepth: creditDepth, Access: fabric.AccessRemoteWrite}
	if role == fabric.Passive {
		p.SendDepth, p.RecvDepth = creditDepth, l.window
		p.Access |= fabric.AccessRemoteRead
	}
	return p
}

// Run implements perf.Tool.
func (t *Tool) Run(ctx context.Context, s *perf.Session) (any, error) {
	if s.Role == fabric.Active {
		c, err := newClient(t, s)
		if err != nil {
			return nil, err
		}
		return c.measure(ctx)
	}
	v, err := newServer(t, s)
	if err != nil {
		return nil, err
	}
	return nil, v.serve(ctx)
}

// Kinds of messages of the link.
const (
	kindLast    = "last"
	kindEnd     = "end"
	kindServed  = "served"
	kindCheck   = "check"
	kindChecked = "checked"
)

// ending is what the client says when it has sent all messages of a size: as kindLast, where
// only it could know that there are no more, so that the server gives credit for them, and as
// kindEnd when it knows that they have arrived.
type ending struct {
	// Messages counts those of all sizes up to now.
	Messages uint64 `json:"messages"`
}

// served is the server's answer to the end.
type served struct {
	CPU perf.CPU `json:"cpu"`
}

// check asks the server to look at plain writes, From to To-1, that are all in its memory.
type check struct {
	From uint64 `json:"from"`
	To   uint64 `json:"to"`
}

// nothing is the body of a message that has none.
type nothing struct{}
