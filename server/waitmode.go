package server

import (
	"time"

	"github.com/rdmad/rdmad/internal/cgroup"
	"github.com/rdmad/rdmad/shm"
)

// Mode is how workers wait for requests; see WaitMode. A Mode of a time, Mode(d), is Adaptive(d). As a text it is "event",
// "busy", "adaptive", or "adaptive:" and a time such as "20us".
type Mode = shm.WaitMode

const (
	// Event sleeps at once and is woken by the daemon.
	Event = shm.WaitEvent
	// Busy polls and never sleeps, as long as Serve runs: the quickest way where
	// there are processors to spare, and one processor's time even if no request
	// ever comes.
	Busy = shm.WaitBusy
	// DefaultWait is the mode of a server that is given none, Adaptive with 50 us: to be woken takes
	// about as long where that crosses processors. It is Event instead where the affinity of the process leaves
	// it one processor, or a limit of its control group less time than of one: polling would use up what is for work.
	DefaultWait = Mode(50 * time.Microsecond)
)

// defaultWait is DefaultWait, or what is in its place.
func defaultWait() Mode {
	if !cgroup.Spares() {
		return Event
	}
	return DefaultWait
}

// Adaptive polls for d, at most a millisecond, and then sleeps. It polls less and less
// often where that turns out to be in vain, or keeps others from the processor, so
// that it costs next to nothing there.
func Adaptive(d time.Duration) Mode { return shm.WaitAdaptive(d) }

// WaitMode sets how the server waits for requests, and its handlers for operations on
// regions; see DefaultWait. Only one worker at a time polls for requests; the
// others that have nothing to do sleep.
func WaitMode(m Mode) Option { return func(o *options) { o.wait = m.Bounded() } }
