package atomics

import (
	"context"
	"errors"
	"fmt"

	"github.com/rdmad/rdmad/internal/fabric"
	"github.com/rdmad/rdmad/internal/perf"
	"github.com/rdmad/rdmad/internal/perf/link"
	"github.com/rdmad/rdmad/internal/perf/report"
	"github.com/rdmad/rdmad/shm"
)

// counting is a process's side of one type.
type counting struct {
	*Tool
	s       *perf.Session
	kind    string
	ends    []end
	tickets *tickets
	samples *report.Samples
	misses  uint64
	ops     uint64
	// ready are completions that were taken while something was posted.
	ready []fabric.Completion
	// begun and ended are when, on the clock that all processes of a machine have.
	begun, ended int64
	cpu          perf.CPU
}

// end is one of the connections that count.
type end struct {
	posted uint64
	// guess is what a CompareSwap expects.
	guess uint64
	// begun is when the operation of a slot was posted, free are the slots without one.
	begun []int64
	free  []uint64
}

// client is the only one.
func (t *Tool) client(ctx context.Context, s *perf.Session) (*Result, error) {
	result := newResult(t, t.info(s))
	// The server's counters are ready.
	if err := s.Barrier(ctx); err != nil {
		return nil, err
	}
	for _, kind := range t.Types {
		c, err := t.count(ctx, s, kind)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", kind, err)
		}
		read, err := c.read(ctx)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", kind, err)
		}
		if err := s.Link.Send(kindOver, over{Type: kind}); err != nil {
			return nil, err
		}
		var theirs final
		if err := s.Hear(ctx, kindFinal, &theirs); err != nil {
			return nil, fmt.Errorf("%s: %w", kind, err)
		}
		all := t.newTotal(kind)
		if err := errors.Join(all.add(c.tally()), all.settle([]uint64{read}, theirs)); err != nil {
			return nil, fmt.Errorf("%s: %w", kind, err)
		}
		result.Results = append(result.Results, all.row(theirs))
	}
	return result, nil
}

// info says how a session of a client works.
func (t *Tool) info(s *perf.Session) report.Info {
	return report.NewInfo(Name, &perf.Work{Event: t.Event, Verify: true}, s)
}

// count does one type, on all connections of this process.
func (t *Tool) count(ctx context.Context, s *perf.Session, kind string) (*counting, error) {
	if s.Peer.Len != memorySize {
		return nil, &link.ProtocolError{Detail: fmt.Sprintf("%d bytes of memory instead of %d", s.Peer.Len, memorySize)}
	}
	c := &counting{
		Tool: t, s: s, kind: kind, ends: make([]end, t.Connections), tickets: newTickets(t.Count * uint64(t.all())), samples: report.NewSamples(1),
	}
	depth := t.Depth
	if kind == CompareSwap {
		depth = 1
	}
	for i := range c.ends {
		e := &c.ends[i]
		e.guess, e.begun = start, make([]int64, depth)
		for slot := range depth {
			e.free = append(e.free, uint64(slot))
		}
	}
	meter := perf.StartMeter()
	c.begun = shm.Nanotime()
	err := c.run(ctx)
	c.ended, c.cpu = shm.Nanotime(), meter.Read()
	return c, err
}

// tally is what this process has to say of a type.
func (c *counting) tally() tally {
	return tally{Ops: c.ops, Misses: c.misses, Begun: c.begun, Ended: c.ended, CPU: c.cpu, Samples: c.samples.Pack(), Tickets: c.tickets.bytes()}
}

// run counts until every connection has done its increments.
func (c *counting) run(ctx context.Context) error {
	for i := range c.ends {
		if err := c.post(ctx, i); err != nil {
			return err
		}
	}
	var got [64]fabric.Completion
	for c.tickets.count < c.Count*uint64(len(c.ends)) {
		if len(c.ready) == 0 {
			n, err := c.s.Completions(ctx, got[:])
			if err != nil {
				return err
			}
			c.ready = append(c.ready, got[:n]...)
		}
		now := c.ready
		c.ready = nil
		for _, d := range now {
			if err := c.completed(d); err != nil {
				return err
			}
			if err := c.post(ctx, int(d.Tag)); err != nil {
				return err
			}
		}
		c.ready = append(now[:0], c.ready...)
		// The server sees nothing of operations on its memory.
		if err := c.s.AtWork(shm.Nanotime()); err != nil {
			return err
		}
	}
	return nil
}

// post posts what a connection has room and reason for.
func (c *counting) post(ctx context.Context, i int) error {
	e := &c.ends[i]
	for e.posted < c.Count && len(e.free) > 0 {
		slot := e.free[len(e.free)-1]
		e.free = e.free[:len(e.free)-1]
		wr := c.request(fabric.OpFetchAdd, i, slot)
		wr.Swap = 1
		if c.kind == CompareSwap {
			wr.Op, wr.Compare, wr.Swap = fabric.OpCompareSwap, e.guess, e.guess+1
		}
		e.posted++
		e.begun[slot] = shm.Nanotime()
		if _, err := c.s.PostAll(ctx, c.s.Endpoints[i], []fabric.SendWR{wr}, func(d fabric.Completion) { c.ready = append(c.ready, d) }); err != nil {
			return err
		}
	}
	return nil
}

// request is an operation of a connection on the counter, whose outcome goes to a slot.
func (c *counting) request(op fabric.Op, i int, slot uint64) fabric.SendWR {
	return fabric.SendWR{
		ID: slot, Op: op, Flags: fabric.FlagSignaled,
		Local:      fabric.Local{Region: c.s.Region, Offset: uint64(c.place(i, slot)), Len: wordSize},
		RemoteAddr: c.s.Peer.Addr + uint64(offset(c.kind)), RemoteKey: c.s.Peer.Key,
	}
}

// place is where a connection's slot is in this side's memory.
func (c *counting) place(i int, slot uint64) int { return (i*c.Depth + int(slot)) * wordSize }

// completed takes the outcome of an operation.
func (c *counting) completed(d fabric.Completion) error {
	if d.Tag >= uint64(len(c.ends)) || d.ID >= uint64(len(c.ends[d.Tag].begun)) || d.Op != fabric.OpFetchAdd && d.Op != fabric.OpCompareSwap {
		return &link.ProtocolError{Detail: fmt.Sprintf("operation %d has completed, which was not posted", d.Op)}
	}
	e := &c.ends[d.Tag]
	c.samples.Record(shm.Nanotime() - e.begun[d.ID])
	c.ops++
	e.free = append(e.free, d.ID)
	old := word(c.s.Region.Bytes(), c.place(int(d.Tag), d.ID))
	if c.kind == CompareSwap && old != e.guess {
		// The counter only grows, so another has counted since this client has looked.
		if old-start > c.tickets.total || old < e.guess {
			return broken("a compare-and-swap has expected %d and found %d", e.guess, old)
		}
		c.misses++
		e.guess = old
		e.posted--
		return nil
	}
	e.guess = old + 1
	return c.tickets.take(old)
}

// read reads the counter once all operations are over.
func (c *counting) read(ctx context.Context) (uint64, error) {
	wr := c.request(fabric.OpRead, 0, 0)
	read := false
	took := func(fabric.Completion) { read = true }
	if _, err := c.s.PostAll(ctx, c.s.Endpoints[0], []fabric.SendWR{wr}, took); err != nil {
		return 0, err
	}
	var d [1]fabric.Completion
	if !read {
		if _, err := c.s.Completions(ctx, d[:]); err != nil {
			return 0, err
		}
	}
	return word(c.s.Region.Bytes(), c.place(0, 0)), nil
}
