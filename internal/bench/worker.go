package bench

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/rdmad/rdmad/client"
	"github.com/rdmad/rdmad/internal/bench/cputime"
	"github.com/rdmad/rdmad/internal/bench/latency"
	"github.com/rdmad/rdmad/shm"
)

// Worker is the body of a worker process. It reads its job from in, one line of
// JSON, warms up, says that it is ready, waits for another line, measures, and
// reports to out, one line of JSON per report. Its error has been reported.
func Worker(ctx context.Context, in io.Reader, out io.Writer) error {
	w := &worker{in: bufio.NewReader(in), out: json.NewEncoder(out)}
	if err := w.run(ctx); err != nil {
		text := strings.TrimPrefix(err.Error(), "client: ") // it is told behind other words
		return errors.Join(err, w.report(report{Error: text, Unserved: errors.Is(err, client.ErrNoService)}))
	}
	return nil
}

type worker struct {
	job job
	in  *bufio.Reader

	mu  sync.Mutex // guards out, which the progress reports use too
	out *json.Encoder
}

func (w *worker) report(r report) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.out.Encode(r)
}

func (w *worker) run(ctx context.Context) error {
	line, err := w.in.ReadBytes('\n')
	if err != nil {
		return fmt.Errorf("read the job: %w", err)
	}
	if err := json.Unmarshal(line, &w.job); err != nil {
		return fmt.Errorf("read the job: %w", err)
	}
	if err := w.job.Check(); err != nil {
		return err
	}
	conn, err := client.Attach(ctx, w.job.Socket, client.Name("bench-"+string(w.job.Workload)), client.WaitMode(w.job.Wait))
	if err != nil {
		return err
	}
	defer conn.Close()
	method, err := conn.Method(ctx, w.job.address(w.job.Workload.method()))
	if err != nil {
		return err
	}
	l := newLoad(&w.job, method)
	if w.job.Warmup > 0 {
		if err := w.supervised(ctx, l, 0, w.job.Warmup, false); err != nil {
			return fmt.Errorf("warm-up: %w", err)
		}
	}
	if err := w.report(report{Ready: true, Warmed: l.done.Load()}); err != nil {
		return err
	}
	if _, err := w.in.ReadBytes('\n'); err != nil {
		return fmt.Errorf("wait for the start: %w", err)
	}
	l.reset()
	before, err := cputime.Of(0)
	if err != nil {
		return err
	}
	begin := shm.Nanotime()
	err = w.supervised(ctx, l, w.job.Share, w.job.Duration, w.job.Progress)
	// What was measured until a signal counts. How much of what is one-way has arrived by then is not known.
	interrupted := ctx.Err() != nil && (errors.Is(err, context.Canceled) || errors.Is(err, client.ErrDeadline)) && w.job.Workload != OneWay
	if err != nil && !interrupted {
		return err
	}
	end := shm.Nanotime()
	after, err := cputime.Of(0)
	if err != nil {
		return err
	}
	r := &workerResult{
		Messages:    l.done.Load(),
		Mismatches:  l.mismatches,
		Begin:       begin,
		End:         end,
		CPU:         after - before,
		Interrupted: interrupted,
	}
	if w.job.Workload != OneWay {
		if r.Histogram, err = latency.Encode(l.latency.Histogram()); err != nil {
			return err
		}
	}
	return w.report(report{Result: r})
}

// errStalled ends a run in which nothing happens any more.
var errStalled = fmt.Errorf("no answer for %v", stallLimit)

// stallLimit is far beyond every delay of a system that works.
const stallLimit = 20 * time.Second

// supervised runs the load and ends it when it makes no progress. It also
// reports the progress once per second if asked to.
func (w *worker) supervised(ctx context.Context, l *load, count uint64, d time.Duration, progress bool) error {
	ctx, cancel := context.WithCancelCause(ctx)
	var watch sync.WaitGroup
	watch.Go(func() {
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		last, since := uint64(0), time.Now()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			done := l.done.Load()
			if done != last {
				last, since = done, time.Now()
			} else if time.Since(since) > stallLimit {
				cancel(errStalled)
			}
			if progress {
				if err := w.report(report{Done: done}); err != nil {
					cancel(fmt.Errorf("report progress: %w", err))
				}
			}
		}
	})
	err := l.run(ctx, count, d)
	if cause := context.Cause(ctx); err != nil && cause != nil {
		err = fmt.Errorf("%w (%w)", cause, err)
	}
	cancel(nil)
	watch.Wait()
	return err
}
