package perf

import (
	"context"
	"errors"

	"github.com/rdmad/rdmad/internal/fabric"
)

const (
	// pollBatch is how many completions a back-off takes at once.
	pollBatch = 64
	// longestBackOff is how many looks at the queue a back-off has at most.
	longestBackOff = 1 << 12
)

// PostAll posts all of wrs on an endpoint. While its queue is full it takes completions, which
// it hands to done, and tries again: at once after a completion, else after more and more looks
// at the queue. It returns how often the queue was full. It ends like Await.
func (s *Session) PostAll(ctx context.Context, e fabric.Endpoint, wrs []fabric.SendWR, done func(fabric.Completion)) (full int, err error) {
	for wait := 1; len(wrs) > 0; {
		n, err := e.PostSend(wrs)
		wrs = wrs[n:]
		if err == nil {
			continue
		}
		if !errors.Is(err, fabric.ErrQueueFull) {
			return full, s.refused(err)
		}
		full++
		if n > 0 {
			wait = 1
		}
		if err := s.backOff(ctx, wait, done); err != nil {
			return full, err
		}
		if !s.Event {
			// A sleep is long enough.
			wait = min(2*wait, longestBackOff)
		}
	}
	return full, nil
}

// backOff looks for completions up to wait times.
func (s *Session) backOff(ctx context.Context, wait int, done func(fabric.Completion)) error {
	var c [pollBatch]fabric.Completion
	for range wait {
		n, err := s.Poll(c[:])
		if err != nil {
			return err
		}
		if n > 0 {
			s.Resume()
			for i := range c[:n] {
				done(c[i])
			}
			return nil
		}
		if err := s.Link.Err(); err != nil {
			return err
		}
		if err := s.Pause(ctx); err != nil {
			return err
		}
	}
	return nil
}

// refused returns why an endpoint does not take a work request: the completion that ended the
// connection, if there is one, knows more.
func (s *Session) refused(err error) error {
	var c [pollBatch]fabric.Completion
	for {
		n, why := s.Poll(c[:])
		if why != nil {
			return why
		}
		if n == 0 {
			return err
		}
	}
}
