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
	// creditDepth is how many credits may be under way. A receiver sends one for a quarter
	// of the window, and at most two more for each size.
	creditDepth = 16
	// MaxQueues bounds Tool.Queues.
	MaxQueues = 128
)

// Tool is what is to be measured. The client's Run returns a *report.Report, the server's
// nothing.
type Tool struct {
	perf.Work
	// Op is one of Ops.
	Op string `json:"op"`
	// Queues is the number of queue pairs that messages go by at the same time, in each
	// direction. Count, TxDepth and RxDepth are those of each.
	Queues int `json:"queues"`
	// Both sides send, each by queue pairs of its own.
	Both bool `json:"bidirectional"`
	// TxDepth is how many messages a sender has in its send queue, RxDepth how many
	// receives a receiver posts and so how many messages it has not seen.
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
	case t.Queues < 1 || t.Queues > MaxQueues:
		return perf.Inputf("--qp %d: want 1 to %d", t.Queues, MaxQueues)
	}
	if err := t.Work.Check(caps); err != nil {
		return err
	}
	if memory := t.endpoints() * t.layout().size; memory > perf.MaxBuffer {
		return perf.Inputf("%d bytes of memory: at most %d, so fewer queue pairs or smaller messages (--qp, --size)", memory, perf.MaxBuffer)
	}
	return nil
}

// endpoints is how many each side has: first those by which the client sends, then those by which
// the server does.
func (t *Tool) endpoints() int {
	if t.Both {
		return 2 * t.Queues
	}
	return t.Queues
}

// sends says whether a side sends by its endpoint i.
func (t *Tool) sends(role fabric.Role, i int) bool { return (i < t.Queues) == (role == fabric.Active) }

// credited says that receivers give credits.
func (t *Tool) credited() bool { return t.Op == opSend || t.Op == opWriteImm }

// oneSided says that the side whose memory it is sees nothing of messages.
func (t *Tool) oneSided() bool { return t.Op == opWrite || t.Op == opRead }

// layout is where things are in an endpoint's part of the registered memory, on both sides.
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
		l.window = min(l.window, max(1, verifyMemory/t.endpoints()/l.stride))
		l.slots = l.window
	} else {
		l.slots = min(l.window, max(1, usualMemory/t.endpoints()/l.stride))
	}
	l.word = l.slots * l.stride
	l.source = l.word + align
	l.size = l.source + align
	return l
}

// offset is where message n is.
func (l *layout) offset(n uint64) int { return int(n%uint64(l.slots)) * l.stride }

// Plan implements perf.Tool.
func (t *Tool) Plan(role fabric.Role) perf.Plan {
	l := t.layout()
	p := perf.Plan{
		Event: t.Event, Endpoints: t.endpoints(), Buffer: t.endpoints() * l.size, SendDepth: creditDepth, RecvDepth: creditDepth,
		Access: fabric.AccessRemoteWrite,
	}
	if role == fabric.Active || t.Both {
		p.SendDepth = max(p.SendDepth, t.TxDepth+1)
	}
	if role == fabric.Passive || t.Both {
		p.RecvDepth = max(p.RecvDepth, l.window)
		p.Access |= fabric.AccessRemoteRead
	}
	if role == fabric.Passive && !t.Both && t.oneSided() {
		// There is nothing to be polled for: a device that needs this side says so.
		p.Event = true
	}
	return p
}

// Run implements perf.Tool.
func (t *Tool) Run(ctx context.Context, s *perf.Session) (any, error) {
	d, err := newSide(t, s)
	if err != nil {
		return nil, err
	}
	r, err := d.measure(ctx)
	if err != nil || s.Role == fabric.Passive {
		return nil, err
	}
	return r, nil
}

// Kinds of messages of the link.
const (
	kindLast    = "last"
	kindEnd     = "end"
	kindServed  = "served"
	kindCheck   = "check"
	kindChecked = "checked"
)

// last is what a side says when there are no more messages of a size than it has sent, where only it
// could know that, so that the other one gives credit for them.
type last struct {
	// Messages counts, for each queue pair, those of all sizes up to now.
	Messages []uint64 `json:"messages"`
}

// ending is what a side says when it knows that its messages of a size have arrived.
type ending struct {
	last
	// Sent is how many there were of this size, by all queue pairs, and Ns how long it took.
	Sent uint64 `json:"sent"`
	Ns   int64  `json:"ns"`
	// Best is the most messages per nanosecond that a part of the run had, 0 if it was too short for parts.
	Best float64 `json:"best"`
}

// served is the answer to the end.
type served struct {
	CPU perf.CPU `json:"cpu"`
}

// checking asks the other side to look at plain writes by a queue pair, From to To-1, that are all
// in its memory.
type checking struct {
	Queue int    `json:"queue"`
	From  uint64 `json:"from"`
	To    uint64 `json:"to"`
}

// checked is the answer: they are as they must be.
type checked struct {
	Queue int `json:"queue"`
}
