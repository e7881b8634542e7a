package daemon

import "github.com/rdmad/rdmad/shm"

// AgentStatus is how an agent waits for work and wakes others.
type AgentStatus struct {
	Name string `json:"name"`
	// Idle is what it does where there is nothing to do: "event", "adaptive" or "busy". It is "event" although
	// "adaptive" is configured where the daemon has no processor to spare for polling.
	Idle string `json:"idle"`
	// SpinUS is for how many microseconds it polls before it sleeps, with "adaptive".
	SpinUS float64 `json:"spin_us"`
	// Wakes is what it wakes many processes with: "io_uring", or "futex" where it may not use one, or gave it up.
	Wakes string `json:"wakes"`
	// CPU is the processor that it keeps to, -1 for none.
	CPU int `json:"cpu"`
}

// status is called on the agent's thread.
func (a *agent) status() AgentStatus {
	s := AgentStatus{Name: a.name, Idle: "event", Wakes: "futex", CPU: a.processor}
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
