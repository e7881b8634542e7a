package pingpong

import (
	"context"
	"errors"
	"fmt"

	"github.com/rdmad/rdmad/internal/bench/content"
	"github.com/rdmad/rdmad/internal/perf"
	"github.com/rdmad/rdmad/internal/perf/report"
	"github.com/rdmad/rdmad/shm"
)

// Kinds of messages of the link.
const (
	kindEnd    = "end"
	kindServed = "served"
)

// ending is what the client says when it has measured a size.
type ending struct {
	Messages uint64 `json:"messages"`
}

// served is the server's answer.
type served struct {
	CPU perf.CPU `json:"cpu"`
}

// measure is the client.
func (e *end) measure(ctx context.Context) (*report.Report, error) {
	r := &report.Report{Info: report.NewInfo("pingpong "+e.t.Op, &e.t.Work, e.s)}
	r.Info.RTTFactor = 2
	if e.t.Op == opRead {
		r.Info.RTTFactor = 1
	}
	for _, size := range e.t.Sizes {
		if err := e.prepare(ctx, size); err != nil {
			return nil, err
		}
		row, err := e.measureSize(ctx, r.Info.RTTFactor)
		if err != nil {
			return nil, err
		}
		r.Results = append(r.Results, row)
	}
	return r, nil
}

func (e *end) measureSize(ctx context.Context, factor int) (report.Row, error) {
	samples := report.NewSamples(factor)
	row := report.Row{Size: e.size, Samples: samples}
	meter := perf.StartMeter()
	start := shm.Nanotime()
	for last := start; ; {
		if err := e.trip(ctx); err != nil {
			return row, err
		}
		now := shm.Nanotime()
		samples.Record(now - last)
		last = now
		// The server sees nothing of reads.
		if err := e.s.AtWork(now); err != nil {
			return row, err
		}
		if e.t.Over(samples.Count(), now-start) {
			break
		}
	}
	row.ClientCPU = meter.Read()
	if err := e.settle(ctx); err != nil {
		return row, err
	}
	if err := e.s.Link.Send(kindEnd, ending{Messages: e.sent}); err != nil {
		return row, err
	}
	var s served
	if err := e.s.Link.Receive(ctx, kindServed, &s); err != nil {
		return row, err
	}
	row.Iterations, row.Latency, row.ServerCPU = samples.Count(), samples.Latency(), s.CPU
	return row, nil
}

// trip is one message and its answer, or one read.
func (e *end) trip(ctx context.Context) error {
	if err := e.send(ctx); err != nil {
		return err
	}
	if e.t.Op == opRead {
		return e.awaitRead(ctx)
	}
	answered, err := e.await(ctx)
	if err == nil && !answered {
		err = errors.New("the server has something to say instead of an answer")
	}
	return err
}

// awaitRead waits for a read, and checks what it has brought.
func (e *end) awaitRead(ctx context.Context) error {
	defer e.s.Resume()
	for e.done = false; ; {
		if err := e.poll(); err != nil {
			return err
		}
		if e.done {
			break
		}
		if e.s.Link.News() {
			return e.s.Link.Err()
		}
		if err := e.s.Pause(ctx); err != nil {
			return err
		}
	}
	if !e.t.Verify {
		return nil
	}
	got := e.mem[e.in[0] : e.in[0]+e.size]
	if !content.Intact(got, e.size, content.Stamp(e.t.Seed, 0)) {
		return fmt.Errorf("read %d of %d bytes has brought the wrong content", e.sent-1, e.size)
	}
	clear(got)
	return nil
}

// answer is the server.
func (e *end) answer(ctx context.Context) error {
	for _, size := range e.t.Sizes {
		if err := e.prepare(ctx, size); err != nil {
			return err
		}
		meter := perf.StartMeter()
		for {
			arrived, err := e.await(ctx)
			if err != nil {
				return err
			}
			if !arrived {
				break
			}
			if err := e.send(ctx); err != nil {
				return err
			}
		}
		if err := e.settle(ctx); err != nil {
			return err
		}
		var end ending
		if err := e.s.Link.Receive(ctx, kindEnd, &end); err != nil {
			return err
		}
		if e.t.Op != opRead && end.Messages != e.received {
			return fmt.Errorf("%d messages have arrived, %d were sent", e.received, end.Messages)
		}
		if err := e.s.Link.Send(kindServed, served{CPU: meter.Read()}); err != nil {
			return err
		}
	}
	return nil
}
