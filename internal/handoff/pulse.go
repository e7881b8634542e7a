package handoff

import (
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdmad/rdmad/shm"
)

// WatchShare is in how many parts the times are divided after which a core that says nothing counts
// as hanging: node.hang_limit, and the service manager's watchdog. So often it looks whether everything
// makes progress, and its supervisor whether it has said so.
const WatchShare = 4

// LastWords is how long a core that hangs may take to write its stacks.
const LastWords = 5 * time.Second

// HangBound is within what time a core that hangs has been ended, by the supervisor whose node.hang_limit is limit: the last
// beat before, and the look that finds that there was none since, come up to a part of the limit late. 0: it never is.
func HangBound(limit time.Duration) time.Duration {
	if limit == 0 {
		return 0
	}
	return limit + 2*limit/WatchShare + LastWords
}

// Pulse is a word in memory of the supervisor and its core, which the core counts up whenever it
// has seen that everything in it makes progress. It is memory and not a message for the sake of
// idle daemons: a system call on either side wakes the monitor thread of its Go runtime, which
// then looks around dozens of times. Nobody else has the memory. A nil pulse does not beat.
type Pulse struct {
	seg *shm.Segment
	// Beats is how often it has beaten.
	Beats *atomic.Uint64
}

const pulseSize = shm.HeaderSize + 8

func pulseOf(seg *shm.Segment) *Pulse {
	return &Pulse{seg: seg, Beats: shm.Uint64At(seg.Bytes(), shm.HeaderSize)}
}

// NewPulse makes one, the supervisor's.
func NewPulse() (*Pulse, error) {
	seg, err := shm.Create(shm.CreateOptions{Name: "rdmad-pulse", Kind: shm.KindPulse, Size: pulseSize})
	if err != nil {
		return nil, err
	}
	return pulseOf(seg), nil
}

// OpenPulse returns the core's view of the one behind fd, which it takes over.
func OpenPulse(fd int) (*Pulse, error) {
	seg, err := shm.Adopt(fd, pulseSize)
	if err != nil {
		return nil, err
	}
	return pulseOf(seg), nil
}

// File returns another descriptor of it, for a core that is started.
func (p *Pulse) File() (*os.File, error) {
	fd, err := unix.FcntlInt(uintptr(p.seg.FD()), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), "pulse"), nil
}

// Beat says that all is well.
func (p *Pulse) Beat() {
	if p != nil {
		p.Beats.Add(1)
	}
}

// Close gives the memory back; Beats is gone with it.
func (p *Pulse) Close() {
	if p != nil {
		_ = p.seg.Close()
	}
}
