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
	"github.com/rdmad/rdmad/server"
)

func TestMain(m *testing.M) {
	daemontest.Helper("service", runService)
	daemontest.Helper("moody", runMoody)
	daemontest.Helper("streamer", runStreamer)
	daemontest.Helper("crowd", runCrowd)
	daemontest.Helper("styles", runStyles)
	daemontest.Helper("claimer", runClaimer)
	daemontest.Helper("bulky", runBulky)
	daemontest.Helper("leaver", runLeaver)
	daemontest.Main(m)
}

// runService is a service process: t/who answers with its first argument after
// the socket, t/stuck says so on the standard output and never returns.
func runService(args []string) error {
	s, err := server.Attach(context.Background(), args[0], server.Workers(1))
	if err != nil {
		return err
	}
	defer s.Close()
	err = errors.Join(
		s.Handle("t", "who", func(c *server.Call) error { return c.Reply([]byte(args[1])) }),
		s.Handle("t", "stuck", func(*server.Call) error {
			fmt.Println("stuck")
			return daemontest.Stay()
		}))
	if err != nil {
		return err
	}
	fmt.Println("ready")
	return s.Serve(context.Background())
}

func attach(t testing.TB, n *daemontest.Node) *client.Conn {
	t.Helper()
	c, err := client.Attach(t.Context(), n.Socket)
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

// handlers are methods of service t.
type handlers map[string]server.Handler

// serve offers t/echo and the given methods on n until the test ends.
func serve(t testing.TB, n *daemontest.Node, workers int, hs handlers, opts ...server.Option) *server.Server {
	t.Helper()
	s, err := server.Attach(t.Context(), n.Socket, append(opts, server.Workers(workers))...)
	if err != nil {
		t.Fatal(err)
	}
	echo := func(c *server.Call) error { return c.Reply(c.Request()) }
	if err := s.Handle("t", "echo", echo, server.AnswerLikeRequest()); err != nil {
		t.Fatal(err)
	}
	for name, h := range hs {
		if err := s.Handle("t", name, h, server.AnswerSize(64)); err != nil {
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

// method looks target up, waiting until it is known here.
func method(t testing.TB, c *client.Conn, target string) *client.Method {
	t.Helper()
	var m *client.Method
	daemontest.Eventually(t, "look up "+target, func() (err error) {
		m, err = c.Method(t.Context(), target)
		return err
	})
	return m
}

// gate is a handler that blocks until it is opened, and tells of each start.
type gate struct {
	open    chan struct{}
	entered chan struct{}
	once    sync.Once
}

// newGate makes a closed gate. Defer its Open: the clean-up of a server waits for
// its handlers.
func newGate() *gate {
	return &gate{open: make(chan struct{}), entered: make(chan struct{}, 1<<16)}
}

func (g *gate) Open() { g.once.Do(func() { close(g.open) }) }

func (g *gate) handle(c *server.Call) error {
	g.entered <- struct{}{}
	<-g.open
	return c.Reply([]byte("ok"))
}

// patience is how long anything may take that ends at all: a machine may be busy.
const patience = 4 * time.Minute

// within fails the test when f does not return in time.
func within(t testing.TB, what string, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	select {
	case <-done:
	case <-time.After(patience):
		panic(what + " hangs") // shows all goroutines
	}
}

// quiet checks that nothing is left under way.
func quiet(t testing.TB, nodes ...*daemontest.Node) {
	t.Helper()
	for _, n := range nodes {
		if err := n.Quiet(); err != nil {
			t.Error(err)
		}
	}
}
