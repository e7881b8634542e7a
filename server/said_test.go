package server

import (
	"context"
	"fmt"
	stdlog "log"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/rdmad/rdmad/internal/daemontest"
	"github.com/rdmad/rdmad/slots"
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

// saySlowly makes the default log one until the test ends.
func saySlowly(t *testing.T) *slowLog {
	log := &slowLog{open: make(chan struct{})}
	before, out, flags := slog.Default(), stdlog.Writer(), stdlog.Flags()
	slog.SetDefault(slog.New(log))
	t.Cleanup(func() {
		slog.SetDefault(before)
		stdlog.SetOutput(out) // which slog has changed
		stdlog.SetFlags(flags)
	})
	return log
}

// In a process of its own it is said by the worker, for which the caller of the handler that has panicked does not wait.
func TestCallerDoesNotWaitForTheLog(t *testing.T) {
	log := saySlowly(t)
	r := newExchangeRig(t)
	daemon := r.monitored(0)
	r.s.handlers.Store(&map[uint32]handlers{fuzzMethod: {call: func(*Call) error { panic("why") }}})
	u := slots.Run{Index: 4, Len: 1, Ticket: 1}
	h := slots.Header{Ticket: u.Ticket, Run: 1, Kind: slots.KindRequest, Method: fuzzMethod, Answer: 300}
	h.Encode(r.ring.Header(u))
	r.ring.Deliver(u.Index, 1, fuzzID, u.Ticket)
	var served sync.WaitGroup
	served.Go(func() {
		r.s.pool.serve(&Call{server: r.s, batch: &batch{n: 1}}, slots.MakeHint(fuzzLane, u.Index, u.Ticket))
	})
	told, marked := false, false // one after the other: a look may come between them
	daemontest.Eventually(t, "the daemon hears of the answer", func() error {
		h, ok := daemon.Up.Pop()
		told = told || ok && h.Index() == u.Index
		marked = daemon.marked() || marked
		if !told || !marked {
			return fmt.Errorf("hint %v, %v; told %t, marked %t", h, ok, told, marked)
		}
		return nil
	})
	close(log.open)
	served.Wait()
	if len(log.said) != 1 {
		t.Errorf("%d records were said", len(log.said))
	}
}

// flushAll waits until nothing waits, however long the log takes.
func (s *sayer) flushAll(t *testing.T) {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; {
		s.flush()
		s.mu.Lock()
		over := s.over == nil
		s.mu.Unlock()
		if over {
			return
		}
		if time.Now().After(end) {
			t.Fatal("the log is not written")
		}
	}
}

// What a core's service has to say waits for nobody, is bounded, and says how much is missing.
func TestSayingApart(t *testing.T) {
	log := saySlowly(t)
	s := sayer{apart: true}
	s.flush() // nothing to wait for
	const most = 3 * mostSaid
	for range most {
		s.sayPanic(&panicked{value: "why"})
	}
	s.flush() // in vain
	close(log.open)
	s.flushAll(t)
	s.say(slog.LevelWarn, "after")
	s.flushAll(t)
	log.mu.Lock()
	defer log.mu.Unlock()
	kept := len(log.said) - 1
	if kept != mostSaid && kept != mostSaid+1 { // one may have been on its way
		t.Errorf("%d records of %d were kept", kept, most)
	}
	lost := int64(0) // which those say that come next, one of which may have been the one for which there was room again
	for _, r := range log.said {
		r.Attrs(func(a slog.Attr) bool {
			if a.Key == "lost" {
				lost += a.Value.Int64()
			}
			return true
		})
	}
	if log.said[kept].Message != "after" || lost != int64(most-kept) {
		t.Errorf("%d of %d records were kept, %d are said to be lost, and the last one is %v", kept, most, lost, log.said[kept])
	}
}
