package daemon_test

import (
	"context"
	"testing"
	"time"

	"github.com/rdmad/rdmad/client"
	"github.com/rdmad/rdmad/internal/daemontest"
)

// Processes that give up attaching, because the core does not answer in time, are no workers when it goes on.
func TestAttachingGivenUp(t *testing.T) {
	a, _ := daemontest.Pair(t, "[limits]\nworkers = 6\n")
	resume, err := a.StopCore()
	if err != nil {
		t.Fatal(err)
	}
	for range 12 {
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
		if c, err := client.Attach(ctx, a.Socket); err == nil {
			_ = c.Close()
			t.Error("attached to a core that is stopped")
		}
		cancel()
	}
	if err := resume(); err != nil {
		t.Fatal(err)
	}
	daemontest.Eventually(t, "there is room for a worker", func() error {
		c, err := client.Attach(t.Context(), a.Socket)
		if err != nil {
			return err
		}
		return c.Close()
	})
}
