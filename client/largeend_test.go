package client_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/rdmad/rdmad/client"
	"github.com/rdmad/rdmad/internal/daemontest"
	"github.com/rdmad/rdmad/internal/status"
	"github.com/rdmad/rdmad/server"
)

// Who sends a large request learns that the connection has ended, as with others: that is what programs attach again for.
func TestCloseBesideALargeRequest(t *testing.T) {
	a, b := daemontest.Pair(t, "")
	s, err := server.Attach(t.Context(), b.Socket)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	// It does not serve, so that nobody takes the bytes.
	if err := s.Handle("t", "large", func(*server.Call) error { return nil }); err != nil {
		t.Fatal(err)
	}
	for name, send := range map[string]func(m *client.Method) error{
		"call": func(m *client.Method) error { return second(m.Call(t.Context(), []byte("large"))) },
		"go":   func(m *client.Method) error { return second(m.Go(t.Context(), []byte("large"))) },
		"post": func(m *client.Method) error { return m.Post(t.Context(), []byte("large")) },
	} {
		c := attach(t, a)
		m := method(t, c, "b/t/large").With(client.Split())
		done := make(chan error, 1)
		go func() { done <- send(m) }()
		daemontest.Eventually(t, "the request is under way", func() error {
			st, err := a.Status(t.Context())
			if err == nil && !slices.ContainsFunc(st.Lanes, func(l status.Lane) bool { return l.Busy > 0 }) {
				err = errors.New("nothing is")
			}
			return err
		})
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		if err := <-done; !errors.Is(err, client.ErrClosed) || !errors.Is(err, client.ErrNotExecuted) || errors.Is(err, client.ErrMaybeExecuted) {
			t.Errorf("%s: %v", name, err)
		}
		if err := a.Quiet(); err != nil {
			t.Error(err)
		}
	}
}
