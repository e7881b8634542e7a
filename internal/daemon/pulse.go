package daemon

import (
	"os"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/rdmad/rdmad/shm"
)

// pulse is a word in memory of the supervisor and its core, which the core counts up whenever it
// has seen that everything in it makes progress. It is memory and not a message for the sake of
// idle daemons: a system call on either side wakes the monitor thread of its Go runtime, which
// then looks around dozens of times. Nobody else has the memory. A nil pulse does not beat.
type pulse struct {
	seg   *shm.Segment
	beats *atomic.Uint64
}

const pulseSize = shm.HeaderSize + 8

func pulseOf(seg *shm.Segment) *pulse {
	return &pulse{seg: seg, beats: shm.Uint64At(seg.Bytes(), shm.HeaderSize)}
}

// newPulse makes one, the supervisor's.
func newPulse() (*pulse, error) {
	seg, err := shm.Create(shm.CreateOptions{Name: "rdmad-pulse", Kind: shm.KindPulse, Size: pulseSize})
	if err != nil {
		return nil, err
	}
	return pulseOf(seg), nil
}

// openPulse is the core's view of the one behind fd, which it takes over.
func openPulse(fd int) (*pulse, error) {
	seg, err := shm.Adopt(fd, pulseSize)
	if err != nil {
		return nil, err
	}
	return pulseOf(seg), nil
}

// file returns another descriptor of it, for a core that is started.
func (p *pulse) file() (*os.File, error) {
	fd, err := unix.FcntlInt(uintptr(p.seg.FD()), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), "pulse"), nil
}

func (p *pulse) beat() {
	if p != nil {
		p.beats.Add(1)
	}
}

func (p *pulse) close() {
	if p != nil {
		_ = p.seg.Close()
	}
}
