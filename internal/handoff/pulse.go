package handoff

import (
	"os"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/rdmad/rdmad/shm"
)

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
