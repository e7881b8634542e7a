package client_test

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rdmad/rdmad/client"
	"github.com/rdmad/rdmad/internal/daemontest"
	"github.com/rdmad/rdmad/server"
)

// A process that only posts finds the service again when another node serves it, and not before.
func TestPostFollows(t *testing.T) {
	a, b := daemontest.Pair(t, "")
	var atA, atB atomic.Int64
	on := func(n *daemontest.Node, count *atomic.Int64) *server.Server {
		return serve(t, n, 1, handlers{"x": func(*server.Call) error { count.Add(1); return nil }})
	}
	first := on(b, &atB)
	m := method(t, attachTo(t, a), "t/x")
	if err := m.Post(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	daemontest.Eventually(t, "the first message", func() error {
		if atB.Load() == 0 {
			return errors.New("has not come")
		}
		return nil
	})
	on(a, &atA)
	// As long as it is there they stay with the first one, which may keep their order, or what it knows of their caller.
	for end := time.Now().Add(2500 * time.Millisecond); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if err := m.Post(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
	}
	if n := atA.Load(); n > 0 {
		t.Errorf("%d messages have gone to another node, and the first one serves them", n)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	sent := 0
	daemontest.Eventually(t, "a message at the other node", func() error {
		sent++
		err := m.Post(t.Context(), nil)
		if err == nil && atA.Load() == 0 {
			err = fmt.Errorf("none of %d has come", sent)
		}
		return err
	})
}

// A message without an answer needs no room for one.
func TestPostNeedsNoRoom(t *testing.T) {
	_, b := daemontest.Pair(t, "")
	s := serve(t, b, 1, nil)
	if err := s.Handle("t", "plain", func(*server.Call) error { return nil }); err != nil {
		t.Fatal(err)
	}
	m := method(t, attachTo(t, b), "b/t/plain").With(client.Within(100))
	if f, err := m.PostConfirmed(t.Context(), []byte("x")); err != nil {
		t.Error(err)
	} else if _, err := f.Wait(t.Context()); err != nil {
		t.Error(err)
	}
	if err := m.Post(t.Context(), []byte("x")); err != nil {
		t.Error(err)
	}
}

// Post refuses what no message can have as the others do.
func TestPostTooLarge(t *testing.T) {
	_, b := daemontest.Pair(t, "")
	serve(t, b, 1, nil)
	m := method(t, attachTo(t, b), "b/t/echo")
	big := make([]byte, client.MaxMessage+1) // no page of it is touched
	for what, err := range map[string]error{
		"call": second(m.Call(t.Context(), big)), "confirmed": second(m.PostConfirmed(t.Context(), big)), "post": m.Post(t.Context(), big),
	} {
		if !errors.Is(err, client.ErrTooLarge) {
			t.Errorf("%s: %v", what, err)
		}
	}
}
