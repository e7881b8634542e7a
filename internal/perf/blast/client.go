package blast

import (
	"context"
	"errors"
	"fmt"

	"github.com/rdmad/rdmad/internal/bench/content"
	"github.com/rdmad/rdmad/internal/fabric"
	"github.com/rdmad/rdmad/internal/perf"
	"github.com/rdmad/rdmad/internal/perf/report"
	"github.com/rdmad/rdmad/shm"
)

// fenceID is the ID of a read behind writes. Other work requests have the message's number.
const fenceID = ^uint64(0)

// client is the side that sends, or reads. Messages are numbered through all sizes.
type client struct {
	t   *Tool
	s   *perf.Session
	ep  fabric.Endpoint
	mem []byte
	layout
	inline int
	every  uint64 // each so many work requests ask for a completion

	size   int
	first  uint64 // message of this size
	sent   uint64
	done   uint64 // messages before this one have left the send queue
	acked  uint64 // messages before this one have arrived
	quiet  uint64 // work requests since the last signaled one
	fenced bool   // the read behind writes is complete
	peak   peak

	wc  [64]fabric.Completion
	wrs []fabric.SendWR
	rwr [1]fabric.RecvWR
}

func newClient(t *Tool, s *perf.Session) (*client, error) {
	c := &client{
		t: t, s: s, ep: s.Endpoints[0], mem: s.Region.Bytes(), layout: t.layout(), inline: t.InlineLimit(s.Caps),
		every: uint64(max(1, t.TxDepth/4)), wrs: make([]fabric.SendWR, t.PostList),
	}
	if uint64(c.layout.size) > s.Peer.Len {
		return nil, fmt.Errorf("the server has %d bytes of memory, %d are needed", s.Peer.Len, c.layout.size)
	}
	if t.Verify && !t.credited() {
		c.every = 1 // each is waited for
	}
	if t.credited() {
		for range creditDepth {
			if _, err := c.ep.PostRecv(c.rwr[:]); err != nil {
				return nil, err
			}
		}
	}
	return c, nil
}

func (c *client) measure(ctx context.Context) (*report.Report, error) {
	r := &report.Report{Info: report.NewInfo("blast "+c.t.Op, &c.t.Work, c.s)}
	r.Info.TxDepth = c.t.TxDepth
	if c.t.credited() {
		r.Info.RxDepth = c.window
	}
	for _, size := range c.t.Sizes {
		row, err := c.measureSize(ctx, size)
		if err != nil {
			return nil, err
		}
		r.Results = append(r.Results, row)
	}
	return r, nil
}

func (c *client) measureSize(ctx context.Context, size int) (row report.Row, err error) {
	c.size, c.first, c.quiet = size, c.sent, 0
	for slot := range c.slots {
		msg := c.slot(uint64(slot))
		content.Fill(msg, content.Stamp(c.t.Seed, uint64(slot)))
		if c.t.Op == opRead {
			clear(msg)
		}
	}
	if err := c.s.Barrier(ctx); err != nil {
		return row, err
	}
	meter := perf.StartMeter()
	start := shm.Nanotime()
	c.peak = newPeak(c.t.Count, c.t.Duration, c.sent, start)
	for over := false; !over; {
		if over, err = c.burst(ctx, start); err != nil {
			return row, err
		}
	}
	if err := c.drain(ctx); err != nil {
		return row, err
	}
	took := shm.Nanotime() - start
	row = report.Row{Size: size, Iterations: c.sent - c.first, ClientCPU: meter.Read()}
	row.Bandwidth = report.NewBandwidth(size, row.Iterations, took, c.peak.rate(row.Iterations, took))
	var s served
	if err := c.ask(ctx, kindEnd, ending{Messages: c.sent}, kindServed, &s); err != nil {
		return row, err
	}
	row.ServerCPU = s.CPU
	return row, nil
}

