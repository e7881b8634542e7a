package client

import (
	"time"

	"github.com/rdmad/rdmad/internal/cgroup"
	"github.com/rdmad/rdmad/shm"
)

// Mode is how goroutines wait for answers; see WaitMode. A Mode of a time, Mode(d), is Adaptive(d). As a text it is "event",
// "busy", "adaptive", or "adaptive:" and a time such as "20us".
type Mode = shm.WaitMode

const (
	// Event sleeps and is woken by the daemon. Where others want the processor, who waits for an
	// answer of the same node lets them run first.
	Event = shm.WaitEvent
	// Busy polls and never sleeps while somebody waits for an answer: the quickest
	// way where there are processors to spare, and one processor's time.
	Busy = shm.WaitBusy
	// DefaultWait is the mode of a connection that is given none, Adaptive with 200 us, which is longer than
	// most round trips take: to be woken on another processor takes longer than all that is done for a
	// request. It is Event instead where the affinity of the process leaves it one processor, or a limit of its control group
	// less time than of one: polling would use up what is for work.
	DefaultWait = Mode(200 * time.Microsecond)
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

// WaitMode sets how the goroutines of the connection wait for answers; see
// DefaultWait. Only one goroutine at a time polls, for all that wait, and with Busy or
// Adaptive too none does when nobody waits. What else there is to wait for, such as
// room in a full ring, is waited for asleep.
func WaitMode(m Mode) Option { return func(o *options) { o.wait = m.Bounded() } }
