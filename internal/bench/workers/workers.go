// Package workers runs the processes that load what a benchmark measures: each reads lines from its standard input and
// writes reports, one line of JSON each, to its standard output.
package workers

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
)

// Crew is processes whose reports are of type R. It belongs to one goroutine, which must call Kill. The
// processes end with the thread that has started them.
type Crew[R any] struct {
	// Events are the reports of all processes, and their ends.
	Events chan Event[R]

	argv  []string
	group bool
	procs []*process
	wait  sync.WaitGroup
}

// process is one of them.
type process struct {
	cmd *exec.Cmd
	in  io.WriteCloser
}

// Event is a report of process I, or its end.
type Event[R any] struct {
	I      int
	Report R
	// Err is why the process reports no more: io.EOF when it ended well.
	Err error
}

// New returns a crew without processes. argv is what starts one. There is room for as many events that
// nobody takes: processes wait beyond. Group has each process be a group of its own, so that a terminal's
// interrupt is for the parent alone.
func New[R any](argv []string, room int, group bool) *Crew[R] {
	return &Crew[R]{Events: make(chan Event[R], room), argv: argv, group: group}
}

// Len returns how many processes there are.
func (c *Crew[R]) Len() int { return len(c.procs) }

// Add starts a process.
func (c *Crew[R]) Add() error {
	cmd := exec.Command(c.argv[0], c.argv[1:]...)
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: c.group, Pdeathsig: syscall.SIGKILL}
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

// listen passes a process's reports on until it ends.
func (c *Crew[R]) listen(i int, cmd *exec.Cmd, out io.Reader) {
	reports := json.NewDecoder(out)
	for {
		e := Event[R]{I: i}
		if e.Err = reports.Decode(&e.Report); e.Err == nil {
			c.Events <- e
			continue
		}
		if !errors.Is(e.Err, io.EOF) {
			_ = cmd.Process.Kill()
		}
		if ended := cmd.Wait(); ended != nil {
			e.Err = ended
		}
		c.Events <- e
		return
	}
}

// Assign sends process i its job, as JSON.
func (c *Crew[R]) Assign(i int, job any) error {
	line, err := json.Marshal(job)
	if err != nil {
		return err
	}
	return c.tell(i, append(line, '\n'))
}

// Proceed lets the first n processes go on, which wait for a line.
func (c *Crew[R]) Proceed(n int) error {
	for i := range n {
		if err := c.tell(i, []byte("go\n")); err != nil {
			return fmt.Errorf("tell process %d of %d to go on: %w", i+1, n, err)
		}
	}
	return nil
}

// tell sends a process a line. It is no error if the process is gone: why it is, and that is what
// counts, comes as its last event. (listen closes the pipe of a process that has ended, so the
// write finds either a pipe without a reader or one that is closed.)
func (c *Crew[R]) tell(i int, line []byte) error {
	_, err := c.procs[i].in.Write(line)
	if errors.Is(err, syscall.EPIPE) || errors.Is(err, os.ErrClosed) {
		return nil
	}
	return err
}

// Interrupt has all processes that have not ended stop what they do.
func (c *Crew[R]) Interrupt() {
	for _, p := range c.procs {
		_ = p.cmd.Process.Signal(syscall.SIGINT) // an error if it has ended
	}
}

// Dismiss ends the input of all processes but the first n, which lets them end: their last events follow.
// Forget them then.
func (c *Crew[R]) Dismiss(n int) {
	for _, p := range c.procs[n:] {
		_ = p.in.Close()
	}
}

// Forget is for all processes but the first n, when they have ended.
func (c *Crew[R]) Forget(n int) { c.procs = c.procs[:n] }

// Kill ends all processes that have not ended, waits for all and forgets them.
func (c *Crew[R]) Kill() {
	c.Dismiss(0)
	for _, p := range c.procs {
		_ = p.cmd.Process.Kill()
	}
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		c.wait.Wait()
	}()
	for {
		select {
		case <-c.Events: // makes room for those who want to report
		case <-gone:
			c.procs = nil
			return
		}
	}
}

// PIDs returns the processes.
func (c *Crew[R]) PIDs() []int {
	var pids []int
	for _, p := range c.procs {
		pids = append(pids, p.cmd.Process.Pid)
	}
	return pids
}
