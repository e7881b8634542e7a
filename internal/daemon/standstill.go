package daemon

import (
	"time"

	"github.com/rdmad/rdmad/internal/agent"
)

// lookLater has the agent look whether operations under way get on, after a while.
func (b *bulk) lookLater() {
	late := time.NewTimer(max(b.domain.conductor.live().Node.LinkHold, agent.StandsStillAfter))
	defer late.Stop()
	select {
	case <-late.C:
		b.domain.agent.Commands.Call(b.view.Mover.LookAgain)
	case <-b.domain.conductor.ctx.Done():
	}
}
