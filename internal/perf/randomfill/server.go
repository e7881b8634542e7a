package randomfill

import (
	"context"
	"fmt"

	"github.com/rdmad/rdmad/internal/fabric"
	"github.com/rdmad/rdmad/internal/perf"
	"github.com/rdmad/rdmad/internal/perf/link"
	"github.com/rdmad/rdmad/shm"
)

// writer is the server's side of a run.
type writer struct {
	*Tool
	s    *perf.Session
	wrs  []fabric.SendWR
	done int // writes that have completed: all up to this one
}

func (t *Tool) server(ctx context.Context, s *perf.Session) error {
	if len(s.PeerRegions) != Regions {
		return &link.ProtocolError{Detail: fmt.Sprintf("%d regions instead of %d", len(s.PeerRegions), Regions)}
	}
	for i, r := range s.PeerRegions {
		if r.Len != uint64(t.Region) {
			return perf.Inputf("region %d has %d bytes instead of %d", i, r.Len, t.Region)
		}
	}
	w := &writer{Tool: t, s: s, wrs: make([]fabric.SendWR, 0, Regions*t.Pages)}
	if err := w.expect(); err != nil {
		return err
	}
	if err := s.Barrier(ctx); err != nil {
		return err
	}
	meter := perf.StartMeter()
	for round := range t.Rounds {
		if err := w.round(ctx, round, meter); err != nil {
			return fmt.Errorf("request %d of %d: %w", round+1, t.Rounds, err)
		}
	}
	return nil
}

// expect posts the receive for a request.
func (w *writer) expect() error {
	_, err := w.s.Endpoints[0].PostRecv([]fabric.RecvWR{{Local: fabric.Local{Region: w.s.Region, Len: uint32(requestSize(w.Pages))}}})
	return err
}

// round serves a request.
func (w *writer) round(ctx context.Context, round uint64, meter perf.Meter) error {
	q, err := w.take(ctx)
	if err != nil {
		return err
	}
	for i, r := range w.s.Regions {
		newStream(q.seed, i).fill(r.Bytes()[:w.Pages*w.PageSize])
	}
	begun := shm.Nanotime()
	full, err := w.write(ctx, q)
	if err != nil {
		return err
	}
	told := written{Ns: shm.Nanotime() - begun, QueueFull: full, Ordered: w.s.Caps.OrderedWrites}
	var over verified
	if err := w.s.Hear(ctx, kindVerified, &over); err != nil {
		return err
	}
	if over.Round != round {
		return &link.ProtocolError{Detail: fmt.Sprintf("round %d is over instead of %d", over.Round, round)}
	}
	if round+1 < w.Rounds {
		if err := w.expect(); err != nil {
			return err
		}
	}
	told.CPU = meter.Read()
	return w.s.Link.Send(kindWritten, told)
}

// take waits for a request and checks it.
func (w *writer) take(ctx context.Context) (request, error) {
	var c [1]fabric.Completion
	n, err := w.s.Await(ctx, c[:])
	switch {
	case err != nil:
		return request{}, err
	case n == 0 || c[0].Op != fabric.OpRecv:
		return request{}, &link.ProtocolError{Detail: "something else instead of a request"}
	}
	return w.decode(w.s.Region.Bytes()[:min(int(c[0].Len), requestSize(w.Pages))])
}

// write writes all pages and returns when the writes have completed, and how often the queue
// was full.
func (w *writer) write(ctx context.Context, q request) (full uint64, err error) {
	w.plan(q)
	w.done = 0
	e, rest := w.s.Endpoints[0], w.wrs
	post := func(wrs []fabric.SendWR) error {
		n, err := w.s.PostAll(ctx, e, wrs, w.complete)
		full += uint64(n)
		return err
	}
	if !w.s.Caps.OrderedWrites {
		// The immediate may overtake pages, and would say that they are there while they are
		// not. Once all of them have completed there is nothing left to be overtaken.
		last := len(rest) - 1
		if err := post(rest[:last]); err != nil {
			return full, err
		}
		if err := w.await(ctx, last); err != nil {
			return full, err
		}
		rest = rest[last:]
	}
	if err := post(rest); err != nil {
		return full, err
	}
	return full, w.await(ctx, len(w.wrs))
}

// plan makes the writes of a request, whose pages are known to be inside of the regions. Their
// IDs count from 1. Half of a queue has a completion, so that there is one to wait for
// whenever the queue is full.
func (w *writer) plan(q request) {
	w.wrs = w.wrs[:0]
	total := Regions * w.Pages
	every := max(1, w.Depth/2)
	for r, list := range q.lists {
		to := w.s.PeerRegions[r]
		for k, page := range list {
			wr := fabric.SendWR{
				ID: uint64(len(w.wrs) + 1), Op: fabric.OpWrite,
				Local:      fabric.Local{Region: w.s.Regions[r], Offset: uint64(k) * uint64(w.PageSize), Len: uint32(w.PageSize)},
				RemoteAddr: to.Addr + uint64(page)*uint64(w.PageSize), RemoteKey: to.Key,
			}
			if n := len(w.wrs) + 1; n%every == 0 || n >= total-1 {
				wr.Flags = fabric.FlagSignaled
			}
			w.wrs = append(w.wrs, wr)
		}
	}
	last := &w.wrs[total-1]
	last.Op, last.Imm = fabric.OpWriteImm, q.id
}

// complete takes a completion, which stands for all writes before it, too.
func (w *writer) complete(c fabric.Completion) { w.done = max(w.done, int(c.ID)) }

// await waits until the first n writes have completed.
func (w *writer) await(ctx context.Context, n int) error {
	var c [64]fabric.Completion
	for w.done < n {
		// The other side may have seen the immediate, and said so, before this one sees the completion.
		k, err := w.s.Completions(ctx, c[:])
		if err != nil {
			return err
		}
		for i := range c[:k] {
			w.complete(c[i])
		}
	}
	return nil
}
