package blast

import (
	"context"
	"fmt"

	"github.com/rdmad/rdmad/internal/bench/content"
	"github.com/rdmad/rdmad/internal/fabric"
	"github.com/rdmad/rdmad/internal/perf"
	"github.com/rdmad/rdmad/shm"
)

// phase is what a sender does.
type phase int

const (
	// sending: as much as may be posted.
	sending phase = iota
	// waiting: for credits, or completions of reads, of everything that was posted.
	waiting
	// fencing: until all writes have completed, to read a byte behind them.
	fencing
	// reading: that byte.
	reading
	// beingChecked: the other side looks at what was written.
	beingChecked
	// arrived: the other side has everything, or this one what it has read.
	arrived
)

// sender is the end of a queue pair that sends, or reads.
type sender struct {
	stream
	number int // among the senders of this side
	// poll takes what has completed, of all queue pairs, for when this one is full.
	poll  func(context.Context) error
	every uint64 // each so many work requests ask for a completion

	phase phase
	over  bool   // no more of this size
	first uint64 // message of this size
	sent  uint64
	done  uint64 // messages before this one have left the send queue
	acked uint64 // messages before this one have arrived
	quiet uint64 // work requests since the last signaled one

	wrs []fabric.SendWR
	rwr [1]fabric.RecvWR
}

func newSender(q stream, number int, poll func(context.Context) error) (*sender, error) {
	o := &sender{stream: q, number: number, poll: poll, every: uint64(max(1, q.t.TxDepth/4)), wrs: make([]fabric.SendWR, q.t.PostList)}
	if q.t.Verify && !q.t.credited() {
		o.every = 1 // each is waited for
	}
	if q.t.credited() {
		for range creditDepth {
			if _, err := o.ep.PostRecv(o.rwr[:]); err != nil {
				return nil, err
			}
		}
	}
	return o, nil
}

// begin makes it ready for messages of a size. Nothing is under way.
func (o *sender) begin(size int) {
	o.size, o.first, o.quiet, o.over, o.phase = size, o.sent, 0, false, sending
	for n := range uint64(o.slots) {
		msg := o.slot(n)
		content.Fill(msg, content.Stamp(o.seed, n))
		if o.t.Op == opRead {
			clear(msg)
		}
	}
}

// progress is how many messages are through, of all sizes.
func (o *sender) progress() uint64 {
	if o.t.credited() {
		return o.acked
	}
	return o.done
}

// step does what can be done without waiting, and reports whether that was anything.
func (o *sender) step(ctx context.Context, start int64) (did bool, err error) {
	switch o.phase {
	case sending:
		if room := o.room(); room > 0 {
			return true, o.burst(ctx, room, start)
		}
		if o.t.Op == opWrite && o.t.Verify && o.sent-o.acked == uint64(o.window) {
			o.phase = fencing
			return true, nil
		}
	case waiting:
		if o.progress() >= o.sent {
			o.done, o.phase = o.sent, arrived
			return true, nil
		}
	case fencing:
		// Where writes have no order, a read may overtake those that are still in the queue. The
		// last one has asked for a completion.
		if o.done >= o.sent {
			o.phase = reading
			return true, o.fence(ctx)
		}
	}
	return false, nil
}

// room is how many messages may be posted.
func (o *sender) room() int {
	room := uint64(o.t.TxDepth) - (o.sent - o.done)
	if o.t.credited() || o.t.Verify && o.t.Op == opWrite {
		room = min(room, uint64(o.window)-(o.sent-o.acked))
	}
	if o.t.Verify && o.t.Op == opRead {
		room = min(room, uint64(o.window)-(o.sent-o.done))
	}
	if o.t.Count > 0 {
		room = min(room, o.t.Count-(o.sent-o.first))
	}
	return int(room)
}

// burst posts messages, for which there is room.
func (o *sender) burst(ctx context.Context, room int, start int64) error {
	count := min(room, len(o.wrs))
	for i := range o.wrs[:count] {
		o.prepare(&o.wrs[i], o.sent+uint64(i))
	}
	last := o.wrs[count-1].Flags&fabric.FlagSignaled != 0
	if err := o.post(ctx, o.wrs[:count], &o.sent); err != nil {
		return err
	}
	n := o.sent - o.first
	if o.t.Count > 0 {
		o.over = n == o.t.Count
	} else {
		// The clock is not read for each message.
		o.over = last && o.t.Over(n, shm.Nanotime()-start)
	}
	if o.over {
		if o.phase = waiting; o.t.Op == opWrite {
			o.phase = fencing
		}
	}
	return nil
}

