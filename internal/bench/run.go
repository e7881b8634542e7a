package bench

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/rdmad/rdmad/client"
)

// ErrUnserved is in the error of a run whose methods nobody serves, and says what to do.
var ErrUnserved = errors.New("rdmad echo, on the node that is to answer, serves it; see what there is with: rdmad status")

// Options are how a run is carried out.
type Options struct {
	// Command starts a worker process, which must call Worker.
	Command []string
	// Progress, if not nil, is called about once per second with the messages
	// finished so far and the time since the start.
	Progress func(done uint64, elapsed time.Duration)
}

const (
	// startLimit bounds how long processes take to start and attach.
	startLimit = time.Minute
	// endLimit bounds how long they take to report after their last message.
	endLimit = stallLimit + 10*time.Second
	// foreverLimit stands for the length of a run that ends by count.
	foreverLimit = 365 * 24 * time.Hour
)

// ErrInterrupted is that of a run which a signal has ended.
var ErrInterrupted = errors.New("interrupted before its end")

// interruptedLimit bounds how long the end of a run takes that was interrupted.
const interruptedLimit = 3 * time.Second

// Run carries out a run: it starts the worker processes, lets all begin at once
// after their warm-up, and adds up what they measured. One that ctx ends while it measures has a result and ErrInterrupted,
// unless nothing was measured or the messages are one-way.
func Run(ctx context.Context, spec Spec, o Options) (*Result, error) {
	if err := spec.Check(); err != nil {
		return nil, err
	}
	conn, err := client.Attach(ctx, spec.Socket, client.Name("bench"))
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	r := &run{spec: &spec, options: &o, conn: conn, status: conn.Status}
	r.counted = r.count
	if spec.Workload == OneWay {
		if r.arrived, err = r.counted(ctx); err != nil {
			return nil, err
		}
	}
	if r.crew, err = start(&spec, o.Command, o.Progress != nil); err != nil {
		return nil, err
	}
	defer r.crew.Kill()
	if err := r.warmUp(ctx); err != nil {
		return nil, err
	}
	return r.measure(ctx)
}

// run is a run in progress.
type run struct {
	spec    *Spec
	options *Options
	conn    *client.Conn
	// status asks the daemon for its status.
	status func(context.Context) (json.RawMessage, error)
	// counted asks the service how many one-way messages have arrived.
	counted func(context.Context) (uint64, error)
	crew    *crew
	// arrived is how many one-way messages the service has counted, or will
	// have when all sent so far have arrived.
	arrived uint64
}

// warmUp waits until all processes are ready.
func (r *run) warmUp(ctx context.Context) error {
	limited, cancel := within(ctx, startLimit+r.spec.Warmup, "starting and warming up")
	defer cancel()
	if err := r.crew.each(limited, func(_ int, p report) bool {
		r.arrived += p.Warmed
		return p.Ready
	}); err != nil {
		return err
	}
	if r.spec.Workload == OneWay {
		return r.arrive(ctx)
	}
	return nil
}

// measure lets the processes begin and collects their results.
func (r *run) measure(ctx context.Context) (*Result, error) {
	length := r.spec.Duration
	if r.spec.Count > 0 {
		length = foreverLimit
	}
	before, err := r.look(ctx)
	if err != nil {
		return nil, err
	}
	limited, cancel := within(ctx, length+endLimit, "the run")
	defer cancel()
	begin := time.Now()
	if err := r.crew.Proceed(r.spec.Clients); err != nil {
		return nil, err
	}
	results, err := r.results(limited, newProgress(r.spec.Clients, begin, r.options.Progress))
	if err != nil {
		return nil, err
	}
	if ctx.Err() != nil && r.spec.Workload != OneWay {
		var end context.CancelFunc
		ctx, end = within(context.WithoutCancel(ctx), interruptedLimit, "the end of the run")
		defer end()
	}
	elapsed := time.Duration(0)
	if r.spec.Workload == OneWay {
		for _, w := range results {
			r.arrived += w.Messages
		}
		if err := r.arrive(ctx); err != nil {
			return nil, err
		}
		elapsed = time.Since(begin)
	}
	after, err := r.look(ctx)
	if err != nil {
		return nil, err
	}
	result, err := summarize(r.spec, results, elapsed, before, after)
	if err == nil && result.Interrupted {
		err = ErrInterrupted
	}
	return result, err
}

