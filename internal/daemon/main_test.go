package daemon_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/rdmad/rdmad/client"
	"github.com/rdmad/rdmad/internal/daemontest"
	"github.com/rdmad/rdmad/server"
)

func TestMain(m *testing.M) {
	daemontest.Helper("stranger", runStranger)
	daemontest.Helper("attacher", runAttacher)
	daemontest.Helper("caller", runCaller)
	daemontest.Helper("offender", runOffender)
	daemontest.Helper("traced", runTraced)
	daemontest.Main(m)
}

// attachClient attaches to n until the test ends.
func attachClient(t *testing.T, n *daemontest.Node) *client.Conn {
	t.Helper()
	var c *client.Conn
	daemontest.Eventually(t, "attach to "+n.Name, func() (err error) {
		c, err = client.Attach(t.Context(), n.Socket)
		return err
	})
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// attachServer attaches to n and serves the given methods of service "text" until
// the test ends.
func attachServer(t *testing.T, n *daemontest.Node, handlers map[string]server.Handler) *server.Server {
	t.Helper()
	var s *server.Server
	daemontest.Eventually(t, "attach to "+n.Name, func() (err error) {
		s, err = server.Attach(t.Context(), n.Socket)
		return err
	})
	for name, h := range handlers {
		if err := s.Handle("text", name, h); err != nil {
			t.Fatal(err)
		}
	}
	done := make(chan error, 1)
	go func() { done <- s.Serve(context.Background()) }()
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		<-done
	})
	return s
}

// serve answers text/upper, text/fail and text/panic on n until the test ends.
func serve(t *testing.T, n *daemontest.Node) *server.Server {
	t.Helper()
	return attachServer(t, n, map[string]server.Handler{
		"upper": func(c *server.Call) error { return c.Reply([]byte(strings.ToUpper(string(c.Request())))) },
		"fail":  func(*server.Call) error { return fmt.Errorf("no luck") },
		"panic": func(*server.Call) error { panic("oops") },
	})
}

// found waits until targets can be looked up: a peer learns of a new service a little later than the service itself.
func found(t *testing.T, c *client.Conn, targets ...string) {
	t.Helper()
	for _, target := range targets {
		daemontest.Eventually(t, "look up "+target, func() error {
			_, err := c.Method(t.Context(), target)
			return err
		})
	}
}

// callable waits until target answers: a peer learns of a new service a little
// later than the service itself.
func callable(t *testing.T, c *client.Conn, target string) {
	t.Helper()
	daemontest.Eventually(t, "first call of "+target, func() error {
		_, err := c.Call(t.Context(), target, []byte("x"))
		if errors.Is(err, client.ErrRemote) {
			return nil
		}
		return err
	})
}
