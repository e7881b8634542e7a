package client_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rdmad/rdmad/client"
	"github.com/rdmad/rdmad/internal/daemontest"
	"github.com/rdmad/rdmad/internal/status"
	"github.com/rdmad/rdmad/server"
)

// againStyles are the styles that a method with client.Idempotent has.
func againStyles() (styles []callStyle) {
	for _, s := range callStyles {
		if s.again {
			styles = append(styles, s)
		}
	}
	return styles
}

// The process that has begun with a request is killed: whatever its style, the request is
// answered by another process, of the same node if the target names one. What the caller
// does with the bytes of a request that was copied changes nothing.
func TestIdempotentInAllStyles(t *testing.T) {
	a, b := daemontest.Pair(t, "")
	c := attach(t, a)
	for _, where := range []struct {
		target string
		second *daemontest.Node
	}{{"b/t/work", b}, {"t/work", a}, {"t/work", b}} {
		for _, s := range againStyles() {
			victim := daemontest.Spawn(t, "moody", b.Socket, "victim", "stuck")
			m := method(t, c, where.target).With(client.Idempotent())
			what := strings.Repeat("x", 10)
			ends := sendEach(t.Context(), c, m, what, []callStyle{s})
			if line := victim.Line(); line != "work "+what+s.name {
				t.Fatalf("%s: the service says %q", s.name, line)
			}
			other := daemontest.Spawn(t, "moody", where.second.Socket, "other", "well")
			victim.Kill()
			want := "other " + what + s.name
			if s.bare {
				want = ""
			}
			if end := collect(t, 1, ends)[0]; end.err != nil || string(end.answer) != want {
				t.Errorf("%s to %s: %q, %v", s.name, where.target, end.answer, end.err)
			}
			other.Kill()
		}
	}
	quiet(t, a, b)
}

// Nobody serves the method for a while: what is sent meanwhile is answered when somebody
// does again, in every style, also when the route is known no more.
func TestIdempotentWaitsForAService(t *testing.T) {
	a, b := daemontest.Pair(t, "")
	c := attach(t, a)
	for _, target := range []string{"b/t/work", "t/work"} {
		victim := daemontest.Spawn(t, "moody", b.Socket, "victim", "well")
		m := method(t, c, target).With(client.Idempotent())
		victim.Kill()
		daemontest.Eventually(t, "nobody serves it", func() error {
			if _, err := method(t, c, target).Call(t.Context(), nil); !errors.Is(err, client.ErrNoService) {
				return fmt.Errorf("a call: %w", err)
			}
			return nil
		})
		styles := againStyles()
		ends := sendEach(t.Context(), c, m, "", styles)
		other := daemontest.Spawn(t, "moody", b.Socket, "other", "well")
		for _, end := range collect(t, len(styles), ends) {
			if end.err != nil || !end.style.bare && string(end.answer) != "other "+end.style.name {
				t.Errorf("%s to %s: %q, %v", end.style.name, target, end.answer, end.err)
			}
		}
		other.Kill()
	}
	quiet(t, a, b)
}

