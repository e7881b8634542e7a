package run

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"github.com/rdmad/rdmad/bench/peers/internal/crew"
	"github.com/rdmad/rdmad/bench/peers/internal/load"
	"github.com/rdmad/rdmad/bench/peers/internal/system"
)

// instance is a system that runs, and its client processes.
type instance struct {
	system  *system.System
	host    system.Host
	cluster *system.Cluster
	crew    *crew.Crew
	// clerk asks how many posts have arrived. It is no part of the system.
	clerk *crew.Crew
	// posted is how many posts were sent to the cluster.
	posted uint64
	// down is why the system does not run.
	down error
	// starts makes the directories of several clusters differ.
	starts int
}

const (
	// cellLimit bounds one measurement: all that it does besides measuring.
	cellLimit = 2 * time.Minute
	// warmup is what part of a measurement its warm-up takes.
	warmup = 4
)

func newInstance(s *system.System, h system.Host) *instance { return &instance{system: s, host: h} }

// start starts the processes. After an error there are none.
func (in *instance) start(ctx context.Context) error {
	h := in.host
	h.Dir = filepath.Join(in.host.Dir, fmt.Sprintf("%s-%d", in.system.Name, in.starts))
	in.starts++
	if err := os.Mkdir(h.Dir, 0o700); err != nil {
		return err
	}
	in.posted = 0
	in.crew = crew.New(h.Peers, "client")
	in.clerk = crew.New(h.Peers, "client")
	var err error
	if in.cluster, err = in.system.Start(ctx, h); err == nil {
		err = in.crew.Grow(crewSize)
	}
	if err != nil {
		return errors.Join(err, in.stop())
	}
	return nil
}

// stop ends the processes.
func (in *instance) stop() error {
	if in.crew != nil {
		in.crew.Kill()
		in.clerk.Kill()
	}
	if in.cluster == nil {
		return nil
	}
	err := in.cluster.Stop()
	in.cluster = nil
	return err
}

// restart starts the system anew after a failure.
func (in *instance) restart(ctx context.Context) {
	c := in.cluster
	// What has failed may end with an error of its own, before or while it is stopped.
	if err := in.stop(); err != nil && ctx.Err() == nil && !c.Gone() {
		in.down = fmt.Errorf("after a failure it could not be stopped: %w", err)
		return
	}
	if err := in.start(ctx); err != nil {
		in.down = fmt.Errorf("after a failure it could not be started: %w", err)
	}
}

// measured is what was seen of one measurement.
type measured struct {
	results []*load.Result
	// cpu is the processor time of all processes but the clients.
	cpu time.Duration
	// arrived is how long it took until the last post had arrived; zero for other operations.
	arrived       time.Duration
	before, after system.Traffic
}

// measure has the clients do the workload once.
func (in *instance) measure(ctx context.Context, w *Workload, d time.Duration) (*measured, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, d+cellLimit, fmt.Errorf("no end after %v", d+cellLimit))
	defer cancel()
	if err := in.crew.Grow(w.Clients); err != nil {
		return nil, err
	}
	if err := in.crew.Assign(w.Clients, func(int) load.Job { return in.job(w, load.Load, d) }); err != nil {
		return nil, err
	}
	warmed, err := in.crew.Ready(ctx, w.Clients)
	if err != nil {
		return nil, errors.Join(err, in.cluster.Ended())
	}
	if w.Op == system.Post {
		in.posted += warmed
		if err := in.arrive(ctx); err != nil {
			return nil, err
		}
	}
	m := new(measured)
	pids, err := crew.Tree(in.cluster.PIDs())
	if err != nil {
		return nil, err
	}
	if m.before, _, err = in.cluster.Traffic(ctx); err != nil {
		return nil, err
	}
	before, err := crew.CPU(pids)
	if err != nil {
		return nil, err
	}
	begin := time.Now()
	if err := in.crew.Proceed(w.Clients); err != nil {
		return nil, err
	}
	if err := in.crew.Finish(ctx, w.Clients); err != nil {
		return nil, errors.Join(err, in.cluster.Ended())
	}
	if m.results, err = in.crew.Results(ctx, w.Clients); err != nil {
		return nil, errors.Join(err, in.cluster.Ended())
	}
	if w.Op == system.Post {
		for _, r := range m.results {
			in.posted += r.Messages
		}
		if err := in.arrive(ctx); err != nil {
			return nil, err
		}
		m.arrived = time.Since(begin)
	}
	after, err := crew.CPU(pids)
	if err != nil {
		return nil, err
	}
	m.cpu = after - before
	if m.after, _, err = in.cluster.Traffic(ctx); err != nil {
		return nil, err
	}
	return m, errors.Join(in.cluster.Ended(), in.crew.Shrink(crewSize))
}

func (in *instance) job(w *Workload, kind load.Kind, d time.Duration) load.Job {
	return load.Job{
		Kind: kind, System: in.system.Name, Address: in.cluster.Address, Op: w.Op, Size: w.Size,
		Depth: w.Depth, Duration: d, Warmup: d / warmup, Seed: rand.Uint64(), Expect: in.posted,
	}
}

// arrive waits until all posts have arrived.
func (in *instance) arrive(ctx context.Context) error {
	if err := in.clerk.Grow(1); err != nil {
		return err
	}
	job := in.job(&Workload{Op: system.Count, Depth: 1}, load.Arrive, 0)
	if err := in.clerk.Assign(1, func(int) load.Job { return job }); err != nil {
		return err
	}
	_, err := in.clerk.Results(ctx, 1)
	return err
}