// ask sends a message to the server and waits for its answer. The server needs nothing of this
// side's queue meanwhile.
func (c *client) ask(ctx context.Context, kind string, body any, answer string, into any) error {
	if err := c.s.Link.Send(kind, body); err != nil {
		return err
	}
	return c.s.Link.Receive(ctx, answer, into)
}

// slot is the memory of message n.
func (c *client) slot(n uint64) []byte {
	at := c.offset(n)
	return c.mem[at : at+c.size]
}

func (l *layout) offset(n uint64) int { return int(n%uint64(l.slots)) * l.stride }

// burst posts what may be posted, or waits; over says that it was the last of this size.
func (c *client) burst(ctx context.Context, start int64) (over bool, err error) {
	room := c.room()
	if room == 0 {
		if c.t.Op == opWrite && c.t.Verify && c.sent-c.acked == uint64(c.window) {
			return false, c.check(ctx)
		}
		return false, c.wait(ctx)
	}
	count := min(room, len(c.wrs))
	for i := range c.wrs[:count] {
		c.prepare(&c.wrs[i], c.sent+uint64(i))
	}
	last := c.wrs[count-1].Flags&fabric.FlagSignaled != 0
	if err := c.post(ctx, c.wrs[:count], &c.sent); err != nil {
		return false, err
	}
	n := c.sent - c.first
	if c.t.Count > 0 {
		return n == c.t.Count, nil
	}
	// The clock is not read for each message.
	return last && c.t.Over(n, shm.Nanotime()-start), nil
}

// room is how many messages may be posted.
func (c *client) room() int {
	room := uint64(c.t.TxDepth) - (c.sent - c.done)
	if c.t.credited() || c.t.Verify && c.t.Op == opWrite {
		room = min(room, uint64(c.window)-(c.sent-c.acked))
	}
	if c.t.Verify && c.t.Op == opRead {
		room = min(room, uint64(c.window)-(c.sent-c.done))
	}
	if c.t.Count > 0 {
		room = min(room, c.t.Count-(c.sent-c.first))
	}
	return int(room)
}

// prepare fills in the work request of message n.
func (c *client) prepare(wr *fabric.SendWR, n uint64) {
	at := c.offset(n)
	*wr = fabric.SendWR{
		ID: n, Local: fabric.Local{Region: c.s.Region, Offset: uint64(at), Len: uint32(c.size)},
		RemoteKey: c.s.Peer.Key, RemoteAddr: c.s.Peer.Addr + uint64(at),
	}
	switch c.t.Op {
	case opSend:
		wr.Op = fabric.OpSend
	case opWrite:
		wr.Op = fabric.OpWrite
	case opWriteImm:
		wr.Op, wr.Imm = fabric.OpWriteImm, uint32(n)
	case opRead:
		wr.Op = fabric.OpRead
	}
	if c.size <= c.inline && c.t.Op != opRead {
		wr.Flags = fabric.FlagInline
	}
	if c.t.Verify && c.t.Op != opRead {
		content.Restamp(c.slot(n), content.Stamp(c.t.Seed, n))
	}
	c.quiet++
	if c.quiet >= c.every || c.t.Count > 0 && n-c.first+1 == c.t.Count {
		c.quiet = 0
		wr.Flags |= fabric.FlagSignaled
	}
}

// post posts work requests, for which there usually is room, and adds each to taken as soon as it has
// been: the server may have got it while those behind it still wait.
func (c *client) post(ctx context.Context, wrs []fabric.SendWR, taken *uint64) error {
	defer c.s.Resume()
	for {
		n, err := c.ep.PostSend(wrs)
		*taken += uint64(n)
		if wrs = wrs[n:]; len(wrs) == 0 {
			return nil
		}
		if !perf.Full(err) {
			return err
		}
		if err := c.poll(); err != nil {
			return err
		}
		if err := c.s.Spin(ctx); err != nil {
			return err
		}
	}
}

// poll takes what has completed.
func (c *client) poll() error {
	n, err := c.s.Poll(c.wc[:])
	if err != nil {
		return err
	}
	return c.takeAll(n)
}

