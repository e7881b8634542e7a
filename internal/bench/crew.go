package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"
)

// crew is the worker processes of a run.
type crew struct {
	procs  []*process
	events chan event
	wait   sync.WaitGroup
}

// process is one worker process.
type process struct {
	cmd *exec.Cmd
	in  io.WriteCloser
}

// event is a report of the i-th process, or its end.
type event struct {
	i      int
	report report
	// err is why the process reports no more: io.EOF when it ended well.
	err error
}

// start starts the processes of the run. The caller must call kill.
func start(spec *Spec, command []string, progress bool) (*crew, error) {
	// Every process sends a few reports, and one per second that the parent
	// takes at once: no reader of a process should have to wait for it.
	c := &crew{events: make(chan event, 4*spec.Clients)}
	for i := range spec.Clients {
		j := job{Spec: *spec, Share: share(spec.Count, i, spec.Clients), Seed: rand.Uint64(), Progress: progress}
		if err := c.add(i, j, command); err != nil {
			c.kill()
			return nil, fmt.Errorf("start worker process %d of %d: %w", i+1, spec.Clients, err)
		}
	}
	return c, nil
}

func (c *crew) add(i int, j job, command []string) error {
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
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
	c.procs = append(c.procs, &process{cmd: cmd, in: in})
	c.wait.Go(func() { c.listen(i, cmd, out) })
	line, err := json.Marshal(j)
	if err != nil {
		return err
	}
	return c.procs[len(c.procs)-1].tell(append(line, '\n'))
}

// tell sends a process a line. It is no error if the process is gone: why it is, and that is what
// counts, comes as its last event. (listen closes the pipe of a process that has ended, so the
// write finds either a pipe without a reader or one that is closed.)
func (p *process) tell(line []byte) error {
	_, err := p.in.Write(line)
	if errors.Is(err, syscall.EPIPE) || errors.Is(err, os.ErrClosed) {
		return nil
	}
	return err
}

// listen passes a process's reports on until it ends.
func (c *crew) listen(i int, cmd *exec.Cmd, out io.Reader) {
	reports := json.NewDecoder(out)
	for {
		var r report
		if err := reports.Decode(&r); err != nil {
			if !errors.Is(err, io.EOF) {
				_ = cmd.Process.Kill()
			}
			if ended := cmd.Wait(); ended != nil {
				err = ended
			}
			c.events <- event{i: i, err: err}
			return
		}
		c.events <- event{i: i, report: r}
	}
}

// each takes reports until take has returned true once for every process. A
// process that fails or ends before fails the run.
func (c *crew) each(ctx context.Context, take func(i int, r report) bool) error {
	taken := make([]bool, len(c.procs))
	for missing := len(c.procs); missing > 0; {
		select {
		case <-ctx.Done():
			return fmt.Errorf("%d of %d worker processes did not finish: %w", missing, len(c.procs), context.Cause(ctx))
		case e := <-c.events:
			switch {
			case e.err != nil && taken[e.i]:
			case e.err != nil:
				return fmt.Errorf("worker process %d of %d ended early: %w", e.i+1, len(c.procs), e.err)
			case e.report.Unserved:
				return fmt.Errorf("worker process %d of %d: %s (%w)", e.i+1, len(c.procs), e.report.Error, ErrUnserved)
			case e.report.Error != "":
				return fmt.Errorf("worker process %d of %d: %s", e.i+1, len(c.procs), e.report.Error)
			case take(e.i, e.report) && !taken[e.i]:
				taken[e.i] = true
				missing--
			}
		}
	}
	return nil
}

// begin lets all processes start their measurement.
func (c *crew) begin() error {
	for i, p := range c.procs {
		if err := p.tell([]byte("go\n")); err != nil {
			return fmt.Errorf("tell worker process %d of %d to begin: %w", i+1, len(c.procs), err)
		}
	}
	return nil
}

// kill ends all processes that have not ended and waits for all.
func (c *crew) kill() {
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
			return
		}
	}
}

// within bounds ctx for one phase of a run.
func within(ctx context.Context, d time.Duration, what string) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, d, fmt.Errorf("%s took more than %v", what, d))
}
