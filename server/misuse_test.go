package server_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/rdmad/rdmad/client"
	"github.com/rdmad/rdmad/internal/daemontest"
	"github.com/rdmad/rdmad/server"
)

// A handler that ends its goroutine ends its request with an error and costs the pool no
// worker, whether it was alone or between others that were taken with it.
func TestHandlerExits(t *testing.T) {
	for _, workers := range []int{1, 2} {
		t.Run(fmt.Sprint(workers), func(t *testing.T) {
			a, b := daemontest.Pair(t, "")
			s := attach(t, b, server.Workers(workers))
			handle(t, s, "exit", func(c *server.Call) error {
				defer func() { _ = c.Reply([]byte("too late")) }()
				runtime.Goexit()
				return nil
			})
			handle(t, s, "echo", func(c *server.Call) error { return c.Reply(c.Request()) })
			done := start(t, s)
			exit, echo := caller(t, a, "b/t/exit"), caller(t, a, "b/t/echo")
			var exits, echoes []*client.Future
			for i := range 600 {
				m, list := echo, &echoes
				if i%7 == 0 || i > 590 {
					m, list = exit, &exits
				}
				f, err := m.Go(t.Context(), []byte("x"))
				if err != nil {
					t.Fatal(err)
				}
				*list = append(*list, f)
			}
			ctx := soon(t)
			for _, f := range exits {
				var remote *client.RemoteError
				if _, err := f.Wait(ctx); !errors.As(err, &remote) || remote.Text != "handler exited" {
					t.Fatal(err)
				}
			}
			for _, f := range echoes {
				if got, err := f.Wait(ctx); err != nil || string(got) != "x" {
					t.Fatalf("%q, %v", got, err)
				}
			}
			if f, err := exit.PostConfirmed(t.Context(), nil); err != nil {
				t.Error(err)
			} else if _, err := f.Wait(ctx); !errors.Is(err, client.ErrRemote) {
				t.Errorf("posted: %v", err)
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
			if err := <-done; !errors.Is(err, server.ErrClosed) {
				t.Errorf("serve: %v", err)
			}
			if err := b.Quiet(); err != nil {
				t.Error(err)
			}
		})
	}
}

// A Call that is kept has no request and takes no answer when its handler has returned.
func TestCallAfterReturn(t *testing.T) {
	a, b := daemontest.Pair(t, "")
	s := attach(t, b, server.Workers(1))
	kept := make(chan *server.Call, 2)
	handle(t, s, "keep", func(c *server.Call) error {
		kept <- c
		return c.Reply([]byte("in time"))
	})
	g := newGate()
	defer g.Open()
	handle(t, s, "gate", func(c *server.Call) error {
		if err := g.handle(c); err != nil {
			return err
		}
		return c.Reply([]byte("its own"))
	})
	start(t, s)
	m := caller(t, a, "b/t/keep")
	if got, err := m.Call(t.Context(), []byte("request")); err != nil || string(got) != "in time" {
		t.Fatalf("%q, %v", got, err)
	}
	c := <-kept
	check := func() {
		t.Helper()
		if c.Request() != nil || c.Answer(1) != nil || c.Capacity() != 0 || c.Cookie() != 0 || c.NumRegions() != 0 {
			t.Error("the call is not over")
		}
		if err := c.Reply([]byte("too late")); !errors.Is(err, server.ErrExpired) {
			t.Errorf("a late reply: %v", err)
		}
		if err := c.Context().Err(); !errors.Is(err, context.Canceled) {
			t.Errorf("its context: %v", err)
		}
	}
	check()
	f, err := caller(t, a, "b/t/gate").Go(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	<-g.entered
	if raceEnabled {
		check() // else it is the other request's by now
	}
	g.Open()
	if got, err := f.Wait(soon(t)); err != nil || string(got) != "its own" {
		t.Errorf("%q, %v", got, err)
	}
}

// An answer that comes after the deadline is the answer, for those who still wait.
func TestAnswerAfterDeadline(t *testing.T) {
	a, b := daemontest.Pair(t, "")
	s := attach(t, b, server.Workers(64)) // a handler of each try may wait
	given := make(chan struct{})          // closed when a caller has given up
	entered := make(chan byte, 64)
	handle(t, s, "late", func(c *server.Call) error {
		entered <- c.Request()[0]
		<-c.Context().Done()
		<-given
		return c.Reply([]byte("late"))
	})
	start(t, s)
	m := caller(t, a, "b/t/late")
	var f *client.Future
	n := byte(0)
	daemontest.InTime(t, "a handler that begins before the deadline", func(ctx context.Context) bool {
		var late *client.DeadlineError
		var err error
		n++
		if f, err = m.Go(ctx, []byte{n}); err != nil && !errors.As(err, &late) {
			t.Fatal(err)
		}
		<-ctx.Done()
		for len(entered) > 0 {
			if <-entered == n {
				return true
			}
		}
		return false
	})
	var late *client.DeadlineError
	over, cancel := context.WithDeadline(t.Context(), time.Now())
	defer cancel()
	if _, err := f.Wait(over); !errors.As(err, &late) || !late.Sent {
		t.Errorf("a wait that is given up: %v", err)
	}
	close(given)
	if got, err := f.Wait(soon(t)); err != nil || string(got) != "late" {
		t.Errorf("%q, %v", got, err)
	}
	if got, err := f.Wait(over); err != nil || string(got) != "late" { // the outcome is known
		t.Errorf("with the ended context: %q, %v", got, err)
	}
	if err := b.Quiet(); err != nil {
		t.Error(err)
	}
}

// Serve without a context panics, as package context does, and leaves the server as it was.
func TestNilContext(t *testing.T) {
	_, b := daemontest.Pair(t, "")
	s := attach(t, b)
	for what, call := range map[string]func(ctx context.Context){
		"Serve":    func(ctx context.Context) { _ = s.Serve(ctx) },
		"Withdraw": func(ctx context.Context) { _ = s.Withdraw(ctx) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", what)
				}
			}()
			var none context.Context
			call(none)
		}()
	}
	handle(t, s, "echo", func(c *server.Call) error { return c.Reply(c.Request()) })
	start(t, s)
	if _, err := caller(t, b, "t/echo").Call(soon(t), nil); err != nil {
		t.Error(err)
	}
}
