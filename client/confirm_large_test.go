package client_test

import (
	"errors"
	"testing"

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
