//go:build faultpoints

package fault

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/rdmad/rdmad/client"
	"github.com/rdmad/rdmad/internal/daemontest"
	"github.com/rdmad/rdmad/internal/faultpoint"
	"github.com/rdmad/rdmad/server"
)

// runOffender breaks the protocol until it is disconnected, and lives on.
func runOffender(args []string) error {
	if _, err := daemontest.Offend(args[0], false); err != nil {
		return err
	}
	return daemontest.Stay()
}

// A core dies while it gives a domain new memory, before or after what is under way there has its outcome: the next one has the new
// memory. With the old one it would give slots that are free now to others, while the handlers of their requests are at work in them.
func TestKillCoreThatRotates(t *testing.T) {
	for _, p := range faultpoint.Points {
		if p.Role == faultpoint.Rotating {
			t.Run(p.Name, func(t *testing.T) { killRotating(t, p.Name) })
		}
	}
}

func killRotating(t *testing.T, point string) {
	arms := newArmory(t)
	a, _ := daemontest.Pair(t, classes)
	entered, leave := make(chan struct{}, 1), make(chan struct{})
	block := func(c *server.Call) error {
		entered <- struct{}{}
		<-leave
		return c.Reply(nil)
	}
	serveOn(t, a, block)
	t.Cleanup(func() { close(leave) }) // before the server is closed
	conn := attachTo(t, a)
	callable(t, conn)
	outcome := make(chan error, 1)
	go func() {
		_, err := conn.Call(t.Context(), "a/r/block", nil)
		outcome <- err
	}()
	<-entered
	core, err := a.Core()
	if err != nil {
		t.Fatal(err)
	}
	arms.arm(t, core, point+":1")
	daemontest.Spawn(t, "offender", a.Socket)
	if !died(core, limit) {
		t.Fatal("the core never came there")
	}
	select {
	case err := <-outcome:
		if !errors.Is(err, client.ErrMaybeExecuted) {
			t.Errorf("the call whose handler is at work: %v", err)
		}
	case <-time.After(limit):
		t.Error("the call whose handler is at work has no outcome")
	}
	serveOn(t, a, block)
	callable(t, attachTo(t, a))
	st, err := a.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if d := st.Domains[0]; d.Generation != 1 {
		t.Errorf("the domain has memory number %d", d.Generation)
	}
}

// serveOn offers r/block and r/echo until the test ends.
func serveOn(t *testing.T, n *daemontest.Node, block server.Handler) {
	t.Helper()
	s, err := server.Attach(t.Context(), n.Socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() }) // the one of the old memory is lost
	echo := func(c *server.Call) error { return c.Reply(c.Request()) }
	for method, h := range map[string]server.Handler{"block": block, "echo": echo} {
		if err := s.Handle("r", method, h); err != nil {
			t.Fatal(err)
		}
	}
	go func() { _ = s.Serve(context.Background()) }()
}

// attachTo attaches a client until the test ends.
func attachTo(t *testing.T, n *daemontest.Node) *client.Conn {
	t.Helper()
	c, err := client.Attach(t.Context(), n.Socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// callable waits until r/echo answers.
func callable(t *testing.T, c *client.Conn) {
	t.Helper()
	daemontest.Eventually(t, "r/echo answers", func() error {
		got, err := c.Call(t.Context(), "a/r/echo", []byte("x"))
		if err == nil && string(got) != "x" {
			err = fmt.Errorf("it answers %q", got)
		}
		return err
	})
}
