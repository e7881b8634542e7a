package test

import (
	"context"
	"errors"
	"testing"

	"github.com/rdmad/rdmad/client"
	"github.com/rdmad/rdmad/cmd/rdmad/sandbox"
	"github.com/rdmad/rdmad/server"
)

// When the daemon of the callers is killed and started anew, handlers and streams of theirs are told
// that nobody waits, by whichever lane they came.
func TestHandlersOfAKilledNode(t *testing.T) {
	c := newPair(t, sandbox.Settings{})
	s, err := server.Attach(bounded(t), c.socket("b"), server.Workers(4), server.Name("patient"))
	if err != nil {
		t.Fatal(err)
	}
	begun, causes := make(chan struct{}, 3), make(chan error, 3)
	wait := func(ctx context.Context) error {
		begun <- struct{}{}
		<-ctx.Done()
		causes <- context.Cause(ctx)
		return ctx.Err()
	}
	if err := errors.Join(
		s.Handle("patient", "wait", func(c *server.Call) error { return wait(c.Context()) }),
		s.HandleStream("patient", "stream", func(s *server.Stream) error { return wait(s.Context()) }),
	); err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve(context.Background()) }()
	c.awaitService("a", "b", "patient", "stream", 0)
	conn := c.attach("a")
	for _, size := range []int{1, 3000} {
		m, err := conn.Method(bounded(t), "b/patient/wait")
		if err == nil {
			_, err = m.Go(bounded(t), make([]byte, size))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	m, err := conn.Method(bounded(t), "b/patient/stream")
	if err == nil {
		_, err = m.Stream(bounded(t))
	}
	if err != nil {
		t.Fatal(err)
	}
	ctx := bounded(t)
	for range cap(begun) {
		select {
		case <-begun:
		case <-ctx.Done():
			t.Fatal("not everything is with its handler")
		}
	}
	c.crash("a")
	for range cap(causes) {
		select {
		case cause := <-causes:
			if !errors.Is(cause, server.ErrGivenUp) {
				t.Errorf("it ended for %v", cause)
			}
		case <-ctx.Done():
			t.Fatal("a handler waits for a node that has been started anew")
		}
	}
	if _, err := conn.Call(bounded(t), "b/patient/wait", nil); !errors.Is(err, client.ErrClosed) {
		t.Errorf("the old connection: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if err := <-served; !errors.Is(err, server.ErrClosed) {
		t.Error(err)
	}
}
