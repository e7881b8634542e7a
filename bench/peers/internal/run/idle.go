package run

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rdmad/rdmad/bench/peers/internal/crew"
	"github.com/rdmad/rdmad/bench/peers/internal/load"
	"github.com/rdmad/rdmad/bench/peers/internal/result"
)

// idle looks at all systems together while their clients are connected and do nothing. Clients are not
// counted: what they use is the same for all, and is Go's.
func (r *run) idle(ctx context.Context, setting Setting, round int, w *Workload, all []*instance) {
	var idlers []*idler
	for _, in := range all {
		cell := r.cell(setting, w, in)
		if in.down != nil {
			r.failed(cell, in.down)
			continue
		}
		idlers = append(idlers, &idler{in: in, cell: cell})
	}
	idlers = r.each(ctx, idlers, func(ctx context.Context, i *idler) error { return i.in.settle(ctx, w) })
	if !pause(ctx, settleTime) {
		return
	}
	idlers = r.each(ctx, idlers, func(_ context.Context, i *idler) error { return i.begin() })
	if !pause(ctx, r.options.Idle) {
		return
	}
	r.each(ctx, idlers, func(ctx context.Context, i *idler) error {
		s, err := i.end()
		if err == nil {
			err = i.in.release(ctx, w)
		}
		if err == nil {
			i.cell.Samples[round] = s
		}
		return err
	})
}

// idler is a system that is looked at while it has nothing to do.
type idler struct {
	in   *instance
	cell *result.Cell
	// pids are its processes, which had used so much processor time when it began.
	pids  []int
	used  time.Duration
	begun time.Time
}

func (i *idler) begin() (err error) {
	if i.pids, err = crew.Tree(i.in.cluster.PIDs()); err != nil {
		return err
	}
	i.used, err = crew.CPU(i.pids)
	i.begun = time.Now()
	return err
}

func (i *idler) end() (*result.Sample, error) {
	used, err := crew.CPU(i.pids)
	if err != nil {
		return nil, err
	}
	elapsed := time.Since(i.begun).Seconds()
	s := &result.Sample{Elapsed: elapsed, Cores: (used - i.used).Seconds() / elapsed}
	s.Round()
	return s, nil
}

// each does a step with one after the other, and returns those with which it went well. The others are
// started anew. Each has a time of its own: one that hangs is no fault of the others.
func (r *run) each(ctx context.Context, all []*idler, step func(context.Context, *idler) error) (well []*idler) {
	for _, i := range all {
		within, cancel := context.WithTimeoutCause(ctx, cellLimit, fmt.Errorf("the idle clients have not done their call within %v", cellLimit))
		err := step(within, i)
		cancel()
		switch {
		case err == nil:
			well = append(well, i)
		case ctx.Err() == nil:
			r.failed(i.cell, err)
			i.in.restart(ctx)
		}
	}
	return well
}

// settleTime is for what connecting leaves to be done.
const settleTime = time.Second

// pause waits. It returns false if ctx ends before.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// settle has the clients connect and wait.
func (in *instance) settle(ctx context.Context, w *Workload) error {
	if err := in.crew.Assign(w.Clients, func(int) load.Job { return in.job(w, load.Idle, 0) }); err != nil {
		return err
	}
	_, err := in.crew.Ready(ctx, w.Clients)
	return err
}

// release ends the waiting.
func (in *instance) release(ctx context.Context, w *Workload) error {
	if err := in.crew.Proceed(w.Clients); err != nil {
		return err
	}
	results, err := in.crew.Results(ctx, w.Clients)
	if err != nil {
		return err
	}
	for _, r := range results {
		if r.Mismatches > 0 {
			return errors.New("an answer had the wrong content")
		}
	}
	return nil
}
