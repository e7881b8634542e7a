package attach

import (
	"cmp"
	"context"
)

// question waits for its answer.
type question struct {
	m      *Message
	answer chan *Message
}

// Ask sends a question and waits for its answer, at most until ctx ends. The
// daemon's refusal is an error of this package.
func (s *Session) Ask(ctx context.Context, m *Message) (*Message, error) {
	select {
	case s.asks <- struct{}{}:
		defer func() { <-s.asks }()
	case <-s.done:
		return nil, s.Err()
	case <-s.quiet:
		return nil, cmp.Or(s.Err(), ErrClosed)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	c := &question{answer: make(chan *Message, 1)}
	s.mu.Lock()
	if s.err != nil {
		defer s.mu.Unlock()
		return nil, s.err
	}
	s.seq++
	q := *m
	q.Seq = s.seq
	c.m = &q
	s.pending[q.Seq] = c
	s.mu.Unlock()
	if err := s.conn.Send(&q); err != nil {
		s.forget(q.Seq)
		return nil, err
	}
	return s.await(ctx, c)
}

// StopAsking ends all waits for answers of the daemon, now and later, with ErrClosed: for an owner who is about to
// Close the session, and has others wait. Again it does nothing.
func (s *Session) StopAsking() {
	if s.quiet != nil { // nil in a session without a daemon
		s.quietOnce.Do(func() { close(s.quiet) })
	}
}

// await waits for the answer to a question. One that has come counts, also if the
// session has ended since.
func (s *Session) await(ctx context.Context, c *question) (*Message, error) {
	var a *Message
	select {
	case a = <-c.answer:
	case <-s.done:
		select {
		case a = <-c.answer:
		default:
			return nil, s.Err()
		}
	case <-s.quiet:
		s.forget(c.m.Seq)
		return nil, cmp.Or(s.Err(), ErrClosed)
	case <-ctx.Done():
		s.forget(c.m.Seq)
		return nil, ctx.Err()
	}
	if a.Fail != nil {
		return nil, a.Fail.Err()
	}
	return a, nil
}

func (s *Session) forget(seq uint64) {
	s.mu.Lock()
	delete(s.pending, seq)
	s.mu.Unlock()
}

// answer gives a message to who has asked; to a question that was asked twice the second
// answer is nobody's.
func (s *Session) answer(m *Message) {
	s.mu.Lock()
	q := s.pending[m.Seq]
	delete(s.pending, m.Seq)
	s.mu.Unlock()
	if q != nil {
		q.answer <- m
	}
}
