package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"testing"
	"time"

	"github.com/rdmad/rdmad/client"
	"github.com/rdmad/rdmad/internal/daemontest"
	"github.com/rdmad/rdmad/server"
)

// is reports whether err says of its request what it should, and nothing else.
func is(err error, notExecuted, maybeExecuted bool) bool {
	return errors.Is(err, client.ErrNotExecuted) == notExecuted && errors.Is(err, client.ErrMaybeExecuted) == maybeExecuted
}

// The process that has begun with a request is killed: whatever its style, the request may
// have been executed, and is sent to nobody else. Those that it has not begun with go to
// another process.
func TestOutcomesOfKilledProcess(t *testing.T) {
	a, b := daemontest.Pair(t, "")
	c := attach(t, a)
	for _, s := range callStyles {
		before := counter(t, b, "requests_received")
		victim := daemontest.Spawn(t, "moody", b.Socket, "victim", "stuck")
		m := method(t, c, "b/t/work")
		begun := sendEach(t.Context(), c, m, "begun ", []callStyle{s})
		if line := victim.Line(); line != "work begun "+s.name {
			t.Fatalf("%s: the service says %q", s.name, line)
		}
		waiting := sendEach(t.Context(), c, m, "waiting ", callStyles)
		received(t, b, before, 1+len(callStyles))
		other := daemontest.Spawn(t, "moody", b.Socket, "other", "well")
		victim.Kill()
		if end := collect(t, 1, begun)[0]; !is(end.err, false, true) || end.answer != nil {
			t.Errorf("%s: %q, %v", s.name, end.answer, end.err)
		}
		for _, end := range collect(t, len(callStyles), waiting) {
			want := "other waiting " + end.style.name
			if end.style.bare {
				want = ""
			}
			if end.err != nil || string(end.answer) != want {
				t.Errorf("%s, which waited: %q, %v", end.style.name, end.answer, end.err)
			}
		}
		other.Kill()
	}
	quiet(t, a, b)
}

// The last process is killed before it has begun with requests: whatever their style, they
// were not executed because nobody serves the method, and the error says both.
func TestOutcomesWithoutAnotherProcess(t *testing.T) {
	a, b := daemontest.Pair(t, "")
	c := attach(t, a)
	before := counter(t, b, "requests_received")
	victim := daemontest.Spawn(t, "moody", b.Socket, "victim", "stuck")
	m := method(t, c, "b/t/work")
	begun := sendEach(t.Context(), c, m, "begun ", callStyles[:1])
	victim.Line()
	waiting := sendEach(t.Context(), c, m, "waiting ", callStyles)
	received(t, b, before, 1+len(callStyles))
	victim.Kill()
	collect(t, 1, begun)
	for _, end := range collect(t, len(callStyles), waiting) {
		if !is(end.err, true, false) || !errors.Is(end.err, client.ErrNoService) {
			t.Errorf("%s: %q, %v", end.style.name, end.answer, end.err)
		}
	}
	// So it is when the daemon knows already, and for what is not there at all.
	daemontest.Eventually(t, "the daemon knows", func() error {
		// Another connection each time: one that has been told a target keeps it.
		asks, err := client.Attach(t.Context(), a.Socket)
		if err != nil {
			return err
		}
		if _, err = asks.Method(t.Context(), "t/work"); err == nil {
			return errors.Join(errors.New("it is served"), asks.Close())
		}
		return asks.Close()
	})
	for _, end := range collect(t, len(callStyles), sendEach(t.Context(), c, m, "late ", callStyles)) {
		if !is(end.err, true, false) || !errors.Is(end.err, client.ErrNoService) {
			t.Errorf("%s, later: %q, %v", end.style.name, end.answer, end.err)
		}
	}
	if err := m.Post(t.Context(), nil); !is(err, true, false) || !errors.Is(err, client.ErrNoService) {
		t.Errorf("Post: %v", err)
	}
	for _, target := range []string{"b/t/work", "t/work", "b/no/such", "z/t/work"} {
		if _, err := c.Call(t.Context(), target, nil); !is(err, true, false) || !errors.Is(err, client.ErrNoService) {
			t.Errorf("%s: %v", target, err)
		}
		if _, err := c.Stream(t.Context(), target); !is(err, true, false) || !errors.Is(err, client.ErrNoService) {
			t.Errorf("a stream to %s: %v", target, err)
		}
	}
	quiet(t, a, b)
}