// wait waits for completions and takes them.
func (c *client) wait(ctx context.Context) error {
	n, err := c.s.Await(ctx, c.wc[:])
	if err != nil {
		return err
	}
	if n == 0 {
		return errors.New("the server has something to say before the end")
	}
	return c.takeAll(n)
}

// takeAll takes n completions.
func (c *client) takeAll(n int) error {
	if n == 0 {
		return nil
	}
	for i := range c.wc[:n] {
		if err := c.take(&c.wc[i]); err != nil {
			return err
		}
	}
	progress := c.done
	if c.t.credited() {
		progress = c.acked
	}
	c.peak.see(progress, shm.Nanotime())
	return nil
}

func (c *client) take(w *fabric.Completion) error {
	switch w.Op {
	case fabric.OpRecvImm:
		// The number of the first message that the server has not got; older credits
		// may come later.
		if ahead := w.Imm - uint32(c.acked); ahead < 1<<31 {
			c.acked += uint64(ahead)
		}
		if c.acked > c.sent {
			return fmt.Errorf("the server has got message %d, which was not sent", c.acked-1)
		}
		_, err := c.ep.PostRecv(c.rwr[:])
		return err
	case fabric.OpRead:
		if w.ID == fenceID {
			c.fenced = true
			return nil
		}
		if c.t.Verify {
			if err := c.look(w.ID); err != nil {
				return err
			}
		}
	}
	c.done = max(c.done, w.ID+1)
	return nil
}

// look verifies what read n has brought.
func (c *client) look(n uint64) error {
	msg := c.slot(n)
	if !content.Intact(msg, c.size, content.Stamp(c.t.Seed, n%uint64(c.slots))) {
		return fmt.Errorf("read %d of %d bytes has brought the wrong content", n, c.size)
	}
	clear(msg)
	return nil
}

// drain waits until everything that was posted has arrived.
func (c *client) drain(ctx context.Context) error {
	switch {
	case c.t.credited():
		if c.t.Count == 0 {
			// The server only knows now that there are no more.
			if err := c.s.Link.Send(kindLast, ending{Messages: c.sent}); err != nil {
				return err
			}
		}
		for c.acked < c.sent {
			if err := c.wait(ctx); err != nil {
				return err
			}
		}
		c.done = c.sent
		return nil
	case c.t.Op == opWrite && c.t.Verify:
		return c.check(ctx)
	case c.t.Op == opWrite:
		return c.fence(ctx)
	}
	for c.done < c.sent {
		if err := c.wait(ctx); err != nil {
			return err
		}
	}
	return nil
}

// fence reads a byte behind the writes that were posted. It waits for their completions first:
// where writes have no order, a read may overtake those that are still in the queue. The last
// one has asked for a completion.
func (c *client) fence(ctx context.Context) error {
	for c.done < c.sent {
		if err := c.wait(ctx); err != nil {
			return err
		}
	}
	c.wrs[0] = fabric.SendWR{
		ID: fenceID, Op: fabric.OpRead, Flags: fabric.FlagSignaled, Local: fabric.Local{Region: c.s.Region, Offset: uint64(c.source), Len: 1},
		RemoteKey: c.s.Peer.Key, RemoteAddr: c.s.Peer.Addr + uint64(c.offset(c.sent-1)),
	}
	c.fenced = false
	if err := c.post(ctx, c.wrs[:1], new(uint64)); err != nil {
		return err
	}
	for !c.fenced {
		if err := c.wait(ctx); err != nil {
			return err
		}
	}
	c.done = c.sent
	return nil
}

// check has the server verify the writes since the last check.
func (c *client) check(ctx context.Context) error {
	if err := c.fence(ctx); err != nil {
		return err
	}
	if err := c.ask(ctx, kindCheck, checking{From: c.acked, To: c.sent}, kindChecked, &nothing{}); err != nil {
		return err
	}
	c.acked = c.sent
	return nil
}
