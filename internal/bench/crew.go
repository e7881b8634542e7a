package bench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/rdmad/rdmad/internal/bench/workers"
)

// crew is the worker processes of a run.
type crew struct{ *workers.Crew[report] }

// start starts the processes of the run. The caller must call Kill.
func start(spec *Spec, command []string, progress bool) (*crew, error) {
	// Every process sends a few reports, and one per second that the parent
	// takes at once: no reader of a process should have to wait for it.
	c := &crew{workers.New[report](command, 4*spec.Clients, false)}
	for i := range spec.Clients {
		j := job{Spec: *spec, Share: share(spec.Count, i, spec.Clients), Seed: rand.Uint64(), Progress: progress}
		err := c.Add()
		if err == nil {
			err = c.Assign(i, j)
		}
		if err != nil {
			c.Kill()
			return nil, fmt.Errorf("start worker process %d of %d: %w", i+1, spec.Clients, err)
		}
	}
	return c, nil
}

// each takes reports until take has returned true once for every process. A
// process that fails or ends before fails the run.
func (c *crew) each(ctx context.Context, take func(i int, r report) bool) error {
	return c.rest(ctx, make([]bool, c.Len()), take)
}

// rest is each for the processes of which taken is not true yet.
func (c *crew) rest(ctx context.Context, taken []bool, take func(i int, r report) bool) error {
	missing := 0
	for _, t := range taken {
		if !t {
			missing++
		}
	}
	for missing > 0 {
		select {
		case <-ctx.Done():
			return fmt.Errorf("%d of %d worker processes did not finish: %w", missing, c.Len(), context.Cause(ctx))
		case e := <-c.Events:
			switch {
			case e.Err != nil && taken[e.I]:
			case e.Err != nil:
				return fmt.Errorf("worker process %d of %d ended early: %w", e.I+1, c.Len(), e.Err)
			case e.Report.Unserved:
				return fmt.Errorf("worker process %d of %d: %s (%w)", e.I+1, c.Len(), e.Report.Error, ErrUnserved)
			case e.Report.Error != "":
				return fmt.Errorf("worker process %d of %d: %s", e.I+1, c.Len(), e.Report.Error)
			case take(e.I, e.Report) && !taken[e.I]:
				taken[e.I] = true
				missing--
			}
		}
	}
	return nil
}

// within bounds ctx for one phase of a run.
func within(ctx context.Context, d time.Duration, what string) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, d, fmt.Errorf("%s took more than %v", what, d))
}