// What a process has finished before it is killed is answered, whatever its style.
func TestOutcomesOfFinishedRequests(t *testing.T) {
	a, b := daemontest.Pair(t, "")
	c := attach(t, a)
	for _, s := range callStyles {
		if s.waits {
			continue // it cannot be answered without the caller's noticing
		}
		p := daemontest.Spawn(t, "moody", b.Socket, "first", "well")
		m := method(t, c, "b/t/work")
		ends := sendEach(t.Context(), c, m, "", []callStyle{s})
		p.Line()
		if err := b.Quiet(); err != nil {
			t.Fatal(err)
		}
		p.Kill()
		want := "first " + s.name
		if s.bare {
			want = ""
		}
		if end := collect(t, 1, ends)[0]; end.err != nil || string(end.answer) != want {
			t.Errorf("%s: %q, %v", s.name, end.answer, end.err)
		}
	}
	quiet(t, a, b)
}

// A context that ends before the daemon has taken the request: it is taken back, and was
// not executed. One that ends later: it may have been.
func TestOutcomesOfDeadlines(t *testing.T) {
	a, b := daemontest.Pair(t, "")
	var waiting []callStyle
	for _, s := range callStyles {
		if s.waits {
			waiting = append(waiting, s)
		}
	}
	g := newGate()
	defer g.Open()
	serve(t, b, 2*len(waiting), handlers{"gate": g.handle})
	c := attach(t, a)
	m := method(t, c, "b/t/gate")
	for _, idempotent := range []bool{false, true} {
		m, styles := m, waiting
		if idempotent {
			m = m.With(client.Idempotent())
			styles = slices.DeleteFunc(slices.Clone(styles), func(s callStyle) bool { return !s.again })
		}
		ctx, cancel := context.WithCancel(t.Context())
		ends := sendEach(ctx, c, m, "", styles)
		for range styles {
			<-g.entered
		}
		cancel()
		for _, end := range collect(t, len(styles), ends) {
			var late *client.DeadlineError
			if !errors.As(end.err, &late) || !late.Sent || !is(end.err, false, true) || !errors.Is(end.err, context.Canceled) {
				t.Errorf("%s, sent: %v", end.style.name, end.err)
			}
		}
		resume, err := a.StopCore()
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel = context.WithTimeout(t.Context(), 50*time.Millisecond)
		for _, end := range collect(t, len(styles), sendEach(ctx, c, m, "", styles)) {
			var late *client.DeadlineError
			if !errors.As(end.err, &late) || late.Sent || !is(end.err, true, false) || !errors.Is(end.err, context.DeadlineExceeded) {
				t.Errorf("%s, not sent: %v", end.style.name, end.err)
			}
		}
		cancel()
		if err := resume(); err != nil {
			t.Fatal(err)
		}
	}
	g.Open()
	quiet(t, a, b)
	if n := len(g.entered); n > 0 {
		t.Errorf("%d requests were executed that were taken back", n)
	}
}

// The handler's process is killed under a stream: it may have done something.
func TestOutcomeOfStream(t *testing.T) {
	a, b := daemontest.Pair(t, "")
	p := daemontest.Spawn(t, "streamer", b.Socket)
	s := open(t, attach(t, a), "b/t/stream")
	if msg, err := s.Recv(t.Context()); err != nil || string(msg) != "begun" {
		t.Fatalf("%q, %v", msg, err)
	}
	p.Kill()
	within(t, "the stream", func() {
		if _, err := s.Recv(t.Context()); !is(err, false, true) {
			t.Errorf("%v", err)
		}
	})
	quiet(t, a, b)
}

// runStreamer is a service process whose stream says "begun" and goes on.
func runStreamer(args []string) error {
	s, err := server.Attach(context.Background(), args[0])
	if err != nil {
		return err
	}
	defer s.Close()
	if err := s.HandleStream("t", "stream", func(s *server.Stream) error {
		if err := s.Send([]byte("begun")); err != nil {
			return err
		}
		_, err := s.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		return err
	}); err != nil {
		return err
	}
	fmt.Println("ready")
	return s.Serve(context.Background())
}
