package client

import (
	"testing"
	"time"

	"github.com/rdmad/rdmad/internal/cgroup"
	"github.com/rdmad/rdmad/internal/daemontest"
)

// A connection that is given no mode has the default one, unless polling would use up what is
// for work; one that is given a mode has that, within bounds.
func TestDefaultWait(t *testing.T) {
	a, _ := daemontest.Pair(t, "")
	preset := DefaultWait
	if !cgroup.Spares() {
		preset = Event
	}
	for want, opts := range map[Mode][]Option{preset: nil, Adaptive(1): {WaitMode(Adaptive(1))}, Busy: {WaitMode(Busy)},
		Adaptive(time.Millisecond): {WaitMode(Mode(time.Hour))}} {
		c, err := Attach(t.Context(), a.Socket, opts...)
		if err != nil {
			t.Fatal(err)
		}
		if got := c.wait.poll.Mode; got != want {
			t.Errorf("waits as %v, want %v", got, want)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
}
