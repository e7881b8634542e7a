package server

import (
	"context"
	stdlog "log"
	"log/slog"
	"sync"
	"testing"
)

// slowLog is a slog.Handler whose reader does not read until it is opened.
type slowLog struct {
	slog.Handler
	open chan struct{}
	mu   sync.Mutex
	said []slog.Record
}

func (l *slowLog) Enabled(context.Context, slog.Level) bool { return true }

func (l *slowLog) Handle(_ context.Context, r slog.Record) error {
	<-l.open
	l.mu.Lock()
	defer l.mu.Unlock()
	l.said = append(l.said, r)
	return nil
}

// What a core's service has to say waits for nobody, is bounded, and says how much is missing.
func TestSayingApart(t *testing.T) {
	log := &slowLog{open: make(chan struct{})}
	before, out, flags := slog.Default(), stdlog.Writer(), stdlog.Flags()
	slog.SetDefault(slog.New(log))
	defer func() {
		slog.SetDefault(before)
		stdlog.SetOutput(out) // which slog has changed
		stdlog.SetFlags(flags)
	}()
	s := sayer{apart: true}
	s.flush() // nothing to wait for
	const most = 3 * mostSaid
	for range most {
		s.sayPanic(&panicked{value: "why"})
	}
	s.flush() // in vain
	close(log.open)
	for over := false; !over; {
		s.flush()
		s.mu.Lock()
		over = s.over == nil
		s.mu.Unlock()
	}
	s.say(slog.LevelWarn, "after")
	s.flush()
	log.mu.Lock()
	defer log.mu.Unlock()
	kept := len(log.said) - 1
	if kept != mostSaid && kept != mostSaid+1 { // one may have been on its way
		t.Errorf("%d records of %d were kept", kept, most)
	}
	lost := int64(-1)
	log.said[kept].Attrs(func(a slog.Attr) bool { lost = a.Value.Int64(); return a.Key == "lost" })
	if log.said[kept].Message != "after" || lost != int64(most-kept) {
		t.Errorf("the last record is %v", log.said[kept])
	}
}
