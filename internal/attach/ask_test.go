package attach

import (
	"context"
	"errors"
	"testing"
)

// An answer that was the last thing that the daemon has said is an answer, also for one
// who comes to look when the session has ended.
func TestAnswerBeforeTheEnd(t *testing.T) {
	s := &Session{done: make(chan struct{}), err: ErrClosed}
	close(s.done)
	q := &question{m: &Message{Seq: 1}, answer: make(chan *Message, 1)}
	for range 100 {
		q.answer <- &Message{Type: TypePong}
		if a, err := s.await(context.Background(), q); err != nil || a.Type != TypePong {
			t.Fatalf("%+v, %v", a, err)
		}
	}
	if a, err := s.await(context.Background(), q); a != nil || !errors.Is(err, ErrClosed) {
		t.Errorf("without an answer: %+v, %v", a, err)
	}
}
