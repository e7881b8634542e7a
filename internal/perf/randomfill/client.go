package randomfill

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/rdmad/rdmad/internal/fabric"
	"github.com/rdmad/rdmad/internal/perf"
	"github.com/rdmad/rdmad/internal/perf/link"
	"github.com/rdmad/rdmad/internal/perf/report"
	"github.com/rdmad/rdmad/shm"
)

// filler is the client's side of a run.
type filler struct {
	*Tool
	s       *perf.Session
	samples *report.Samples
	ns      int64   // that the server has written
	best    float64 // pages per nanosecond of the best round
	full    uint64
	last    written
}

func (t *Tool) client(ctx context.Context, s *perf.Session) (*Result, error) {
	f := &filler{Tool: t, s: s, samples: report.NewSamples(1)}
	// The server has a receive for the first request.
	if err := s.Barrier(ctx); err != nil {
		return nil, err
	}
	meter := perf.StartMeter()
	for round := range t.Rounds {
		if err := f.round(ctx, round); err != nil {
			return nil, fmt.Errorf("request %d of %d: %w", round+1, t.Rounds, err)
		}
	}
	pages := t.Rounds * Regions * uint64(t.Pages)
	info := report.NewInfo(Name, &perf.Work{Event: t.Event, Verify: true}, s)
	info.TxDepth, info.RTTFactor = t.Depth, 1
	return &Result{
		Info: info, Layout: t.Layout, Rounds: t.Rounds, Seed: t.Seed, QueueFull: f.full, Ordered: f.last.Ordered,
		Results: []report.Row{{
			Size: t.PageSize, Iterations: pages, Latency: f.samples.Latency(), Samples: f.samples,
			Bandwidth: report.NewBandwidth(t.PageSize, pages, f.ns, f.best),
			ClientCPU: meter.Read(), ServerCPU: f.last.CPU,
		}},
	}, nil
}

// round makes a request and verifies what comes of it.
func (f *filler) round(ctx context.Context, round uint64) error {
	q := request{id: uint32(f.Seed) ^ uint32(f.Seed>>32) + uint32(round), seed: f.Seed + Regions*round, pageSize: uint64(f.PageSize)}
	if f.Lists != nil {
		q.lists = *f.Lists
	} else {
		q.lists = f.Draw(f.Seed, round)
	}
	back := newBackground(f.Seed, round)
	for _, r := range f.s.Regions {
		back.fill(r.Bytes())
	}
	q.encode(f.s.Region.Bytes())
	if err := f.ask(ctx, q); err != nil {
		return err
	}
	for i, r := range f.s.Regions {
		if err := f.verify(i, r.Bytes(), q.lists[i], q.seed, back); err != nil {
			return err
		}
	}
	want := make([]byte, requestSize(f.Pages))
	q.encode(want)
	if !bytes.Equal(want, f.s.Region.Bytes()[:len(want)]) {
		return errors.New("the memory of the request was changed, where nothing was asked for")
	}
	return f.settle(ctx, round)
}

// ask sends the request and waits for its immediate.
func (f *filler) ask(ctx context.Context, q request) error {
	e := f.s.Endpoints[0]
	if _, err := e.PostRecv([]fabric.RecvWR{{}}); err != nil {
		return err
	}
	begun := shm.Nanotime()
	wr := fabric.SendWR{Op: fabric.OpSend, Flags: fabric.FlagSignaled, Local: fabric.Local{Region: f.s.Region, Len: uint32(requestSize(f.Pages))}}
	sent, came := false, false
	var wrong error
	take := func(c fabric.Completion) {
		switch {
		case c.Op == fabric.OpSend:
			sent = true
		case c.Op == fabric.OpRecvImm && c.Imm == q.id && !came:
			f.samples.Record(shm.Nanotime() - begun)
			came = true
		default:
			wrong = &link.ProtocolError{Detail: fmt.Sprintf("immediate %#x instead of %#x", c.Imm, q.id)}
		}
	}
	if _, err := f.s.PostAll(ctx, e, []fabric.SendWR{wr}, take); err != nil {
		return err
	}
	var c [2]fabric.Completion
	for !(sent && came) && wrong == nil {
		n, err := f.s.Await(ctx, c[:])
		if err != nil {
			return err
		}
		if n == 0 {
			return &link.ProtocolError{Detail: "a message before the immediate"}
		}
		for _, d := range c[:n] {
			take(d)
		}
	}
	return wrong
}

// settle tells the server that the round is over and takes its figures.
func (f *filler) settle(ctx context.Context, round uint64) error {
	if err := f.s.Link.Send(kindVerified, verified{Round: round}); err != nil {
		return err
	}
	if err := f.s.Hear(ctx, kindWritten, &f.last); err != nil {
		return err
	}
	f.ns += f.last.Ns
	f.full += f.last.QueueFull
	f.best = max(f.best, float64(Regions*f.Pages)/float64(max(f.last.Ns, 1)))
	return nil
}
