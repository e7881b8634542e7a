package daemon

import (
	"io"
	"os"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/rdmad/rdmad/internal/event"
	"github.com/rdmad/rdmad/internal/handoff"
)

// orphanGrace is how long a core whose supervisor is gone may take to end besides its drain.
const orphanGrace = 2 * time.Second

// awaitOrphanhood returns when the supervisor is gone, however it ended.
func awaitOrphanhood() {
	lifeline := os.NewFile(handoff.LifelineFD, "lifeline")
	_, _ = io.Copy(io.Discard, lifeline)
}

// endInTime ends the process when a core without a supervisor has had its time to drain:
// there is nobody else to end one that hangs, perhaps in a handler.
func endInTime(running *atomic.Pointer[conductor], events *event.Log, log *zerolog.Logger) {
	patience := orphanGrace
	if c := running.Load(); c != nil {
		patience += c.live().Node.DrainTimeout
	}
	time.AfterFunc(patience, func() {
		event.CoreKilled.On(log).Msg("the core does not stop, and its supervisor is gone; it ends")
		events.Flush()
		os.Exit(1)
	})
}
