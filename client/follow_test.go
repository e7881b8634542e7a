package client_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/rdmad/rdmad/internal/daemontest"
	"github.com/rdmad/rdmad/server"
)

// Streams and large one-way messages follow a method whose lanes are closed, as calls do: nothing was sent by the old way.
func TestStreamsAndLargePostsFollow(t *testing.T) {
	a, b := daemontest.Pair(t, "")
	nothing := func(*server.Call) error { return nil }
	offer := func() {
		serve(t, b, 1, handlers{"nothing": nothing})
		serveStreams(t, b, streams{"stream": echoStream})
	}
	offer()
	c := attach(t, a)
	stream, post := method(t, c, "b/t/stream"), method(t, c, "b/t/nothing")
	use := func() error {
		s, err := stream.Stream(t.Context())
		if err != nil {
			return fmt.Errorf("stream: %w", err)
		}
		chat(t, s, 1)
		if err := s.Close(); err != nil {
			return err
		}
		if err := post.Post(t.Context(), make([]byte, 3<<20)); err != nil {
			return fmt.Errorf("large message: %w", err)
		}
		return nil
	}
	if err := use(); err != nil {
		t.Fatal(err)
	}
	if err := b.Restart(); err != nil {
		t.Fatal(err)
	}
	daemontest.Eventually(t, "the lanes are closed", func() error {
		st, err := a.Status(t.Context())
		if err != nil {
			return err
		}
		for _, l := range st.Lanes {
			if l.Peer == "b" && l.Direction == "out" && l.State == "up" {
				return fmt.Errorf("%+v", l)
			}
		}
		return nil
	})
	if err := errors.Join(b.Connected("a"), a.Connected("b")); err != nil {
		t.Fatal(err)
	}
	offer()
	daemontest.Eventually(t, "b serves again", func() error {
		st, err := a.Status(t.Context())
		if err != nil {
			return err
		}
		served := 0
		for _, s := range st.Services {
			if s.Node == "b" && (s.Method == "stream" || s.Method == "nothing") {
				served++
			}
		}
		if served < 2 {
			return fmt.Errorf("%d methods", served)
		}
		return nil
	})
	if err := use(); err != nil {
		t.Error(err)
	}
}