// A large answer whose process is killed before all of it was fetched is asked for again.
func TestIdempotentLargeAnswer(t *testing.T) {
	a, b := daemontest.Pair(t, "")
	c := attach(t, a)
	victim := daemontest.Spawn(t, "moody", b.Socket, "victim", "well")
	m := method(t, c, "b/t/work").With(client.Idempotent())
	buf := append(make([]byte, 0, 2<<20), "large"...)
	f, err := m.GoInto(t.Context(), buf, buf)
	if err != nil {
		t.Fatal(err)
	}
	clear(buf)
	answered(t, a, 1) // and nobody has looked
	victim.Kill()
	daemontest.Spawn(t, "moody", b.Socket, "other", "well")
	got, err := f.Wait(t.Context())
	if err != nil || !bytes.Equal(got, bytes.Repeat([]byte("other"), largeAnswer)) || &got[0] != &buf[0] {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	// The memory of the answer may be that of the request.
	buf = append(buf[:0], "large"...)
	if got, err := m.CallInto(t.Context(), buf, buf); err != nil || !bytes.Equal(got, bytes.Repeat([]byte("other"), largeAnswer)) || &got[0] != &buf[0] {
		t.Errorf("CallInto: %d bytes, %v", len(got), err)
	}
	quiet(t, a, b)
}

// What cannot be sent again is refused, before anything is sent.
func TestIdempotentRefusals(t *testing.T) {
	a, b := daemontest.Pair(t, "")
	serve(t, b, 1, nil)
	c := attach(t, a)
	m := method(t, c, "b/t/echo").With(client.Idempotent())
	before := counter(t, b, "requests_received")
	for what, err := range map[string]error{
		"Post":       m.Post(t.Context(), []byte("x")),
		"Reserve":    second(m.Reserve(t.Context(), 1)),
		"Stream":     second(m.Stream(t.Context())),
		"StreamWith": second(m.StreamWith(t.Context(), make([]byte, 1<<20))),
	} {
		if !errors.Is(err, client.ErrInvalid) || !strings.Contains(err.Error(), "Idempotent") {
			t.Errorf("%s: %v", what, err)
		}
	}
	for _, s := range callStyles {
		want := error(nil)
		if !s.again {
			want = client.ErrInvalid
		}
		if _, err := s.do(t.Context(), c, m, []byte("x")); !errors.Is(err, want) {
			t.Errorf("%s: %v", s.name, err)
		}
		if _, err := s.do(t.Context(), c, m.With(client.Ordered(1)), []byte("x")); !errors.Is(err, client.ErrInvalid) {
			t.Errorf("%s, ordered: %v", s.name, err)
		}
	}
	if n := counter(t, b, "requests_received") - before; n != uint64(len(againStyles())) {
		t.Errorf("%d requests were sent", n)
	}
	if _, err := m.CallBatch(t.Context(), [][]byte{nil, make([]byte, client.MaxMessage+1)}); err != nil {
		t.Errorf("a batch with one that is too large: %v", err)
	}
	quiet(t, a, b)
}

// Errors of handlers are answers, and requests that never fit are not tried twice.
func TestIdempotentAnswers(t *testing.T) {
	a, b := daemontest.Pair(t, "")
	serve(t, b, 1, handlers{"fail": func(*server.Call) error { return errors.New("no") }})
	c := attach(t, a)
	m := method(t, c, "b/t/fail").With(client.Idempotent())
	before := counter(t, b, "requests_received")
	styles := againStyles()
	for _, end := range collect(t, len(styles), sendEach(t.Context(), c, m, "", styles)) {
		if !errors.Is(end.err, client.ErrRemote) || !is(end.err, false, false) {
			t.Errorf("%s: %v", end.style.name, end.err)
		}
	}
	if n := counter(t, b, "requests_received") - before; n != uint64(len(styles)) {
		t.Errorf("%d requests were sent for %d", n, len(styles))
	}
	for _, s := range styles {
		if _, err := s.do(t.Context(), c, m.With(client.Direct()), make([]byte, 64<<20)); !errors.Is(err, client.ErrTooLarge) {
			t.Errorf("%s: %v", s.name, err)
		}
	}
	quiet(t, a, b)
}

// Cancel and deadlines end the tries. A request of which a try may have been executed may
// have been, also if the last one was not.
func TestIdempotentEnds(t *testing.T) {
	a, b := daemontest.Pair(t, "")
	c := attach(t, a)
	victim := daemontest.Spawn(t, "moody", b.Socket, "victim", "stuck")
	m := method(t, c, "b/t/work").With(client.Idempotent())
	styles := againStyles()
	until, end := context.WithCancel(t.Context())
	defer end()
	begun := sendEach(until, c, m, "begun ", styles[:1])
	victim.Line()
	forever, err := m.Go(t.Context(), []byte("forever"))
	if err != nil {
		t.Fatal(err)
	}
	var ctx context.Context
	var limited *client.Future
	for d := 5 * time.Second; limited == nil; d *= 2 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(t.Context(), d)
		defer cancel()
		if limited, err = m.Go(ctx, []byte("limited")); err != nil && ctx.Err() == nil || d > time.Minute {
			t.Fatal(err)
		}
	}
	context.AfterFunc(ctx, end)
	victim.Kill()
	waiting := sendEach(ctx, c, m, "waiting ", styles)
	var late *client.DeadlineError
	if end := collect(t, 1, begun)[0]; !errors.As(end.err, &late) || !late.Sent || !is(end.err, false, true) {
		t.Errorf("a call of which a try was executed: %v", end.err)
	}
	for _, end := range collect(t, len(styles), waiting) {
		if !errors.As(end.err, &late) || !errors.Is(end.err, context.DeadlineExceeded) {
			t.Errorf("%s: %v", end.style.name, end.err)
		} else if end.style.waits && (late.Sent || !is(end.err, true, false)) {
			t.Errorf("%s, of which no try was executed: %v", end.style.name, end.err)
		}
	}
	within(t, "futures", func() {
		if _, err := limited.Wait(t.Context()); !errors.As(err, &late) || late.Sent || !is(err, true, false) {
			t.Errorf("the end of the deadline: %v", err)
		}
		if forever.Cancel() {
			t.Error("Cancel took a request back that is not under way")
		}
		if _, err := forever.Wait(t.Context()); !is(err, true, false) || !strings.Contains(err.Error(), "cancelled") {
			t.Errorf("cancelled: %v", err)
		}
		forever.Release()
		if _, err, ok := forever.Result(); !ok || !is(err, true, false) {
			t.Errorf("after Release: %v", err)
		}
	})
	quiet(t, a, b)
}

// Cancel takes back a try that the daemon has not taken.
func TestIdempotentCancelBeforeSend(t *testing.T) {
	a, b := daemontest.Pair(t, "")
	serve(t, b, 1, nil)
	c := attach(t, a)
	m := method(t, c, "b/t/echo").With(client.Idempotent())
	resume, err := a.StopCore()
	if err != nil {
		t.Fatal(err)
	}
	f, err := m.Go(t.Context(), []byte("x"))
	if err != nil {
		t.Fatal(err)
	}
	if !f.Cancel() || f.Cancel() {
		t.Error("it was not taken back, or twice")
	}
	if _, err := f.Wait(t.Context()); !is(err, true, false) {
		t.Error(err)
	}
	if err := resume(); err != nil {
		t.Fatal(err)
	}
	quiet(t, a, b)
}

