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
	// Each has a time of its own: one that hangs is no fault of the others.
	bounded := func() (context.Context, context.CancelFunc) {
		return context.WithTimeoutCause(ctx, cellLimit, fmt.Errorf("the idle clients have not done their call within %v", cellLimit))
	}
	type look struct {
		in   *instance
		pids []int
		used time.Duration
	}
	var looks []*look
	fail := func(in *instance, err error) {
		if ctx.Err() == nil {
			r.failed(r.cell(setting, w, in), err)
			in.restart(ctx)
		}
	}
	for _, in := range all {
		if in.down != nil {
			r.failed(r.cell(setting, w, in), in.down)
			continue
		}
		l := &look{in: in}
		within, cancel := bounded()
		err := in.settle(within, w)
		cancel()
		if err != nil {
			fail(in, err)
			continue
		}
		looks = append(looks, l)
	}
	if !pause(ctx, settleTime) {
		return
	}
	begin := time.Now()
	for _, l := range looks {
		var err error
		if l.pids, err = crew.Tree(l.in.cluster.PIDs()); err == nil {
			l.used, err = crew.CPU(l.pids)
		}
		if err != nil {
			l.pids = nil
			fail(l.in, err)
		}
	}
	if !pause(ctx, r.options.Idle) {
		return
	}
	for _, l := range looks {
		if l.pids == nil {
			continue
		}
		used, err := crew.CPU(l.pids)
		elapsed := time.Since(begin)
		if err == nil {
			within, cancel := bounded()
			err = l.in.release(within, w)
			cancel()
		}
		if err != nil {
			fail(l.in, err)
			continue
		}
		s := &result.Sample{Elapsed: elapsed.Seconds(), Cores: (used - l.used).Seconds() / elapsed.Seconds()}
		s.Round()
		r.cell(setting, w, l.in).Samples[round] = s
	}
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
	if err := in.crew.Begin(w.Clients); err != nil {
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
