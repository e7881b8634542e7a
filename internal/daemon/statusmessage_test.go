package daemon_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/rdmad/rdmad/client"
	"github.com/rdmad/rdmad/internal/daemontest"
	"github.com/rdmad/rdmad/server"
)

// A status that is too large for a message comes all the same.
func TestLargeStatus(t *testing.T) {
	const methods = 2000
	a, b := daemontest.Pair(t, fmt.Sprintf("[limits]\nservices=%d\n", methods))
	handlers := make(map[string]server.Handler, methods)
	for i := range methods {
		handlers[fmt.Sprintf("a-method-with-a-long-name-%d", i)] = func(c *server.Call) error { return c.Reply(nil) }
	}
	attachServer(t, b, handlers)
	daemontest.Eventually(t, "all methods are known", func() error {
		for _, n := range []*daemontest.Node{a, b} {
			st, err := n.Status(t.Context())
			if err != nil {
				return err
			}
			if len(st.Services) != methods {
				return fmt.Errorf("%s: %d methods", n.Name, len(st.Services))
			}
		}
		return nil
	})
}

// The daemon's own user may look at it with tools although no domain admits it as a worker.
func TestOperatorLooks(t *testing.T) {
	a, _ := daemontest.Pair(t, "[[domain]]\nname=\"others\"\nusers=[54321]\n")
	if _, err := a.Status(t.Context()); err != nil {
		t.Error(err)
	}
	if c, err := client.Attach(t.Context(), a.Socket); !errors.Is(err, client.ErrPermission) {
		t.Errorf("a worker: %v", err)
		if err == nil {
			_ = c.Close()
		}
	}
}
