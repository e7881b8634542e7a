package atomics

import (
	"context"
	"errors"
	"fmt"

	"github.com/rdmad/rdmad/internal/perf"
	"github.com/rdmad/rdmad/internal/perf/report"
)

// tally is what one process has found of a type.
type tally struct {
	Ops     uint64        `json:"ops"`
	Misses  uint64        `json:"misses"`
	Begun   int64         `json:"begun"`
	Ended   int64         `json:"ended"`
	CPU     perf.CPU      `json:"cpu"`
	Samples report.Packed `json:"samples"`
	// Tickets has a bit for each value that the counter has had, of those that were found by
	// this process.
	Tickets []byte `json:"tickets"`
}

// total is what all processes have found of a type.
type total struct {
	*Tool
	kind         string
	tickets      *tickets
	samples      *report.Samples
	ops, misses  uint64
	begun, ended int64
	cpu          perf.CPU
}

func (t *Tool) newTotal(kind string) *total {
	return &total{Tool: t, kind: kind, tickets: newTickets(t.Count * uint64(t.all())), samples: report.NewSamples(1)}
}

// add adds what a process has found: no value that another one has found, too.
func (a *total) add(p tally) error {
	if err := errors.Join(a.tickets.merge(p.Tickets), a.samples.Add(p.Samples)); err != nil {
		return err
	}
	if a.begun == 0 || p.Begun < a.begun {
		a.begun = p.Begun
	}
	a.ended = max(a.ended, p.Ended)
	a.ops += p.Ops
	a.misses += p.Misses
	a.cpu.User += p.CPU.User
	a.cpu.System += p.CPU.System
	return nil
}

// settle checks the counter in the end, as each client has read it and as the server has it.
func (a *total) settle(read []uint64, theirs final) error {
	for i, v := range read {
		if err := a.tickets.settle(fmt.Sprintf("as client %d reads it", i), v); err != nil {
			return err
		}
	}
	return a.tickets.settle("as the server sees it", theirs.Value)
}

// row is the result.
func (a *total) row(theirs final) Row {
	took := max(a.ended-a.begun, 1)
	a.cpu.Percent = 100 * (a.cpu.User + a.cpu.System) / (float64(took) / 1e9)
	return Row{
		Type: a.kind, Clients: a.Clients, Connections: a.Connections, Increments: a.tickets.total, Failed: a.misses, Start: start, Final: theirs.Value,
		Row: report.Row{
			Size: wordSize, Iterations: a.ops, Latency: a.samples.Latency(), Samples: a.samples,
			Bandwidth: report.NewBandwidth(wordSize, a.ops, took, 0), ClientCPU: a.cpu, ServerCPU: theirs.CPU,
		},
	}
}

// member is one process of several: it counts when all others do, says what it has found, and reads
// the counter when all others have said so.
func (t *Tool) member(ctx context.Context, s *perf.Session) error {
	if err := s.Barrier(ctx); err != nil {
		return err
	}
	for _, kind := range t.Types {
		c, err := t.count(ctx, s, kind)
		if err != nil {
			return fmt.Errorf("%s: %w", kind, err)
		}
		if err := perf.SendLong(ctx, s.Link, c.tally()); err != nil {
			return err
		}
		if err := s.Barrier(ctx); err != nil {
			return err
		}
		read, err := c.read(ctx)
		if err != nil {
			return fmt.Errorf("%s: %w", kind, err)
		}
		if err := s.Link.Send(kindValue, value{read}); err != nil {
			return err
		}
		// The next type begins when all have read this one, and the server has been asked.
		if err := s.Barrier(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Lead implements perf.Crowd.
func (t *Tool) Lead(ctx context.Context, d *perf.Lead) (any, error) {
	info := report.Info{Test: Name, Wait: report.Wait(t.Event), Verified: true, Client: d.Used, Server: d.Theirs}
	result := newResult(t, info)
	// The server's counters are ready.
	if err := d.Barrier(ctx, true); err != nil {
		return nil, err
	}
	for i, kind := range t.Types {
		row, err := t.lead(ctx, d, kind, i == len(t.Types)-1)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", kind, err)
		}
		result.Results = append(result.Results, row)
	}
	return result, nil
}

// lead leads one type.
func (t *Tool) lead(ctx context.Context, d *perf.Lead, kind string, last bool) (Row, error) {
	all := t.newTotal(kind)
	for i, l := range d.Members {
		var p tally
		if err := perf.ReceiveLong(ctx, l, &p); err != nil {
			return Row{}, fmt.Errorf("client %d: %w", i, err)
		}
		if err := all.add(p); err != nil {
			return Row{}, fmt.Errorf("client %d: %w", i, err)
		}
	}
	if err := d.Barrier(ctx, false); err != nil {
		return Row{}, err
	}
	read := make([]uint64, len(d.Members))
	for i, l := range d.Members {
		var v value
		if err := l.Receive(ctx, kindValue, &v); err != nil {
			return Row{}, fmt.Errorf("client %d: %w", i, err)
		}
		read[i] = v.Value
	}
	if last {
		d.Ending()
	}
	if err := d.Server.Send(kindOver, over{Type: kind}); err != nil {
		return Row{}, err
	}
	var theirs final
	if err := d.Server.Receive(ctx, kindFinal, &theirs); err != nil {
		return Row{}, err
	}
	if err := all.settle(read, theirs); err != nil {
		return Row{}, err
	}
	return all.row(theirs), d.Barrier(ctx, false)
}

var _ perf.Crowd = (*Tool)(nil)
