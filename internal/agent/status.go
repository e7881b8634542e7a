package agent

import (
	"github.com/rdmad/rdmad/internal/status"
	"github.com/rdmad/rdmad/shm"
)

// Status is called on the agent's thread.
func (a *Agent) Status() status.Agent {
	s := status.Agent{Name: a.Name, Idle: "event", Wakes: "futex", CPU: a.Processor}
	switch {
	case a.Idle.busy:
		s.Idle = "busy"
	case a.Idle.spin != shm.WaitEvent:
		s.Idle, s.SpinUS = "adaptive", float64(a.Idle.spin)/1e3
	}
	if a.Wakes.Rings() {
		s.Wakes = "io_uring"
	}
	return s
}
