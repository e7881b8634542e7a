package daemon

import (
	"github.com/rdmad/rdmad/internal/status"
	"github.com/rdmad/rdmad/shm"
)

// status is called on the agent's thread.
func (a *agent) status() status.Agent {
	s := status.Agent{Name: a.name, Idle: "event", Wakes: "futex", CPU: a.processor}
	switch {
	case a.idle.busy:
		s.Idle = "busy"
	case a.idle.spin != shm.WaitEvent:
		s.Idle, s.SpinUS = "adaptive", float64(a.idle.spin)/1e3
	}
	if a.wakes.Rings() {
		s.Wakes = "io_uring"
	}
	return s
}
