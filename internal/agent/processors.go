package agent

import (
	"golang.org/x/sys/unix"

	"github.com/rdmad/rdmad/internal/event"
)

// NoProcessor is the processor of an agent that keeps to none.
const NoProcessor = -1

// settle makes the agent's thread, which the caller is on, keep to its processor.
func (a *Agent) settle() {
	if a.Processor == NoProcessor {
		return
	}
	var one unix.CPUSet
	one.Set(a.Processor)
	if err := unix.SchedSetaffinity(0, &one); err != nil {
		event.AgentUnsettled.On(&a.log).Err(err).Str("agent", a.Name).Int("processor", a.Processor).Msg("an agent cannot keep to its processor")
	}
}
