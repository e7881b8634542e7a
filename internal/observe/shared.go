package observe

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// shared answers a question on behalf of all who ask it: it is asked by one goroutine at a
// time, and an answer is good for a while. A question that is not answered in time is an
// error for those who wait, and stays asked: nobody asks again before it is answered.
type shared[T any] struct {
	ask func() (T, error)
	// fresh is how long an answer is good for, patience how long anybody waits for one.
	fresh, patience time.Duration

	mu     sync.Mutex
	answer T
	err    error
	at     time.Time     // when the answer came; zero before the first
	asked  time.Time     // when the question was asked that is not answered
	done   chan struct{} // closed when it is; nil if none is
}

// get returns an answer.
func (s *shared[T]) get(ctx context.Context) (T, error) {
	s.mu.Lock()
	if !s.at.IsZero() && time.Since(s.at) < s.fresh {
		defer s.mu.Unlock()
		return s.answer, s.err
	}
	if s.done == nil {
		s.done, s.asked = make(chan struct{}), time.Now()
		go s.wait(s.done)
	}
	done, asked := s.done, s.asked
	s.mu.Unlock()
	late := time.NewTimer(s.patience - time.Since(asked))
	defer late.Stop()
	var none T
	var err error
	select {
	case <-done:
	case <-late.C:
		err = fmt.Errorf("no answer for %v", time.Since(asked).Round(time.Millisecond))
	case <-ctx.Done():
		err = ctx.Err()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil && s.done == done {
		return none, err
	}
	return s.answer, s.err // it may have come although this goroutine was late to see it
}

// wait asks the question. Its goroutine ends when the daemon answers, or with the process.
func (s *shared[T]) wait(done chan struct{}) {
	answer, err := s.ask()
	s.mu.Lock()
	s.answer, s.err, s.at, s.done = answer, err, time.Now(), nil
	s.mu.Unlock()
	close(done)
}
