package main

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/rdmad/rdmad/cmd/rdmad/look"
	"github.com/rdmad/rdmad/internal/status"
)

// signalled sends the supervisor of the daemon on socket a signal, unless check has something against it, and returns
// the daemon's state before.
func signalled(ctx context.Context, socket string, sig syscall.Signal, check func(*status.Node) error) (*status.Node, error) {
	var s *status.Node
	d, err := asked(ctx, socket, "rdmad-signal", func(d *look.Daemon) (err error) {
		if s, err = d.Status(ctx); err != nil {
			return err
		}
		if err := check(s); err != nil {
			return err
		}
		return d.Signal(s, sig)
	})
	if err != nil {
		return nil, err
	}
	_ = d.Close() // the signal is sent
	return s, nil
}

// awaited returns the first state that is the outcome of what a node was told, within the limit that ctx has. Each look attaches anew,
// because the core may be another.
func awaited(ctx context.Context, socket, node string, limit time.Duration, outcome func(*status.Node) bool) (*status.Node, error) {
	answers := false
	for {
		raw, err := look.Ask(ctx, socket, "rdmad-signal")
		if err == nil {
			answers = true
			s, err := look.Parse(raw)
			if err != nil {
				return nil, err
			}
			if outcome(s) {
				return s, nil
			}
		}
		select {
		case <-ctx.Done():
			if err == nil || answers && errors.Is(err, look.ErrNoAnswer) { // it had no time to answer once more
				err = ctx.Err()
			}
			if errors.Is(err, context.DeadlineExceeded) {
				return nil, fmt.Errorf("node %s was told, and has not said within %v what has come of it: give it longer with --timeout, see the daemon's log, and ask: rdmad doctor", node, limit)
			}
			return nil, fmt.Errorf("node %s was told, and what has come of it is not known, see the daemon's log: %w", node, err)
		case <-time.After(outcomeLook):
		}
	}
}