// The end of the connection ends all tries, with an outcome for each.
func TestIdempotentAndClose(t *testing.T) {
	a, b := daemontest.Pair(t, "")
	victim := daemontest.Spawn(t, "moody", b.Socket, "victim", "stuck")
	c := attach(t, a)
	m := method(t, c, "b/t/work").With(client.Idempotent())
	styles := againStyles()
	ends := sendEach(t.Context(), c, m, "", styles)
	received(t, b, 0, len(styles))
	victim.Line()
	victim.Kill()
	daemontest.Eventually(t, "they are between tries", func() error {
		if n := counter(t, b, "refused"); n < uint64(len(styles)) {
			return fmt.Errorf("%d were refused", n)
		}
		// None is on its way to a node that is known not to serve them.
		st, err := a.Status(t.Context())
		if err == nil && slices.ContainsFunc(st.Services, func(s status.Service) bool { return s.Method == "work" }) {
			err = errors.New("it is served still")
		}
		return err
	})
	quiet(t, a, b)
	within(t, "Close", func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	maybe := 0
	for _, end := range collect(t, len(styles), ends) {
		if !errors.Is(end.err, client.ErrClosed) || errors.Is(end.err, client.ErrNotExecuted) == errors.Is(end.err, client.ErrMaybeExecuted) {
			t.Errorf("%s: %v", end.style.name, end.err)
		}
		if errors.Is(end.err, client.ErrMaybeExecuted) {
			maybe++
		}
	}
	if maybe != 1 {
		t.Errorf("%d requests may have been executed, of which one was begun with", maybe)
	}
}

// Close does not wait for the daemon, which looks for a node that serves a request, nor for those who wait
// until another has asked.
func TestCloseWhileTheWayIsLookedFor(t *testing.T) {
	const wait = 50 * time.Second
	a, b := daemontest.Pair(t, fmt.Sprintf("[limits]\nconnect_wait=%q\n", wait))
	serve(t, b, 1, nil)
	c := attach(t, a)
	m := method(t, c, "b/t/echo")
	if err := b.Halt(); err != nil {
		t.Fatal(err)
	}
	daemontest.Eventually(t, "the node is known to be gone", func() error {
		st, err := a.Status(t.Context())
		if err == nil && slices.ContainsFunc(st.Services, func(s status.Service) bool { return s.Method == "echo" }) {
			err = errors.New("it is served still")
		}
		return err
	})
	q := c.NewQueue()
	ends := make(chan error, 3)
	go func() { _, err := m.Call(t.Context(), nil); ends <- err }()
	go func() { ends <- m.With(client.Idempotent()).GoTo(t.Context(), q, nil, 1) }()
	daemontest.Eventually(t, "a request is about to be sent", func() error {
		if q.Len() == 0 {
			return errors.New("the queue is empty")
		}
		return nil
	})
	go func() {
		var err error
		for _, r := range q.All(t.Context()) {
			err = r.Err
		}
		ends <- err
	}()
	start := time.Now()
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if took := time.Since(start); took > wait/2 {
		t.Errorf("Close took %v", took)
	}
	for range cap(ends) {
		if err := <-ends; err != nil && !errors.Is(err, client.ErrClosed) {
			t.Error(err)
		}
	}
}

// What a connection keeps to send again is bounded: requests beyond wait until others have
// their outcomes.
func TestIdempotentKeepsABoundedAmount(t *testing.T) {
	a, b := daemontest.Pair(t, "")
	c := attach(t, a)
	victim := daemontest.Spawn(t, "moody", b.Socket, "victim", "stuck")
	m := method(t, c, "b/t/work").With(client.Idempotent())
	msg := make([]byte, 3<<20)
	var futures []*client.Future
	full := func(ctx context.Context, m *client.Method) error {
		for range 64 {
			f, err := m.Go(ctx, msg)
			if err != nil {
				return err
			}
			futures = append(futures, f)
		}
		return nil
	}
	if err := full(t.Context(), m.With(client.NoWait())); !errors.Is(err, client.ErrBackpressure) || len(futures) != 64/3 {
		t.Errorf("%d requests, then %v", len(futures), err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if err := full(ctx, m); !errors.Is(err, client.ErrDeadline) || !is(err, true, false) {
		t.Errorf("a wait until the end of the context: %v", err)
	}
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			f, err := m.Go(t.Context(), msg)
			if err == nil {
				_, err = f.Wait(t.Context())
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	daemontest.Spawn(t, "moody", b.Socket, "other", "well")
	victim.Kill()
	within(t, "those that waited", all.Wait)
	for _, f := range futures {
		if _, err := f.Wait(t.Context()); err != nil {
			t.Error(err)
		}
	}
	quiet(t, a, b)
}
