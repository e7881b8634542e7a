package attach

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// question waits for its answer.
type question struct {
	m      *Message
	answer chan *Message
	// left: nobody waits for the answer any more. apart: it counts in Session.left, since somebody left it, and
	// not in asks. Both are guarded by Session.mu.
	left, apart bool
	// cores is how many cores have ended without an answer to it. It belongs to who reads.
	cores int
}

// maxLeft is how many questions that nobody waits for are not in the way of others: with those that somebody waits for
// they must be less than MaxAsks; much more than that the daemon takes for an attack.
const maxLeft = MaxAsks/2 - 8

const (
	// askAgain is after how long a question is asked again for which there was no room, at first, and askAgainMost at last.
	askAgain     = 10 * time.Millisecond
	askAgainMost = time.Second
)

// Ask sends a question and waits for its answer, at most until ctx ends. The
// daemon's refusal is an error of this package. One that the daemon has no room for at the moment is asked again.
func (s *Session) Ask(ctx context.Context, m *Message) (*Message, error) {
	for pause := askAgain; ; pause = min(2*pause, askAgainMost) {
		a, err := s.askOnce(ctx, m)
		if !errors.Is(err, ErrLater) {
			return a, err
		}
		over := time.NewTimer(pause)
		select {
		case <-over.C:
			continue
		case <-s.done:
			err = s.Err()
		case <-s.quiet:
			err = cmp.Or(s.Err(), ErrClosed)
		case <-ctx.Done():
			err = fmt.Errorf("%w: %w", ctx.Err(), err)
		}
		over.Stop()
		return nil, err
	}
}

// askOnce asks once.
//
// A question that nobody waits for any more is one that the daemon answers all the same, and counts until it has: so it
// is counted here, too. Who asks for the way to the same target meanwhile waits for that answer.
func (s *Session) askOnce(ctx context.Context, m *Message) (*Message, error) {
	if c := s.takeUp(m); c != nil {
		// The daemon has waited for a node since it was asked first: there may be time left for it.
		if a, err := s.await(ctx, c); !errors.Is(err, ErrNoService) {
			return a, err
		}
	}
	select {
	case s.asks <- struct{}{}: // until the answer is there
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
		<-s.asks
		return nil, s.err
	}
	s.seq++
	q := *m
	q.Seq = s.seq
	c.m = &q
	s.pending[q.Seq] = c
	s.mu.Unlock()
	if err := s.insist(ctx, &q); err != nil {
		s.take(q.Seq)
		return nil, err
	}
	return s.await(ctx, c)
}

// takeUp returns a question for the way to m's target that nobody waits for any more, if there is one for which the daemon was
// given as much time.
func (s *Session) takeUp(m *Message) *question {
	if m.Type != TypeResolve || m.Target == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.pending {
		if !c.left || c.m.Type != TypeResolve || c.m.Target.WaitMillis != 0 && (m.Target.WaitMillis == 0 || c.m.Target.WaitMillis < m.Target.WaitMillis) {
			continue
		}
		if have := c.m.Target; have.Node == m.Target.Node && have.Service == m.Target.Service && have.Method == m.Target.Method &&
			slices.Equal(have.Avoid, m.Target.Avoid) {
			c.left = false
			return c
		}
	}
	return nil
}

// StopAsking ends all waits for answers of the daemon, now and later, with ErrClosed: for an owner who is about to
// Close the session, and has others wait. Again it does nothing.
func (s *Session) StopAsking() {
	if s.quiet != nil { // nil in a session without a daemon
		s.quietOnce.Do(func() { close(s.quiet) })
	}
}

// await waits for the answer to a question. One that has come counts, whatever else has ended by the time it is looked at.
func (s *Session) await(ctx context.Context, c *question) (*Message, error) {
	var a *Message
	var err error
	select {
	case a = <-c.answer:
	case <-s.done:
		err = s.Err()
	case <-s.quiet:
		err = cmp.Or(s.Err(), ErrClosed)
	case <-ctx.Done():
		err = ctx.Err()
	}
	if err != nil {
		select {
		case a = <-c.answer:
		default:
			s.leave(c)
			return nil, err
		}
	}
	if a.Fail != nil {
		return nil, a.Fail.Err()
	}
	return a, nil
}

// leave notes that nobody waits for the answer to a question any more.
func (s *Session) leave(c *question) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c.left = true
	if !c.apart && s.left < maxLeft && s.pending[c.m.Seq] == c {
		c.apart = true
		s.left++
		<-s.asks
	}
}

// take returns the question with that number, which is answered with that, or nil.
func (s *Session) take(seq uint64) *question {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.pending[seq]
	delete(s.pending, seq)
	switch {
	case c == nil:
	case c.apart:
		s.left--
	default:
		<-s.asks
	}
	return c
}

// answer gives a message to who has asked; to a question that was asked twice the second
// answer is nobody's.
func (s *Session) answer(m *Message) {
	if c := s.take(m.Seq); c != nil {
		c.answer <- m
	}
}
