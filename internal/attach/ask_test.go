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

// An answer that has come is not lost to the end of its wait.
func TestAnswerThatHasCome(t *testing.T) {
	over, cancel := context.WithCancel(t.Context())
	cancel()
	ended := make(chan struct{})
	close(ended)
	for name, s := range map[string]*Session{"ctx": {}, "stop": {quiet: ended}, "session": {done: ended, err: ErrClosed}} {
		ctx := t.Context()
		if name == "ctx" {
			ctx = over
		}
		for range 100 { // a select takes either of two that are ready
			c := &question{m: &Message{}, answer: make(chan *Message, 1)}
			want := &Message{Seq: 7}
			c.answer <- want
			if got, err := s.await(ctx, c); got != want || err != nil {
				t.Fatalf("%s: %+v, %v", name, got, err)
			}
		}
	}
}
