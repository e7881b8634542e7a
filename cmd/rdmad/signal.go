package main

import (
	"context"
	"fmt"
	"syscall"
	"time"

	"github.com/rdmad/rdmad/cmd/rdmad/look"
	"github.com/rdmad/rdmad/internal/status"
)

// signalled sends the supervisor of the daemon on socket a signal, unless check has something against it, and returns
// the daemon's state before.
func signalled(ctx context.Context, socket string, sig syscall.Signal, check func(*status.Node) error) (*status.Node, error) {
	d, err := look.Attach(ctx, socket, "rdmad-signal", look.Limit)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	s, err := d.Status(ctx)
	if err != nil {
		return nil, err
	}
	if err := check(s); err != nil {
		return nil, err
	}
	return s, d.Signal(s, sig)
}

// outcomeLook is how often the outcome of a signal is looked for.
const outcomeLook = 20 * time.Millisecond

// awaited returns the first state that is the outcome. Each look attaches anew, because the core may be another.
func awaited(ctx context.Context, socket string, outcome func(*status.Node) bool) (*status.Node, error) {
	for {
		raw, err := look.Ask(ctx, socket, "rdmad-signal")
		if err == nil {
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
			if err == nil {
				err = ctx.Err()
			}
			return nil, fmt.Errorf("the outcome is not known, see the daemon's log: %w", err)
		case <-time.After(outcomeLook):
		}
	}
}
