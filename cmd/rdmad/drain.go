package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/rdmad/rdmad/cmd/rdmad/look"
	"github.com/rdmad/rdmad/internal/attach"
	"github.com/rdmad/rdmad/internal/status"
)

// drainFlags are the flags of a drain.
type drainFlags struct {
	socket  string
	timeout time.Duration
	undo    bool
	json    bool
}

// drainResult is a drain as JSON.
type drainResult struct {
	Node string `json:"node"`
	// InService is false while the node is out of service.
	InService bool `json:"in_service"`
	// Drain is that of the daemon's state; null for a node in service.
	Drain *status.Drain `json:"drain"`
}

func newDrain() *cobra.Command {
	var f drainFlags
	c := &cobra.Command{
		Use:   "drain",
		Short: "Take this node out of service, and wait until nothing is under way to it",
		Long: "Take the services of this node out of service: peers and the node's own workers send them no new requests,\n" +
			"and go to other nodes where they may; what is under way is finished. Requests of the node's own workers to\n" +
			"other nodes go on. The node stays out of service, also when its core dies or is replaced, until --undo or\n" +
			"until the daemon is started anew; afterwards the daemon can be stopped, and nobody notices. Only root and\n" +
			"the user that the daemon runs as may do this. Again it only waits.\n\n" +
			"A daemon that is stopped (SIGTERM) drains by itself, for at most node.drain_timeout.\n\n" +
			"Exit status: 0 if nothing is under way any more, or with --timeout 0, which does not wait; 1 if something still\n" +
			"is after --timeout; the node stays out of service then, too.",
		Example: "  rdmad drain --timeout 2m  # and then: systemctl stop rdmad.socket rdmad\n" +
			"  rdmad drain --undo",
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if f.timeout < 0 {
				return usagef("--timeout %v: want 0 or more", f.timeout)
			}
			if f.undo && c.Flags().Changed("timeout") {
				return usagef("--undo and --timeout: there is nothing to wait for")
			}
			return f.run(c.Context(), c.OutOrStdout())
		},
	}
	socketFlag(c, &f.socket)
	c.Flags().DurationVar(&f.timeout, "timeout", 30*time.Second, "how long to wait until nothing is under way; 0 does not wait")
	c.Flags().BoolVar(&f.undo, "undo", false, "put the node back into service")
	jsonFlag(c, &f.json)
	return c
}

// drainTool is what the daemon knows the command by.
const drainTool = "rdmad-drain"

// run drains, or undoes it, and prints the outcome.
func (f *drainFlags) run(ctx context.Context, out io.Writer) error {
	var s *status.Node
	told := false
	d, err := asked(ctx, f.socket, drainTool, func(d *look.Daemon) (err error) {
		told = true
		s, err = d.Drain(ctx, f.undo)
		return err
	})
	switch {
	case err != nil && told && !errors.Is(err, attach.ErrPermission) && !errors.Is(err, attach.ErrInvalid):
		return fmt.Errorf("whether the node is in service now is not known (see: rdmad status): %w", err)
	case err != nil:
		return err
	}
	if f.undo {
		if err := d.Close(); err != nil {
			return err
		}
		return f.print(out, s)
	}
	w := &drainWait{drainFlags: f, daemon: d, progress: newProgress()}
	s, err = w.wait(ctx, s)
	w.progress.end()
	w.close()
	switch {
	case errors.Is(err, errBack):
		return fmt.Errorf("node %s is in service: %w", w.node, err)
	case err != nil:
		return fmt.Errorf("node %s is out of service, but whether it is drained is not known: %w", w.node, err)
	}
	if s.Drain != nil && !s.Drain.Complete && f.timeout > 0 {
		if f.json {
			if err := f.print(out, s); err != nil {
				return err
			}
			return statusError(exitFailure)
		}
		return fmt.Errorf("node %s is out of service, but not drained after %v: %s (wait on with: rdmad drain; or go back with: rdmad drain --undo)",
			s.Node, f.timeout, look.Progress(s.Drain))
	}
	return f.print(out, s)
}

func (f *drainFlags) print(out io.Writer, s *status.Node) error {
	if f.json {
		return writeJSON(out, drainResult{Node: s.Node, InService: s.Drain == nil, Drain: s.Drain})
	}
	text := "in service"
	if s.Drain != nil {
		text = "out of service, " + look.Progress(s.Drain)
	}
	_, err := fmt.Fprintf(out, "node %s: %s\n", s.Node, text)
	return err
}

// drainWait waits for the end of a drain.
type drainWait struct {
	*drainFlags
	node     string
	daemon   *look.Daemon // nil while there is no attachment
	progress *progress
}

// drainLook is how often the daemon is asked.
const drainLook = 100 * time.Millisecond

var errBack = errors.New("somebody has put it back, or the daemon was started anew")

// wait returns the state in which the node is drained, or that after the time to wait.
func (w *drainWait) wait(ctx context.Context, s *status.Node) (*status.Node, error) {
	w.node = s.Node
	end, answered := time.Now().Add(w.timeout), time.Now()
	for {
		switch {
		case s.Drain == nil:
			return nil, errBack
		case s.Drain.Complete || !time.Now().Before(end):
			return s, nil
		}
		w.progress.show(fmt.Sprintf("node %s: %s", s.Node, look.Progress(s.Drain)))
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(drainLook):
		}
		next, err := w.ask(ctx)
		switch {
		case err == nil:
			s, answered = next, time.Now()
		case time.Since(answered) > coreGap || errors.Is(err, attach.ErrPermission) || errors.Is(err, attach.ErrVersion):
			return nil, err
		}
	}
}

// ask asks for the state, by a new attachment if there is none: tools lose theirs with the
// core.
func (w *drainWait) ask(ctx context.Context) (*status.Node, error) {
	if w.daemon == nil {
		d, err := look.Attach(ctx, w.socket, drainTool, look.Limit)
		if err != nil {
			return nil, err
		}
		w.daemon = d
	}
	s, err := w.daemon.Status(ctx)
	if err != nil {
		w.close()
	}
	return s, err
}

func (w *drainWait) close() {
	if w.daemon != nil {
		_ = w.daemon.Close() // it may have ended before
		w.daemon = nil
	}
}

// progress shows people what a command waits for: on a terminal in one line that changes,
// else in a line every few seconds, so that logs stay short.
type progress struct {
	terminal bool
	next     time.Time
	shown    bool
}

// progressPause is between the lines where there is no terminal.
const progressPause = 5 * time.Second

func newProgress() *progress {
	return &progress{terminal: isTerminal(os.Stderr), next: time.Now().Add(progressPause)}
}

func (p *progress) show(text string) {
	switch {
	case p.terminal:
		fmt.Fprintf(os.Stderr, "\r\033[K%s", text)
		p.shown = true
	case !time.Now().Before(p.next):
		fmt.Fprintln(os.Stderr, text)
		p.next = time.Now().Add(progressPause)
	}
}

// end removes the line that changes.
func (p *progress) end() {
	if p.shown {
		fmt.Fprint(os.Stderr, "\r\033[K")
	}
}
