package attach

import (
	"context"
	"errors"
	"sync"
	"time"
)

// backlog is what the daemon is told as soon as it reads again. There is little of it: a message for each region, lane and
// spilled answer at most.
type backlog struct {
	mu      sync.Mutex
	waiting []*Message
	busy    bool // a goroutine tells it
}

// Tell sends a message that has no answer. What a daemon has no room for, because it has read nothing for some seconds, is
// told later, in the order of the calls: it is lost only with the session. Errors: ErrClosed, ErrLimit.
func (s *Session) Tell(m *Message) error {
	b := &s.backlog
	b.mu.Lock()
	if b.busy {
		b.waiting = append(b.waiting, m)
		b.mu.Unlock()
		return nil
	}
	b.mu.Unlock()
	err := s.conn.Send(m)
	if !errors.Is(err, ErrBusy) {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.waiting = append(b.waiting, m)
	if !b.busy {
		b.busy = true
		go s.tellLater()
	}
	return nil
}

// tellLater tells what waits. It ends with that, or with the connection, which frees Send.
func (s *Session) tellLater() {
	b := &s.backlog
	for {
		b.mu.Lock()
		if len(b.waiting) == 0 {
			b.busy = false
			b.mu.Unlock()
			return
		}
		m := b.waiting[0]
		b.waiting = b.waiting[1:]
		b.mu.Unlock()
		_ = s.insist(context.Background(), m) // fails if the session ends
	}
}

// insistence is how long one try of insist takes: after that it looks whether it is still to go on.
const insistence = 100 * time.Millisecond

// insist sends a message to a daemon that may stand still, until ctx or the connection ends.
func (s *Session) insist(ctx context.Context, m *Message) error {
	for ctx.Err() == nil {
		patience := insistence
		if end, ok := ctx.Deadline(); ok {
			patience = min(patience, max(time.Until(end), 0))
		}
		if err := s.conn.sendWithin(patience, m); !errors.Is(err, ErrBusy) {
			return err
		}
		select {
		case <-s.quiet:
			return ErrClosed
		default:
		}
	}
	return ctx.Err()
}
