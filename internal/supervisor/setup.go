package supervisor

import (
	"time"

	"github.com/rdmad/rdmad/internal/config"
	"github.com/rdmad/rdmad/internal/event"
)

// Setup is what Run is to run.
type Setup struct {
	// Config is the configuration, Source the name of the file that it is from, and Overrides
	// are the keys of it that are from elsewhere; nil: that is not known.
	Config    *config.Config
	Source    string
	Overrides []config.Override
	// Reload reads the configuration again, with every check; its errors are for people.
	// Nil: it cannot be reloaded.
	Reload func() (*config.Config, error)
	// CoreArgs are arguments of the core's program, behind handoff.CoreCommand.
	CoreArgs []string
	// ReadyLimit is how long a core that replaces another may take until it is ready; 0: 10 s.
	ReadyLimit time.Duration
	// Log takes what the supervisor has to say. Nil: nobody does.
	Log *event.Log
}
