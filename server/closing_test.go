package server_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"

	"github.com/rdmad/rdmad/client"
	"github.com/rdmad/rdmad/internal/daemontest"
	"github.com/rdmad/rdmad/server"
)

// A server that closes, and waits for a handler that does not return, is given nothing more: requests go to other
// processes of the service, and without one nobody serves it.
func TestCloseBesideAHandlerThatStays(t *testing.T) {
	a, b := daemontest.Pair(t, "")
	g, busy := newGate(), newGate()
	defer g.Open()
	defer busy.Open()
	one := attach(t, b, server.Workers(4), server.Name("one"))
	closing := make(chan struct{})
	handle(t, one, "stay", func(c *server.Call) error {
		g.entered <- struct{}{}
		<-c.Context().Done()
		close(closing)
		<-g.open
		return nil
	})
	handle(t, one, "who", func(c *server.Call) error { return c.Reply([]byte("one")) })
	start(t, one)
	stays, err := caller(t, a, "b/t/stay").Go(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	<-g.entered
	two := attach(t, b, server.Workers(4), server.Name("two"))
	handle(t, two, "who", func(c *server.Call) error { return c.Reply([]byte("two")) })
	handle(t, two, "busy", busy.handle)
	start(t, two)
	// It has more to do than the other: that one would be given new requests.
	work := caller(t, a, "b/t/busy")
	for range 3 {
		if _, err := work.Go(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		<-busy.entered
	}
	go func() { _ = one.Close() }()
	<-closing

	who := caller(t, a, "b/t/who")
	// The contexts of handlers end a moment before the process takes nothing more.
	daemontest.Eventually(t, "the other process is called", func() error {
		got, err := who.Call(soon(t), nil)
		if err != nil && !errors.Is(err, client.ErrNotExecuted) {
			t.Fatal(err)
		}
		if string(got) != "two" {
			return fmt.Errorf("%q, %v", got, err)
		}
		return nil
	})
	for range 10 {
		if got, err := who.Call(soon(t), nil); err != nil || string(got) != "two" {
			t.Fatalf("%q, %v", got, err)
		}
	}
	if err := two.Withdraw(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := who.Call(soon(t), nil); !errors.Is(err, client.ErrNoService) {
		t.Errorf("a call that nobody serves: %v", err)
	}
	g.Open()
	if _, err := stays.Wait(soon(t)); err != nil {
		t.Errorf("what had begun: %v", err)
	}
}

// occupied returns a server of node b that serves large requests, and whose only worker is in a handler
// until the gate opens.
func occupied(t *testing.T, a, b *daemontest.Node) (*server.Server, *gate) {
	t.Helper()
	g := newGate()
	s := attach(t, b, server.Workers(1))
	handle(t, s, "gate", g.handle)
	handle(t, s, "large", func(c *server.Call) error { return c.Reply(c.Request()) })
	start(t, s)
	if _, err := caller(t, a, "b/t/gate").Go(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	<-g.entered
	return s, g
}

// A large request that has come to a process which closes, and that no handler has begun with, has its outcome then: nobody else has it.
func TestCloseBesideALargeRequest(t *testing.T) {
	a, b := daemontest.Pair(t, "")
	s, g := occupied(t, a, b)
	defer g.Open()
	// It returns when the process has the request.
	f, err := caller(t, a, "b/t/large").With(client.Split()).Go(t.Context(), []byte("large"))
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = s.Close() }()
	if got, err := f.Wait(soon(t)); !errors.Is(err, client.ErrNotExecuted) || errors.Is(err, client.ErrDeadline) {
		t.Errorf("%q, %v", got, err)
	}
}

// A server that has withdrawn can wait for large requests that have come to it, and then loses none.
func TestFetchedLargeRequest(t *testing.T) {
	a, b := daemontest.Pair(t, "")
	s, g := occupied(t, a, b)
	defer g.Open()
	f, err := caller(t, a, "b/t/large").Go(t.Context(), make([]byte, 3<<20))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Withdraw(t.Context()); err != nil {
		t.Fatal(err)
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Fetched(over); !errors.Is(err, context.Canceled) {
		t.Errorf("while a large request waits for a worker: %v", err)
	}
	fetched := make(chan error, 1)
	go func() { fetched <- s.Fetched(t.Context()) }()
	g.Open()
	if err := <-fetched; err != nil {
		t.Error(err)
	}
	go func() { _ = s.Close() }()
	if got, err := f.Wait(soon(t)); err != nil || len(got) != 3<<20 {
		t.Errorf("%d bytes, %v", len(got), err)
	}
}

// A server whose Serve has ended answers nothing more, also before it is closed: what callers send it then, the next part of a
// large request, has its outcome.
func TestServeEndsBesideLargeRequests(t *testing.T) {
	a, b := daemontest.Pair(t, "")
	s := attach(t, b)
	handle(t, s, "large", func(*server.Call) error { return nil })
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	served := make(chan error, 1)
	go func() { served <- s.Serve(ctx) }()
	m := caller(t, a, "b/t/large")
	outcome := make(chan error, 1)
	go func() {
		for msg := make([]byte, 256<<20); ; {
			if _, err := m.Call(soon(t), msg); err != nil {
				outcome <- err
				return
			}
		}
	}()
	over, cancel := context.WithCancel(t.Context())
	cancel()
	for s.Fetched(over) == nil { // until a large request has begun to come
		runtime.Gosched()
	}
	stop()
	if err := <-served; err != nil {
		t.Error(err)
	}
	if err := <-outcome; !errors.Is(err, client.ErrNotExecuted) || errors.Is(err, client.ErrDeadline) {
		t.Errorf("the call: %v", err)
	}
	if _, err := s.AllocRegion(t.Context(), 1); !errors.Is(err, server.ErrClosed) {
		t.Errorf("a region for nobody: %v", err)
	}
	if err := s.Handle("t", "more", func(*server.Call) error { return nil }); !errors.Is(err, server.ErrClosed) {
		t.Errorf("a method that nobody serves: %v", err)
	}
}
