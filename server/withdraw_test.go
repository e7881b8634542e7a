package server_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/rdmad/rdmad/client"
	"github.com/rdmad/rdmad/internal/daemontest"
	"github.com/rdmad/rdmad/server"
)

// A process that withdraws gets no new requests, and loses none: what it has begun with it ends, and the rest goes to
// others. Without others nobody serves the methods any more.
func TestWithdraw(t *testing.T) {
	a, b := daemontest.Pair(t, "")
	g := newGate()
	defer g.Open()
	echo := func(s *server.Stream) error {
		for {
			msg, err := s.Recv()
			if errors.Is(err, io.EOF) {
				return nil
			}
			if err == nil {
				err = s.Send(msg)
			}
			if err != nil {
				return err
			}
		}
	}
	one := attach(t, b, server.Workers(1), server.Name("one"))
	handle(t, one, "who", func(c *server.Call) error { return c.Reply([]byte("one")) })
	handle(t, one, "gate", g.handle)
	if err := one.HandleStream("t", "echo", echo); err != nil {
		t.Fatal(err)
	}
	done := start(t, one)
	stream, err := caller(t, a, "b/t/echo").Stream(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	exchange := func() {
		t.Helper()
		if err := stream.Send(t.Context(), []byte("still there")); err != nil {
			t.Error(err)
		}
		if got, err := stream.Recv(t.Context()); err != nil || string(got) != "still there" {
			t.Errorf("%q, %v", got, err)
		}
	}
	exchange()
	begun, err := caller(t, a, "b/t/gate").Go(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	<-g.entered
	who := caller(t, a, "b/t/who")
	var waiting []*client.Future // for one's only worker
	for range 10 {
		f, err := who.Go(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		waiting = append(waiting, f)
	}

	two := attach(t, b, server.Name("two"))
	handle(t, two, "who", func(c *server.Call) error { return c.Reply([]byte("two")) })
	start(t, two)
	if err := one.Withdraw(t.Context()); err != nil {
		t.Fatal(err)
	}
	for i, f := range waiting {
		if got, err := f.Wait(t.Context()); err != nil || string(got) != "two" {
			t.Errorf("waiting request %d: %q, %v", i, got, err)
		}
	}
	for range 50 {
		if got, err := who.Call(t.Context(), nil); err != nil || string(got) != "two" {
			t.Errorf("a new request: %q, %v", got, err)
		}
	}
	exchange()
	if _, err := caller(t, b, "b/t/who").With(client.NoWait()).Call(t.Context(), nil); err != nil {
		t.Error(err)
	}
	daemontest.Eventually(t, "nobody serves what only this process did", func() error {
		conn, err := client.Attach(t.Context(), a.Socket)
		if err != nil {
			return err
		}
		defer conn.Close()
		if _, err := conn.Call(t.Context(), "b/t/gate", nil); !errors.Is(err, client.ErrNoService) {
			return fmt.Errorf("a call: %w", err)
		}
		return nil
	})
	if err := errors.Join(one.Handle("t", "more", g.handle), one.Withdraw(t.Context())); !errors.Is(err, server.ErrInvalid) {
		t.Errorf("afterwards: %v", err)
	}
	if err := two.Withdraw(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := who.Call(t.Context(), nil); !errors.Is(err, client.ErrNoService) {
		t.Errorf("a call that nobody serves: %v", err)
	}
	g.Open()
	if got, err := begun.Wait(t.Context()); err != nil {
		t.Errorf("what had begun: %q, %v", got, err)
	}
	if err := errors.Join(stream.CloseSend(t.Context()), one.Close()); err != nil {
		t.Error(err)
	}
	<-done
	if err := one.Withdraw(t.Context()); !errors.Is(err, server.ErrClosed) {
		t.Errorf("of a closed one: %v", err)
	}
}

// Another core goes by it, too.
func TestWithdrawnBesideAnotherCore(t *testing.T) {
	a, b := daemontest.Pair(t, "")
	for _, name := range []string{"one", "two"} {
		s := attach(t, b, server.Name(name))
		handle(t, s, "who", func(c *server.Call) error { return c.Reply([]byte(name)) })
		start(t, s)
		if name == "one" {
			if err := s.Withdraw(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := b.KillCore(); err != nil {
		t.Fatal(err)
	}
	who := caller(t, a, "b/t/who")
	for range 50 {
		got, err := who.Call(t.Context(), nil)
		for errors.Is(err, client.ErrNotExecuted) && t.Context().Err() == nil { // while the link is lost
			got, err = who.Call(t.Context(), nil)
		}
		if err != nil || string(got) != "two" {
			t.Fatalf("%q, %v", got, err)
		}
	}
}

// Requests with an order go elsewhere, too, as soon as nothing of the order is under way in the process; and another
// core has the process go on with its streams.
func TestWithdrawnOrdersAndStreams(t *testing.T) {
	a, b := daemontest.Pair(t, "")
	g := newGate()
	defer g.Open()
	one := attach(t, b, server.Name("one"))
	handle(t, one, "who", func(c *server.Call) error {
		if string(c.Request()) == "wait" {
			return g.handle(c)
		}
		return c.Reply([]byte("one"))
	})
	if err := one.HandleStream("t", "echo", func(s *server.Stream) error {
		for {
			msg, err := s.Recv()
			if err != nil {
				return nil
			}
			if err := s.Send(msg); err != nil {
				return err
			}
		}
	}); err != nil {
		t.Fatal(err)
	}
	start(t, one)
	stream, err := caller(t, a, "b/t/echo").Stream(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	conn, err := client.Attach(t.Context(), a.Socket)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	method, err := conn.Method(t.Context(), "b/t/who")
	if err != nil {
		t.Fatal(err)
	}
	who := method.With(client.Ordered(7))
	first, err := who.Go(t.Context(), []byte("wait"))
	if err != nil {
		t.Fatal(err)
	}
	<-g.entered
	two := attach(t, b, server.Name("two"))
	handle(t, two, "who", func(c *server.Call) error { return c.Reply([]byte("two")) })
	start(t, two)
	if err := one.Withdraw(t.Context()); err != nil {
		t.Fatal(err)
	}
	second, err := who.Go(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	g.Open()
	if _, err := first.Wait(t.Context()); err != nil {
		t.Error(err)
	}
	for i, f := range []*client.Future{second, nil} {
		if f == nil {
			if f, err = who.Go(t.Context(), nil); err != nil {
				t.Fatal(err)
			}
		}
		if got, err := f.Wait(t.Context()); err != nil || string(got) != "two" {
			t.Errorf("ordered request %d: %q, %v", i, got, err)
		}
	}
	if err := b.KillCore(); err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(t.Context(), []byte("still there")); err != nil {
		t.Error(err)
	}
	if got, err := stream.Recv(t.Context()); err != nil || string(got) != "still there" {
		t.Errorf("the stream beside another core: %q, %v", got, err)
	}
	daemontest.Eventually(t, "the process has not come back by another core", func() error {
		got, err := who.Call(t.Context(), nil)
		if err == nil && string(got) != "two" {
			t.Fatalf("%q", got)
		}
		return err
	})
	if err := one.Handle("t", "more", g.handle); !errors.Is(err, server.ErrInvalid) {
		t.Errorf("offered again: %v", err)
	}
}

// Fetched waits for handlers of streams, and for callers to have received what they have sent, however slowly; and for
// nobody when the server is closed.
func TestFetched(t *testing.T) {
	a, b := daemontest.Pair(t, "")
	s := attach(t, b)
	if err := s.Fetched(t.Context()); err != nil {
		t.Errorf("before there was anything: %v", err)
	}
	const messages, size = 3, 150 << 10 // more than the caller's window
	entered, leave := make(chan struct{}), make(chan struct{})
	if err := s.HandleStream("t", "pages", func(s *server.Stream) error {
		close(entered)
		<-leave
		for range messages {
			if err := s.Send(make([]byte, size)); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	done := start(t, s)
	stream, err := caller(t, a, "b/t/pages").Stream(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	unfetched := func(what string) {
		t.Helper()
		hasty, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		if err := s.Fetched(hasty); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %v", what, err)
		}
	}
	<-entered
	unfetched("while a handler runs")
	close(leave)
	unfetched("while its caller has not received everything")
	fetched := make(chan error, 2)
	for range cap(fetched) {
		go func() { fetched <- s.Fetched(t.Context()) }()
	}
	for n := 0; ; n++ {
		msg, err := stream.Recv(t.Context())
		if err != nil {
			if n != messages || err != io.EOF {
				t.Errorf("after %d messages: %v", n, err)
			}
			break
		}
		if len(msg) != size {
			t.Errorf("%d bytes", len(msg))
		}
	}
	for range cap(fetched) {
		if err := <-fetched; err != nil {
			t.Error(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	<-done
	if err := s.Fetched(t.Context()); !errors.Is(err, server.ErrClosed) {
		t.Errorf("of a server that is closed: %v", err)
	}
}