// prepare fills in the work request of message n.
func (o *sender) prepare(wr *fabric.SendWR, n uint64) {
	at := o.offset(n)
	*wr = fabric.SendWR{ID: n, Local: o.local(at, o.size), RemoteKey: o.s.Peer.Key, RemoteAddr: o.remote(at)}
	switch o.t.Op {
	case opSend:
		wr.Op = fabric.OpSend
	case opWrite:
		wr.Op = fabric.OpWrite
	case opWriteImm:
		wr.Op, wr.Imm = fabric.OpWriteImm, uint32(n)
	case opRead:
		wr.Op = fabric.OpRead
	}
	if o.size <= o.inline && o.t.Op != opRead {
		wr.Flags = fabric.FlagInline
	}
	if o.t.Verify && o.t.Op != opRead {
		content.Restamp(o.slot(n), content.Stamp(o.seed, n))
	}
	o.quiet++
	if o.quiet >= o.every || o.t.Count > 0 && n-o.first+1 == o.t.Count {
		o.quiet = 0
		wr.Flags |= fabric.FlagSignaled
	}
}

// post posts work requests, for which there usually is room, and adds each to taken as soon as it has
// been: the other side may have got it while those behind it still wait.
func (o *sender) post(ctx context.Context, wrs []fabric.SendWR, taken *uint64) error {
	defer o.s.Resume()
	for {
		n, err := o.ep.PostSend(wrs)
		*taken += uint64(n)
		if wrs = wrs[n:]; len(wrs) == 0 {
			return nil
		}
		if !perf.Full(err) {
			return o.s.Refused(err)
		}
		if err := o.poll(ctx); err != nil {
			return err
		}
		if err := o.s.Spin(ctx); err != nil {
			return err
		}
	}
}

// fence reads a byte behind the writes, all of which have completed.
func (o *sender) fence(ctx context.Context) error {
	wr := [1]fabric.SendWR{{
		ID: fenceID, Op: fabric.OpRead, Flags: fabric.FlagSignaled, Local: o.local(o.source, 1),
		RemoteKey: o.s.Peer.Key, RemoteAddr: o.remote(o.offset(o.sent - 1)),
	}}
	return o.post(ctx, wr[:], new(uint64))
}

// take takes a completion.
func (o *sender) take(w *fabric.Completion) error {
	switch w.Op {
	case fabric.OpRecvImm:
		// The number of the first message that the other side has not got; older credits
		// may come later.
		if ahead := w.Imm - uint32(o.acked); ahead < 1<<31 {
			o.acked += uint64(ahead)
		}
		if o.acked > o.sent {
			return fmt.Errorf("the other side has got message %d, which was not sent", o.acked-1)
		}
		_, err := o.ep.PostRecv(o.rwr[:])
		return err
	case fabric.OpRead:
		if w.ID == fenceID {
			return o.fenced()
		}
		if o.t.Verify {
			if err := o.look(w.ID); err != nil {
				return err
			}
		}
	}
	o.done = max(o.done, w.ID+1)
	return nil
}

// fenced goes on when all writes are known to be in the other side's memory.
func (o *sender) fenced() error {
	if !o.t.Verify {
		o.phase = arrived
		return nil
	}
	o.phase = beingChecked
	return o.s.Link.Send(kindCheck, checking{Queue: o.number, From: o.acked, To: o.sent})
}

// checked goes on when they are what they must be.
func (o *sender) checked() {
	o.acked = o.sent
	if o.phase = sending; o.over {
		o.phase = arrived
	}
}

// look verifies what read n has brought.
func (o *sender) look(n uint64) error {
	msg := o.slot(n)
	if !content.Intact(msg, o.size, content.Stamp(o.seed, n%uint64(o.slots))) {
		return fmt.Errorf("read %d of %d bytes has brought the wrong content", n, o.size)
	}
	clear(msg)
	return nil
}
