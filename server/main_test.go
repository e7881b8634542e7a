package server_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/rdmad/rdmad/client"
	"github.com/rdmad/rdmad/internal/daemontest"
	"github.com/rdmad/rdmad/server"
)

func TestMain(m *testing.M) {
	daemontest.Helper("hall", runHall)
	daemontest.Main(m)
}

// attach attaches a server that is closed when the test ends.
func attach(t testing.TB, n *daemontest.Node, opts ...server.Option) *server.Server {
	t.Helper()
	s, err := server.Attach(t.Context(), n.Socket, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// handle offers method t/name.
func handle(t testing.TB, s *server.Server, name string, h server.Handler, opts ...server.MethodOption) {
	t.Helper()
	if err := s.Handle("t", name, h, opts...); err != nil {
		t.Fatal(err)
	}
}

// start serves until the server is closed and returns what Serve returns.
func start(t testing.TB, s *server.Server) <-chan error {
	t.Helper()
	done := make(chan error, 1)
	over := make(chan struct{})
	go func() {
		done <- s.Serve(context.Background())
		close(over)
	}()
	t.Cleanup(func() {
		_ = s.Close()
		<-over
	})
	return done
}

// caller attaches a client and looks target up.
func caller(t testing.TB, n *daemontest.Node, target string) *client.Method {
	t.Helper()
	c, err := client.Attach(t.Context(), n.Socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
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

func (g *gate) handle(*server.Call) error {
	g.entered <- struct{}{}
	<-g.open
	return nil
}

// soon is a context in which a call that is not held up finishes.
func soon(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	t.Cleanup(cancel)
	return ctx
}
