package server

import (
	"testing"
	"time"

	"github.com/rdmad/rdmad/internal/cgroup"
	"github.com/rdmad/rdmad/internal/daemontest"
)

// A server that is given no mode has the default one, unless polling would use up what is for work,
// for requests and for operations on regions; one that is given a mode has that, within bounds.
func TestDefaultWait(t *testing.T) {
	_, b := daemontest.Pair(t, "")
	preset := DefaultWait
	if !cgroup.Spares() {
		preset = Event
	}
	for want, opts := range map[Mode][]Option{preset: nil, Adaptive(1): {WaitMode(Adaptive(1))}, Busy: {WaitMode(Busy)},
		Adaptive(time.Millisecond): {WaitMode(Mode(time.Hour))}} {
		s, err := Attach(t.Context(), b.Socket, opts...)
		if err != nil {
			t.Fatal(err)
		}
		if requests, ops := s.pool.poll.Mode, s.ops.poll.Mode; requests != want || ops != want {
			t.Errorf("%v: waits as %v and %v", want, requests, ops)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}
