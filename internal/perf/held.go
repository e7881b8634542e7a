package perf

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rdmad/rdmad/internal/perf/link"
)

const (
	// tick is what a process may be frozen for without being taken for one that is held up: only ticks
	// that have passed one after the other count.
	tick = time.Second
	// runTicks is how many a run has to end in once the other side is gone, or it is to end; closeTicks is
	// how many the release of everything has after a run that went well.
	runTicks   = 4
	closeTicks = 30
)

// ErrHeld is wrapped by the error of a run that did not end: a call of the device has not returned,
// which nothing can interrupt. A peer that was killed in the middle of a queue that both share does that
// to this one (libfabric's shm). What the run uses is left as it is, for the end of the process.
var ErrHeld = errors.New("this side is held up by a call of its device that does not return")

// outcome is what a run has come to.
type outcome struct {
	result any
	err    error
}

// guard calls run and then release, and returns what they do: unless they are held up, in which case the
// error wraps ErrHeld, and why.
func guard(ctx context.Context, l *link.Link, run func() (any, error), release func() error) (any, error) {
	ran, released := make(chan outcome, 1), make(chan error, 1)
	go func() {
		result, err := run()
		ran <- outcome{result, err}
		released <- release()
	}()
	var o outcome
	select {
	case o = <-ran:
	case <-l.Context().Done():
		if !within(runTicks, ran, &o) {
			return nil, fmt.Errorf("%w (%w)", l.Err(), ErrHeld)
		}
	case <-ctx.Done():
		if !within(runTicks, ran, &o) {
			return nil, fmt.Errorf("%w (%w)", ctx.Err(), ErrHeld)
		}
	}
	ticks := closeTicks
	if o.err != nil {
		ticks = runTicks
	}
	var err error
	if !within(ticks, released, &err) {
		err = ErrHeld
	}
	return o.result, errors.Join(o.err, err)
}

// within waits for a value for a number of ticks.
func within[T any](ticks int, from <-chan T, into *T) bool {
	t := time.NewTicker(tick)
	defer t.Stop()
	for range ticks {
		select {
		case *into = <-from:
			return true
		case <-t.C:
		}
	}
	select {
	case *into = <-from:
		return true
	default:
		return false
	}
}
