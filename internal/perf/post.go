package perf

import (
	"context"
	"fmt"

	"github.com/rdmad/rdmad/internal/fabric"
	"github.com/rdmad/rdmad/internal/perf/link"
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
		if !Full(err) {
			return full, s.Refused(err)
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

// Completions waits like Await, and lets messages of the other side wait meanwhile. It always
// returns completions or an error.
func (s *Session) Completions(ctx context.Context, c []fabric.Completion) (int, error) {
	s.Resume()
	for {
		n, err := s.Poll(c)
		if n > 0 || err != nil {
			return n, err
		}
		if err := s.Link.Err(); err != nil {
			return 0, err
		}
		// A message that waits keeps Pause from sleeping, and so from looking at ctx.
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		if err := s.Pause(ctx); err != nil {
			return 0, err
		}
	}
}

// Hear receives the other side's next message, like Link.Receive, and drives the device
// meanwhile: without that some answer nothing that the other side does to this one's memory. A
// completion is an error, because nobody would take it.
func (s *Session) Hear(ctx context.Context, kind string, body any) error {
	s.Resume()
	var c [1]fabric.Completion
	for !s.Link.News() {
		n, err := s.Poll(c[:])
		switch {
		case err != nil && s.Link.News():
			// The other side has said its last word before it has ended the connection.
			if s.Link.Receive(ctx, kind, body) == nil {
				return nil
			}
			return err
		case err != nil:
			return err
		case n > 0:
			return &link.ProtocolError{Detail: fmt.Sprintf("operation %d has completed where a message %q was due", c[0].Op, kind)}
		}
		if err := s.Pause(ctx); err != nil {
			return err
		}
	}
	return s.Link.Receive(ctx, kind, body)
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

// Refused returns why an endpoint does not take a work request: the completion that ended the
// connection, if there is one, knows more.
func (s *Session) Refused(err error) error {
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