// results collects what the processes have measured, also when ctx, which stands for a signal, has them end.
func (r *run) results(ctx context.Context, progress *progress) ([]*workerResult, error) {
	results, taken := make([]*workerResult, r.spec.Clients), make([]bool, r.spec.Clients)
	take := func(i int, p report) bool {
		if p.Result == nil {
			progress.add(i, p.Done)
			return false
		}
		results[i] = p.Result
		return true
	}
	err := r.crew.rest(ctx, taken, take)
	if err == nil || !errors.Is(ctx.Err(), context.Canceled) || r.spec.Workload == OneWay {
		return results, err
	}
	r.crew.Interrupt()
	late, cancel := within(context.WithoutCancel(ctx), interruptedLimit, "the end of the worker processes")
	defer cancel()
	if r.crew.rest(late, taken, take) != nil {
		return nil, err
	}
	return results, nil
}

// count is what counted does.
func (r *run) count(ctx context.Context) (uint64, error) {
	ctx, cancel := within(ctx, stallLimit, "asking for the number of messages that have arrived")
	defer cancel()
	a, err := r.conn.Call(ctx, r.spec.address(ServiceBench+"/"+MethodCount), nil)
	if errors.Is(err, client.ErrNoService) {
		return 0, fmt.Errorf("%w (%w)", err, ErrUnserved)
	}
	if err != nil {
		return 0, err
	}
	if len(a) != countSize {
		return 0, fmt.Errorf("%s/%s answered %d bytes, want %d", ServiceBench, MethodCount, len(a), countSize)
	}
	return binary.LittleEndian.Uint64(a), nil
}

// pollPause is how often arrive asks.
const pollPause = time.Millisecond

// arrive waits until all one-way messages sent so far have arrived. It gives up
// when none has for a while.
func (r *run) arrive(ctx context.Context) error {
	last, since := uint64(0), time.Now()
	for {
		n, err := r.counted(ctx)
		switch {
		case err != nil:
			return err
		case n > r.arrived:
			// Whatever is missing of this run's would not be noticed, and its end would seem to be earlier.
			return fmt.Errorf("%d more one-way messages have arrived than were sent: another run posts to the same service, or one that was ended "+
				"before had messages under way; wait until there is none, and try again. If there is none, messages have been executed twice", n-r.arrived)
		case n == r.arrived:
			return nil
		case n != last:
			last, since = n, time.Now()
		case time.Since(since) > stallLimit:
			return fmt.Errorf("%d of the one-way messages have not arrived after %v (a service of several processes cannot be counted)", r.arrived-n, stallLimit)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(pollPause):
		}
	}
}

// progress adds up the reports of the processes.
type progress struct {
	done  []uint64
	begin time.Time
	show  func(uint64, time.Duration)
	// fresh says which processes have reported since the sum was shown, and
	// missing how many have not.
	fresh   []bool
	missing int
}

func newProgress(clients int, begin time.Time, show func(uint64, time.Duration)) *progress {
	return &progress{done: make([]uint64, clients), begin: begin, show: show, fresh: make([]bool, clients), missing: clients}
}

// add takes a report of process i, and shows the sum when every process has
// reported again: about once per second.
func (p *progress) add(i int, done uint64) {
	p.done[i] = max(p.done[i], done)
	if !p.fresh[i] {
		p.fresh[i] = true
		p.missing--
	}
	if p.missing > 0 || p.show == nil {
		return
	}
	sum := uint64(0)
	for _, n := range p.done {
		sum += n
	}
	p.show(sum, time.Since(p.begin))
	clear(p.fresh)
	p.missing = len(p.fresh)
}
