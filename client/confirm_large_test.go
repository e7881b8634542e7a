package client_test

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"github.com/rdmad/rdmad/client"
	"github.com/rdmad/rdmad/internal/daemontest"
	"github.com/rdmad/rdmad/server"
)

// A message that fits no run of slots is confirmed like any other.
func TestPostConfirmedLarge(t *testing.T) {
	a, b := daemontest.Pair(t, "")
	const size = 5 << 20
	serve(t, b, 2, handlers{"size": func(c *server.Call) error {
		if len(c.Request()) != size || len(c.Answer(size)) != size {
			return errors.New("another size")
		}
		return c.Reply(c.Request())
	}})
	f, err := method(t, attach(t, a), "b/t/size").PostConfirmed(t.Context(), make([]byte, size))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := f.Wait(t.Context()); err != nil || got != nil {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	quiet(t, a, b)
}

// A large request stays what it is until its handler returns, also when the answer that the handler fills in meanwhile is
// dropped.
func TestPostConfirmedLargeStays(t *testing.T) {
	a, b := daemontest.Pair(t, "")
	serve(t, b, 2, handlers{"keep": func(c *server.Call) error {
		req := c.Request()
		was := bytes.Clone(req)
		for _, n := range []int{8, len(req), len(req) + 1} {
			if clear(c.Answer(n)); !bytes.Equal(req, was) {
				return fmt.Errorf("an answer of %d bytes has overwritten the request", n)
			}
		}
		return nil
	}})
	m := method(t, attach(t, a), "b/t/keep")
	for _, c := range []struct {
		m *client.Method
		n int
	}{{m, 5 << 20}, {m.With(client.Split()), 40}} {
		f, err := c.m.PostConfirmed(t.Context(), bytes.Repeat([]byte("x"), c.n))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.Wait(t.Context()); err != nil {
			t.Errorf("%d bytes: %v", c.n, err)
		}
	}
	quiet(t, a, b)
}
