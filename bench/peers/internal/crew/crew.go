// Package crew runs client processes and looks at what processes cost.
package crew

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"github.com/rdmad/rdmad/bench/peers/internal/load"
)

// Crew is client processes. It belongs to the goroutine that started it, which must be locked to
// its thread: the processes end with that.
type Crew struct {
	argv   []string
	events chan event
	procs  []*process
	wait   sync.WaitGroup
}

// process is one client process.
type process struct {
	cmd *exec.Cmd
	in  io.WriteCloser
}

// event is a report of process i, or its end.
type event struct {
	i      int
	report load.Report
	// err is why the process reports no more: io.EOF when it ended well.
	err error
}

// most is the most processes of a crew: its channel has room for what all may report at once.
const most = 4096

// New returns a crew without processes. argv is what starts one, whose body is load.Client.
func New(argv ...string) *Crew { return &Crew{argv: argv, events: make(chan event, most)} }

// Len returns how many processes there are.
func (c *Crew) Len() int { return len(c.procs) }

// Grow starts processes until there are n.
func (c *Crew) Grow(n int) error {
	if n > most/2 {
		return fmt.Errorf("%d client processes, want at most %d", n, most/2)
	}
	for len(c.procs) < n {
		if err := c.add(); err != nil {
			return fmt.Errorf("start client process %d: %w", len(c.procs)+1, err)
		}
	}
	return nil
}

func (c *Crew) add() error {
	cmd := exec.Command(c.argv[0], c.argv[1:]...)
	cmd.Stderr = os.Stderr
	// Not of this process's group: a terminal's interrupt is for the parent.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	i := len(c.procs)
	c.procs = append(c.procs, &process{cmd: cmd, in: in})
	c.wait.Go(func() { c.listen(i, cmd, out) })
	return nil
}

// listen passes on what a process reports until it ends.
func (c *Crew) listen(i int, cmd *exec.Cmd, out io.Reader) {
	reports := json.NewDecoder(out)
	for {
		var r load.Report
		err := reports.Decode(&r)
		if err == nil {
			c.events <- event{i: i, report: r}
			continue
		}
		if !errors.Is(err, io.EOF) {
			_ = cmd.Process.Kill()
		}
		if ended := cmd.Wait(); ended != nil {
			err = ended
		}
		c.events <- event{i: i, err: err}
		return
	}
}

// Assign gives the first n processes a job each.
func (c *Crew) Assign(n int, job func(i int) load.Job) error {
	for i := range n {
		if err := json.NewEncoder(c.procs[i].in).Encode(job(i)); err != nil {
			return fmt.Errorf("client process %d is gone: %w", i+1, err)
		}
	}
	return nil
}

// Begin lets the first n processes start.
func (c *Crew) Begin(n int) error { return c.proceed(n) }

func (c *Crew) proceed(n int) error {
	for i := range n {
		if _, err := io.WriteString(c.procs[i].in, "go\n"); err != nil {
			return fmt.Errorf("client process %d is gone: %w", i+1, err)
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
	return c.proceed(n)
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
		case e := <-c.events:
			switch {
			case e.err != nil:
				return fmt.Errorf("client process %d ended early: %w", e.i+1, e.err)
			case e.report.Error != "":
				return fmt.Errorf("client process %d: %s", e.i+1, e.report.Error)
			case take(e.report):
				missing--
			}
		}
	}
	return nil
}

// Shrink ends all processes but the first n, and waits until they are gone. Those that do not end
// by themselves when their input does are killed. None may have a job.
func (c *Crew) Shrink(n int) error {
	if n >= len(c.procs) {
		return nil
	}
	for _, p := range c.procs[n:] {
		_ = p.in.Close()
	}
	ctx, cancel := context.WithTimeoutCause(context.Background(), endGrace, fmt.Errorf("no end after %v", endGrace))
	defer cancel()
	for missing := len(c.procs) - n; missing > 0; {
		select {
		case <-ctx.Done():
			return fmt.Errorf("%d client processes: %w", missing, context.Cause(ctx))
		case e := <-c.events:
			switch {
			case e.i < n || e.err == nil:
				return fmt.Errorf("client process %d reports or ends without a job: %w", e.i+1, e.err)
			case !errors.Is(e.err, io.EOF):
				return fmt.Errorf("client process %d: %w", e.i+1, e.err)
			}
			missing--
		}
	}
	c.procs = c.procs[:n]
	return nil
}

// endGrace is how long processes may take to end.
const endGrace = time.Minute

// Kill ends all processes at once and waits until they are gone.
func (c *Crew) Kill() {
	for _, p := range c.procs {
		_ = p.in.Close()
		_ = p.cmd.Process.Kill()
	}
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		c.wait.Wait()
	}()
	for {
		select {
		case <-c.events: // makes room for those who want to report
		case <-gone:
			c.procs = nil
			return
		}
	}
}

// PIDs returns the processes.
func (c *Crew) PIDs() []int {
	var pids []int
	for _, p := range c.procs {
		pids = append(pids, p.cmd.Process.Pid)
	}
	return pids
}
