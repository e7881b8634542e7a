package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os/signal"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/rdmad/rdmad/shm"
)

// now is the time of the ledger.
func now() int64 { return shm.Nanotime() }

// run is one run of the harness.
type run struct {
	options *options
	out     io.Writer
	ctx     context.Context
	program string
	// self is this program, where other users can run it.
	self string
	dir  string

	board      *board
	spawner    *spawner
	fleet      *fleet
	nodes      []*node
	inspectors []*inspector
	wire       *namespaces
	// bootstrap and data are the proxies in front of each node.
	bootstrap, data []*proxy

	possible  []*fault
	skipped   map[string]string
	cores     [2]coreWatch
	crashes   int
	phaseTime [phases]time.Duration
	// undisturbed is how long of the time of the schedule no fault was there to explain anything.
	undisturbed, scheduled int64
	// p99s are those of the witness's calls, turn by turn.
	p99s [phases][]time.Duration
	// hostileTime and neighbourTime are the processor time of hostile workers, and of the
	// honest ones in their place, in the turns that were measured.
	hostileTime, neighbourTime time.Duration
	baseline                   usages
	current                    atomic.Pointer[fault]
	began                      time.Time

	mu         sync.Mutex
	injections []*injection
	counts     map[string]int
}

// Exit statuses.
const (
	statusFailed = 1
	statusUsage  = 2
)

// execute runs the harness and returns the exit status.
func execute(argv []string, out, errOut io.Writer) int {
	o, err := parseOptions(argv, errOut)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		fmt.Fprintln(errOut, "torture:", err)
		return statusUsage
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if o.list {
		if err := listFaults(ctx, o, out); err != nil {
			fmt.Fprintln(errOut, "torture:", err)
			return statusFailed
		}
		return 0
	}
	res, err := torture(ctx, o, errOut)
	if err != nil {
		fmt.Fprintln(errOut, "torture:", err)
	}
	if res == nil {
		return statusFailed
	}
	if werr := res.write(out, o.json); werr != nil || err != nil || res.Failed {
		return statusFailed
	}
	return 0
}

func newRun(ctx context.Context, o *options, out io.Writer) *run {
	return &run{options: o, out: out, ctx: ctx, skipped: map[string]string{}, counts: map[string]int{}}
}

// listFaults says of all faults whether they can be injected here, and starts no daemon for that.
func listFaults(ctx context.Context, o *options, out io.Writer) (err error) {
	r := newRun(ctx, o, out)
	defer func() { err = errors.Join(err, r.close(false)) }()
	if err := r.stage(); err != nil {
		return err
	}
	var all []string
	for i := range faults {
		all = append(all, faults[i].name)
	}
	r.probe(all)
	for i := range faults {
		state := "yes"
		if why, ok := r.skipped[faults[i].name]; ok {
			state = "no: " + why
		}
		if _, err := fmt.Fprintf(out, "%-18s %3d  %s (%s)\n", faults[i].name, faults[i].weight, faults[i].help, state); err != nil {
			return err
		}
	}
	return nil
}

// torture does a whole run. The result is nil if it did not come to load.
func torture(ctx context.Context, o *options, progress io.Writer) (res *result, err error) {
	r := newRun(ctx, o, progress)
	defer func() {
		// What fails now is of the run as well, of which the result is still to be written.
		if failed := r.close(err != nil || res != nil && res.Failed); res != nil {
			res.problem(failed)
		} else {
			err = errors.Join(err, failed)
		}
	}()
	if err := r.prepare(); err != nil {
		return nil, err
	}
	r.probe(o.faults)
	for _, name := range slices.Sorted(maps.Keys(r.skipped)) {
		fmt.Fprintf(r.out, "skipped: %s: %s\n", name, r.skipped[name])
	}
	fmt.Fprintf(r.out, "seed %d, in %s\n", o.seed, r.dir)
	return r.load()
}

// warm is how long there is load before the first fault.
const warm = time.Second

// load starts the processes, injects the faults, waits until all calls have ended, and
// judges.
func (r *run) load() (*result, error) {
	r.fleet = &fleet{
		spawner: r.spawner, program: r.self, board: r.board, depth: r.options.depth, sockets: map[string]string{},
		base: roleArgs{Dir: r.dir, Seed: r.options.seed, Most: r.options.largest, Sabotage: r.options.sabotage},
	}
	for _, n := range r.nodes {
		r.fleet.sockets[n.name] = n.socket
		for range r.options.services {
			if _, err := r.fleet.start("service", n.name, false); err != nil {
				return nil, err
			}
		}
	}
	for w := range r.options.workers {
		if _, err := r.fleet.start("worker", r.nodes[w%2].name, false); err != nil {
			return nil, err
		}
	}
	if _, err := r.fleet.start("worker", "a", true); err != nil {
		return nil, err
	}
	start := &injection{run: r, fault: &fault{name: "the start"}}
	t := now()
	if err := start.answeredAgain(t, unmeasured); err != nil {
		return nil, errors.Join(err, r.fleet.failed())
	}
	r.sleep(warm)
	start.began, start.ended = t, now()
	var err error
	if r.baseline, err = measure(r.ctx, r.nodes); err != nil {
		return nil, err
	}
	r.began = time.Now()
	stop := make(chan struct{})
	var telling sync.WaitGroup
	telling.Go(func() { r.tell(stop) })
	why, faultErr := r.schedule()
	close(stop)
	telling.Wait()
	res := r.judgeAll(why, faultErr, start)
	return res, nil
}
