package pingpong

import (
	"context"
	"encoding/binary"
	"fmt"

	"github.com/rdmad/rdmad/internal/bench/content"
	"github.com/rdmad/rdmad/internal/fabric"
	"github.com/rdmad/rdmad/internal/perf"
)

// end is one side of a ping-pong.
type end struct {
	t   *Tool
	s   *perf.Session
	ep  fabric.Endpoint
	mem []byte
	layout
	inline int

	size     int
	sent     uint64 // messages of this size
	received uint64
	arrivals uint64 // of all sizes: they take the receives in turn
	posted   uint64 // work requests since the last signaled one
	leaving  int    // signaled work requests that are not complete
	done     bool   // the read that was posted is complete
	news     int    // messages that have arrived and were not taken

	wc  [32]fabric.Completion
	wrs [2]fabric.SendWR
	rwr [1]fabric.RecvWR
}

func newEnd(t *Tool, s *perf.Session) (*end, error) {
	e := &end{t: t, s: s, ep: s.Endpoints[0], mem: s.Region.Bytes(), layout: t.layout(), inline: t.InlineLimit(s.Caps)}
	if uint64(e.layout.size) > s.Peer.Len {
		return nil, fmt.Errorf("the other side has %d bytes of memory, %d are needed", s.Peer.Len, e.layout.size)
	}
	if t.Op == opSend || t.Op == opWriteImm {
		for i := range receives {
			if err := e.receive(i); err != nil {
				return nil, err
			}
		}
	}
	return e, nil
}

// receive posts a receive for the area i.
func (e *end) receive(i int) error {
	e.rwr[0] = fabric.RecvWR{ID: uint64(i)}
	if e.t.Op == opSend {
		e.rwr[0].Local = fabric.Local{Region: e.s.Region, Offset: uint64(e.in[i]), Len: uint32(e.area)}
	}
	_, err := e.ep.PostRecv(e.rwr[:])
	return err
}

// prepare makes both sides ready for messages of a size. Nothing is under way.
func (e *end) prepare(ctx context.Context, size int) error {
	e.size, e.sent, e.received = size, 0, 0
	clear(e.mem[e.in[0]:e.source])
	content.Fill(e.mem[:size], content.Stamp(e.t.Seed, 0))
	return e.s.Barrier(ctx)
}

// stamp is that of message n of a side.
func (e *end) stamp(n uint64, from fabric.Role) uint64 {
	return content.Stamp(e.t.Seed, 2*n+uint64(from))
}

// other is the other side's role.
func (e *end) other() fabric.Role { return fabric.Active + fabric.Passive - e.s.Role }

// mark is the last byte of message n, where that is looked at: different from the one before.
func mark(n uint64) byte { return byte(n%251) + 1 }

// looks says that arrivals are noticed by looking at the memory.
func (e *end) looks() bool { return e.t.Op == opWrite }

// send posts the next message, or read.
func (e *end) send(ctx context.Context) error {
	n := e.sent
	e.sent++
	msg := e.mem[:e.size]
	if e.t.Verify && e.t.Op != opRead {
		content.Restamp(msg, e.stamp(n, e.s.Role))
	} else if e.looks() {
		msg[e.size-1] = mark(n)
	}
	wr := &e.wrs[0]
	*wr = fabric.SendWR{Local: fabric.Local{Region: e.s.Region, Len: uint32(e.size)}, RemoteKey: e.s.Peer.Key, RemoteAddr: e.s.Peer.Addr + uint64(e.in[0])}
	if e.size <= e.inline {
		wr.Flags = fabric.FlagInline
	}
	count := 1
	switch e.t.Op {
	case opSend:
		wr.Op = fabric.OpSend
	case opWriteImm:
		wr.Op, wr.Imm = fabric.OpWriteImm, uint32(n)
	case opWrite:
		wr.Op = fabric.OpWrite
		if e.t.Verify {
			e.count(n)
			count = 2
		}
	case opRead:
		wr.Op, wr.Flags = fabric.OpRead, 0
		e.posted = signalEvery // each is waited for
		wr.RemoteAddr, wr.Local.Offset = e.s.Peer.Addr, uint64(e.in[0])
	}
	// What is not part of its work request is in use until it is complete, which settle waits for.
	if e.posted += uint64(count); e.posted >= signalEvery || e.size > e.inline {
		e.posted = 0
		e.wrs[count-1].Flags |= fabric.FlagSignaled
		e.leaving++
	}
	return e.post(ctx, e.wrs[:count])
}

