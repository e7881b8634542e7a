package server

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"
)

const (
	// mostSaid is how many records wait for a log that takes its time; those after them are counted only.
	mostSaid = 16
	// saidWithin is how long a server that closes waits for them.
	saidWithin = 100 * time.Millisecond
)

// sayer logs what a server has to say, by slog's default.
//
// Of a process of its own it is said by whoever has noticed it. In a core nobody waits for a log, which may be a pipe that
// nobody reads: least of all the agent, on whose thread handlers run. There a goroutine says it, of which there is one while
// records wait.
type sayer struct {
	apart bool // in a core; set before there is anything to say

	mu      sync.Mutex
	waiting []slog.Record
	lost    int           // how many were not taken since the last that was
	over    chan struct{} // closed when none waits any more; nil while none does
}

// say logs a record.
func (s *sayer) say(level slog.Level, text string, args ...any) {
	if !s.apart {
		slog.Log(context.Background(), level, text, args...)
		return
	}
	r := slog.NewRecord(time.Now(), level, text, 0)
	r.Add(args...)
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.waiting) == mostSaid {
		s.lost++
		return
	}
	if s.lost > 0 {
		r.Add("lost", s.lost)
		s.lost = 0
	}
	s.waiting = append(s.waiting, r)
	if s.over == nil {
		s.over = make(chan struct{})
		go s.sayWaiting(s.over)
	}
}

// sayWaiting says what waits until nothing does.
func (s *sayer) sayWaiting(over chan struct{}) {
	defer close(over)
	for {
		s.mu.Lock()
		if len(s.waiting) == 0 {
			s.waiting, s.over = nil, nil
			s.mu.Unlock()
			return
		}
		r := s.waiting[0]
		s.waiting = s.waiting[1:]
		s.mu.Unlock()
		if h := slog.Default().Handler(); h.Enabled(context.Background(), r.Level) {
			_ = h.Handle(context.Background(), r) // as slog does
		}
	}
}

// flush waits for a moment until nothing waits.
func (s *sayer) flush() {
	s.mu.Lock()
	over := s.over
	s.mu.Unlock()
	if over == nil {
		return
	}
	end := time.NewTimer(saidWithin)
	defer end.Stop()
	select {
	case <-over:
	case <-end.C:
	}
}

// panicked is a handler's panic.
type panicked struct {
	value any
	stack []byte
}

// sayPanic logs a handler's panic.
func (s *sayer) sayPanic(p *panicked) {
	value := p.value
	if s.apart {
		value = fmt.Sprint(value) // what it refers to may change before it is said
	}
	s.say(slog.LevelError, "rdmad: handler panicked", "panic", value, "stack", string(p.stack))
}
