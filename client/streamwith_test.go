package client_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"testing"

	"github.com/rdmad/rdmad/client"
	"github.com/rdmad/rdmad/internal/daemontest"
	"github.com/rdmad/rdmad/server"
)

// A message that a stream is begun with comes first, whatever its size, and the stream
// goes on as any other.
func TestStreamWith(t *testing.T) {
	a, b := daemontest.Pair(t, "")
	serveStreams(t, a, streams{"echo": echoStream})
	serveStreams(t, b, streams{"echo": echoStream, "one": func(s *server.Stream) error {
		msg, err := s.Recv()
		if err == nil {
			err = s.Send(msg)
		}
		return err
	}})
	c := attach(t, a)
	for _, target := range []string{"a/t/echo", "b/t/echo"} {
		m := method(t, c, target)
		for i, n := range []int{0, 1, 64, 5000, 128<<10 - 32 - 4, 128<<10 - 32, 128 << 10, 128<<10 + 1, 300_000, 3 << 20} {
			s, err := m.StreamWith(t.Context(), pattern(n, uint64(i)))
			if err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(s.Send(t.Context(), pattern(100, 7)), s.CloseSend(t.Context())); err != nil {
				t.Error(err)
			}
			for _, want := range [][]byte{pattern(n, uint64(i)), pattern(100, 7)} {
				if msg, err := s.Recv(t.Context()); err != nil || !bytes.Equal(msg, want) {
					t.Fatalf("%d bytes: %d bytes, %v", n, len(msg), err)
				}
			}
			if _, err := s.Recv(t.Context()); err != io.EOF {
				t.Error(err)
			}
		}
	}
	// It takes one request to begin and one to wait, if the handler is quick; at most
	// one more.
	one := method(t, c, "b/t/one")
	before := sent(t, a)
	const rounds = 50
	for range rounds {
		s, err := one.StreamWith(t.Context(), []byte("x"))
		if err != nil {
			t.Fatal(err)
		}
		if msg, err := s.Recv(t.Context()); err != nil || string(msg) != "x" {
			t.Errorf("%q, %v", msg, err)
		}
		if _, err := s.Recv(t.Context()); err != io.EOF {
			t.Error(err)
		}
	}
	if n := sent(t, a) - before; n > 3*rounds {
		t.Errorf("%d requests for %d streams of one message", n, rounds)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for _, n := range []int{1, 1 << 20} {
		if _, err := one.StreamWith(ended, make([]byte, n)); !errors.Is(err, client.ErrDeadline) {
			t.Error(err)
		}
	}
	quiet(t, a, b)
}

// sent is how many requests a node has sent to peers.
func sent(t testing.TB, n *daemontest.Node) uint64 {
	t.Helper()
	st, err := n.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return st.Counters["requests_sent"]
}
