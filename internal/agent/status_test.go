package agent

import (
	"testing"
	"time"

	"github.com/rdmad/rdmad/internal/status"
	"github.com/rdmad/rdmad/shm"
)

// The status of an agent is what it does, which need not be what is configured.
func TestAgentStatus(t *testing.T) {
	ring := shm.NewWakes()
	wakes := "futex"
	if ring.Rings() {
		wakes = "io_uring"
	}
	a := &Agent{Name: "agent0", Processor: NoProcessor, Wakes: ring}
	if got, want := a.Status(), (status.Agent{Name: "agent0", Idle: "event", Wakes: wakes, CPU: -1}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if err := ring.Close(); err != nil { // as after a failure
		t.Fatal(err)
	}
	a.Processor, a.Idle = 3, IdleStrategy{spin: shm.WaitAdaptive(200 * time.Microsecond)}
	if got, want := a.Status(), (status.Agent{Name: "agent0", Idle: "adaptive", SpinUS: 200, Wakes: "futex", CPU: 3}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	a.Idle = IdleStrategy{busy: true}
	if got, want := a.Status(), (status.Agent{Name: "agent0", Idle: "busy", Wakes: "futex", CPU: 3}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}
