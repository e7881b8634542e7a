package main

import (
	"context"
	"fmt"
)

// inTime returns what f does, which may wait for ever, as who reads from a pipe. When ctx ends it is not waited for any more, and ends
// with the process; the error says what was done.
func inTime[T any](ctx context.Context, what string, f func() (T, error)) (T, error) {
	type outcome struct {
		result T
		err    error
	}
	done := make(chan outcome, 1)
	go func() {
		result, err := f()
		done <- outcome{result, err}
	}()
	select {
	case o := <-done:
		return o.result, o.err
	case <-ctx.Done():
		var none T
		return none, fmt.Errorf("%s: %w", what, ctx.Err())
	}
}
