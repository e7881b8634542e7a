package client_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/rdmad/rdmad/client"
	"github.com/rdmad/rdmad/internal/daemontest"
	"github.com/rdmad/rdmad/server"
)

// serveWhere offers t/where, which answers with the node's name, until it is closed.
func serveWhere(t *testing.T, n *daemontest.Node) *server.Server {
	t.Helper()
	return serve(t, n, 1, handlers{"where": func(c *server.Call) error { return c.Reply([]byte(n.Name)) }})
}

// A target without a node leads to this node if a process here serves it, and else to
// another one. It is looked up once, and again, for one more try, when nobody serves it
// there any more.
func TestTargetWithoutNode(t *testing.T) {
	a, b := daemontest.Pair(t, "")
	for style, call := range map[string]func(m *client.Method) (string, error){
		"Call": func(m *client.Method) (string, error) {
			got, err := m.Call(t.Context(), nil)
			return string(got), err
		},
		"CallInPlace": func(m *client.Method) (string, error) {
			got, err := m.CallInPlace(t.Context(), nil)
			defer got.Release()
			return string(got.Bytes()), err
		},
		"CallRegions": func(m *client.Method) (string, error) {
			got, err := m.CallRegions(t.Context(), nil)
			return string(got), err
		},
	} {
		here, there := serveWhere(t, a), serveWhere(t, b)
		c := attach(t, a)
		method(t, c, "b/t/where") // node a has heard of both
		m := method(t, c, "t/where")
		expect := func(want string) {
			t.Helper()
			if got, err := call(m); err != nil || got != want {
				t.Errorf("%s: %q, %v, want %q", style, got, err, want)
			}
		}
		for range 20 {
			expect("a")
		}
		if err := here.Close(); err != nil {
			t.Error(err)
		}
		expect("b")
		again := serveWhere(t, a)
		if got, err := method(t, attach(t, a), "t/where").Call(t.Context(), nil); err != nil || string(got) != "a" {
			t.Errorf("a new look-up: %q, %v", got, err)
		}
		expect("b") // the old one still holds
		if err := there.Close(); err != nil {
			t.Error(err)
		}
		expect("a")
		if err := again.Close(); err != nil {
			t.Error(err)
		}
		daemontest.Eventually(t, "nobody serves it", func() error {
			got, err := call(m)
			if !errors.Is(err, client.ErrNoService) {
				return fmt.Errorf("%q, %w", got, err)
			}
			return nil
		})
	}
	quiet(t, a, b)
}

// A region that the node has forgotten, because the connection to it is new, is reported
// as such and executes nothing; CallRegions makes it known again.
func TestForgottenRegions(t *testing.T) {
	a, b := daemontest.Pair(t, "")
	conn := attachTo(t, a)
	r, err := conn.AllocRegion(t.Context(), 4096)
	if err != nil {
		t.Fatal(err)
	}
	ref, err := r.Ref(0, 8, client.MayWrite)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fillers(t, b, conn).CallRegions(t.Context(), []byte("x"), ref); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(b.Crash(), b.Connected("a")); err != nil {
		t.Fatal(err)
	}
	fillers(t, b, attachTo(t, a)) // node a has heard of the new ones
	m := method(t, conn, "b/t/fill")
	daemontest.Eventually(t, "the route is the new one", func() error {
		_, err := m.Call(t.Context(), []byte("x"))
		return err
	})
	clear(r.Bytes())
	f, err := m.GoRegions(t.Context(), []byte("y"), ref)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Wait(t.Context()); !errors.Is(err, client.ErrNotExported) || !errors.Is(err, client.ErrNotExecuted) {
		t.Errorf("a region that the node has forgotten: %v", err)
	}
	if r.Bytes()[0] != 0 {
		t.Error("it was executed")
	}
	if _, err := m.CallRegions(t.Context(), []byte("z"), ref); err != nil || string(r.Bytes()[:8]) != "zzzzzzzz" {
		t.Errorf("%q, %v", r.Bytes()[:8], err)
	}
}

// Goroutines that call a node that is not there are told so together: they do not wait for
// it one after the other.
func TestAbsentNodeIsWaitedForOnce(t *testing.T) {
	a, b := daemontest.Pair(t, "[limits]\nconnect_wait=\"400ms\"\n")
	serveWhere(t, b)
	m := method(t, attach(t, a), "b/t/where")
	if err := b.Halt(); err != nil {
		t.Fatal(err)
	}
	const callers = 40
	took := func(n int) time.Duration {
		begin := time.Now()
		var all sync.WaitGroup
		for range n {
			all.Go(func() {
				if _, err := m.Call(t.Context(), nil); !errors.Is(err, client.ErrNoService) {
					t.Error(err)
				}
			})
		}
		within(t, "calls", all.Wait)
		return time.Since(begin)
	}
	took(1) // forgets the route
	// The quickest of several rounds: a machine may be busy.
	one, many := took(1), took(callers)
	for range 4 {
		if many <= callers/2*one {
			return
		}
		many = min(many, took(callers))
	}
	t.Errorf("%d calls took %v, one %v", callers, many, one)
}
