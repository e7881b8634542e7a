package client_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/rdmad/rdmad/client"
	"github.com/rdmad/rdmad/internal/daemontest"
)

// modes are all ways to wait.
var modes = []client.Mode{client.Event, client.Adaptive(50 * time.Microsecond), client.Busy}

// attachMode attaches with a way to wait; the connection is closed when the test ends.
func attachMode(t testing.TB, n *daemontest.Node, mode client.Mode) *client.Conn {
	t.Helper()
	c, err := client.Attach(t.Context(), n.Socket, client.WaitMode(mode))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// In each mode answers come, also to several who wait, and the end of a context ends a
// wait.
func TestWaitModes(t *testing.T) {
	a, b := daemontest.Pair(t, "")
	g := newGate()
	defer g.Open()
	serve(t, b, 4, handlers{"gate": g.handle})
	for _, mode := range modes {
		c := attachMode(t, a, mode)
		m := method(t, c, "b/t/echo")
		var wg sync.WaitGroup
		for i := range 8 {
			wg.Go(func() {
				for k := range 100 {
					msg := fmt.Sprint(i, " ", k)
					if got, err := m.Call(t.Context(), []byte(msg)); err != nil || string(got) != msg {
						t.Errorf("%v: %q for %q, %v", mode, got, msg, err)
					}
				}
			})
		}
		within(t, mode.String(), wg.Wait)
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		within(t, mode.String(), func() {
			if _, err := method(t, c, "b/t/gate").Call(ctx, nil); !errors.Is(err, client.ErrDeadline) {
				t.Errorf("%v: %v", mode, err)
			}
		})
	}
	g.Open()
	quiet(t, a, b)
}

// In each mode Close, and the death of the daemon, end all waits.
func TestWaitModesEnd(t *testing.T) {
	for _, mode := range modes {
		for what, end := range map[string]func(*client.Conn, *daemontest.Node) error{
			"close": func(c *client.Conn, _ *daemontest.Node) error { return c.Close() },
			"kill":  func(_ *client.Conn, n *daemontest.Node) error { return n.Crash() },
		} {
			t.Run(mode.String()+" "+what, func(t *testing.T) {
				a, b := daemontest.Pair(t, "")
				g := newGate()
				defer g.Open()
				serve(t, b, 1, handlers{"gate": g.handle})
				c := attachMode(t, a, mode)
				fs := outstanding(t, method(t, c, "b/t/gate"), 4)
				<-g.entered
				var wg sync.WaitGroup
				for _, f := range fs {
					wg.Go(func() { _, _ = f.Wait(t.Context()) })
				}
				if err := end(c, a); err != nil {
					t.Fatal(err)
				}
				within(t, "waiters", wg.Wait)
				ended(t, fs)
				if err := a.Connected("b"); err != nil { // it is up again
					t.Error(err)
				}
			})
		}
	}
}