// settle waits until the messages of a size have left: what a connection ends in the middle of,
// not every device takes back in time.
func (e *end) settle(ctx context.Context) error {
	defer e.s.Resume()
	for {
		if err := e.poll(); err != nil || e.leaving == 0 {
			return err
		}
		if err := e.s.Link.Err(); err != nil {
			return err
		}
		if err := e.s.Pause(ctx); err != nil {
			return err
		}
	}
}

// count prepares the write of the counter behind message n.
func (e *end) count(n uint64) {
	binary.LittleEndian.PutUint64(e.mem[e.source:], n+1)
	e.wrs[1] = fabric.SendWR{
		Op: fabric.OpWrite, Local: fabric.Local{Region: e.s.Region, Offset: uint64(e.source), Len: counterSize},
		RemoteKey: e.s.Peer.Key, RemoteAddr: e.s.Peer.Addr + uint64(e.counter),
	}
	if counterSize <= e.inline {
		e.wrs[1].Flags = fabric.FlagInline
	}
}

// post posts work requests, which have room once those before are complete.
func (e *end) post(ctx context.Context, wrs []fabric.SendWR) error {
	defer e.s.Resume()
	for {
		n, err := e.ep.PostSend(wrs)
		if wrs = wrs[n:]; len(wrs) == 0 {
			return nil
		}
		if !perf.Full(err) {
			return err
		}
		if err := e.poll(); err != nil {
			return err
		}
		if err := e.s.Spin(ctx); err != nil {
			return err
		}
	}
}

// poll takes what has completed.
func (e *end) poll() error {
	n, err := e.s.Poll(e.wc[:])
	if err != nil {
		return err
	}
	for _, c := range e.wc[:n] {
		switch c.Op {
		case fabric.OpRecv, fabric.OpRecvImm:
			if int(c.Len) != e.size && !(c.Op == fabric.OpRecvImm && e.s.Caps.UnsizedImm) {
				return fmt.Errorf("a message of %d bytes instead of %d", c.Len, e.size)
			}
			if c.Op == fabric.OpRecvImm && c.Imm != uint32(e.received) {
				return fmt.Errorf("message %d instead of %d", c.Imm, uint32(e.received))
			}
			e.news++
		case fabric.OpRead:
			e.done = true
			e.leaving--
		case fabric.OpSend, fabric.OpWrite, fabric.OpWriteImm:
			e.leaving--
		}
	}
	if e.looks() && e.arrived() {
		e.news = 1
	}
	return nil
}

// arrived looks whether the next message is in memory. The memory is read anew each time,
// because polling in between may have changed it.
func (e *end) arrived() bool {
	if e.t.Verify {
		return binary.LittleEndian.Uint64(e.mem[e.counter:]) == e.received+1
	}
	return e.mem[e.in[0]+e.size-1] == mark(e.received)
}

// await waits for the next message and takes it; false: the other side has something to say
// by the link instead.
func (e *end) await(ctx context.Context) (bool, error) {
	defer e.s.Resume()
	for {
		if err := e.poll(); err != nil {
			return false, err
		}
		if e.news > 0 {
			e.news--
			return true, e.take()
		}
		if e.s.Link.News() {
			return false, e.s.Link.Err()
		}
		if err := e.s.Pause(ctx); err != nil {
			return false, err
		}
	}
}

// take checks a message that has arrived, and posts its receive again.
func (e *end) take() error {
	n := e.received
	e.received++
	i := int(e.arrivals % receives)
	e.arrivals++
	if e.t.Verify {
		at := e.in[0]
		if e.t.Op == opSend {
			at = e.in[i]
		}
		msg := e.mem[at : at+e.size]
		if !content.Intact(msg, e.size, e.stamp(n, e.other())) {
			return fmt.Errorf("message %d of %d bytes has the wrong content", n, e.size)
		}
		clear(msg)
	}
	if e.t.Op == opWrite {
		return nil
	}
	return e.receive(i)
}
