// Package crew runs client processes and looks at what processes cost.
package crew

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/rdmad/rdmad/bench/peers/internal/load"
	"github.com/rdmad/rdmad/internal/bench/workers"
)

// Crew is client processes. It belongs to the goroutine that started it, which must be locked to
// its thread: the processes end with that.
type Crew struct{ *workers.Crew[load.Report] }

// most is the most processes of a crew: there is room for what all may report at once.
const most = 4096

// New returns a crew without processes. argv is what starts one, whose body is load.Client.
func New(argv ...string) *Crew { return &Crew{workers.New[load.Report](argv, most, true)} }

// Grow starts processes until there are n.
func (c *Crew) Grow(n int) error {
	if n > most/2 {
		return fmt.Errorf("%d client processes, want at most %d", n, most/2)
	}
	for c.Len() < n {
		if err := c.Add(); err != nil {
			return fmt.Errorf("start client process %d: %w", c.Len()+1, err)
		}
	}
	return nil
}

// Assign gives the first n processes a job each.
func (c *Crew) Assign(n int, job func(i int) load.Job) error {
	for i := range n {
		if err := c.Crew.Assign(i, job(i)); err != nil {
			return fmt.Errorf("client process %d: %w", i+1, err)
		}
	}
	return nil
}

// Ready waits until the first n processes are ready, and returns how many messages they have
// sent to become so.
func (c *Crew) Ready(ctx context.Context, n int) (warmed uint64, err error) {
	err = c.each(ctx, n, func(r load.Report) bool {
		warmed += r.Warmed
		return r.Ready
	})
	return warmed, err
}

// Finish waits until the first n processes have measured, and lets them report what.
func (c *Crew) Finish(ctx context.Context, n int) error {
	if err := c.each(ctx, n, func(r load.Report) bool { return r.Finished }); err != nil {
		return err
	}
	return c.Proceed(n)
}

// Results waits for the results of the first n processes.
func (c *Crew) Results(ctx context.Context, n int) ([]*load.Result, error) {
	var results []*load.Result
	err := c.each(ctx, n, func(r load.Report) bool {
		if r.Result != nil {
			results = append(results, r.Result)
		}
		return r.Result != nil
	})
	return results, err
}

// each takes reports until take has returned true n times.
func (c *Crew) each(ctx context.Context, n int, take func(load.Report) bool) error {
	for missing := n; missing > 0; {
		select {
		case <-ctx.Done():
			return fmt.Errorf("%d of %d client processes did not finish: %w", missing, n, context.Cause(ctx))
		case e := <-c.Events:
			switch {
			case e.Err != nil:
				return fmt.Errorf("client process %d ended early: %w", e.I+1, e.Err)
			case e.Report.Error != "":
				return fmt.Errorf("client process %d: %s", e.I+1, e.Report.Error)
			case take(e.Report):
				missing--
			}
		}
	}
	return nil
}

// Shrink ends all processes but the first n, and waits until they are gone. Those that do not end
// by themselves when their input does are killed. None may have a job.
func (c *Crew) Shrink(n int) error {
	if n >= c.Len() {
		return nil
	}
	c.Dismiss(n)
	ctx, cancel := context.WithTimeoutCause(context.Background(), endGrace, fmt.Errorf("no end after %v", endGrace))
	defer cancel()
	for missing := c.Len() - n; missing > 0; {
		select {
		case <-ctx.Done():
			return fmt.Errorf("%d client processes: %w", missing, context.Cause(ctx))
		case e := <-c.Events:
			switch {
			case e.I < n || e.Err == nil:
				return fmt.Errorf("client process %d reports or ends without a job: %w", e.I+1, e.Err)
			case !errors.Is(e.Err, io.EOF):
				return fmt.Errorf("client process %d: %w", e.I+1, e.Err)
			}
			missing--
		}
	}
	c.Forget(n)
	return nil
}

// endGrace is how long processes may take to end.
const endGrace = time.Minute
