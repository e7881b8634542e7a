package agent

import (
	"errors"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdmad/rdmad/shm"
)

// parted are processes that have said goodbye. They are to write nothing any more, but if they live they have the memory of the lanes
// that they were given, and nobody can see whether they do. So as long as one of them lives what is written there is held against nobody.
type parted struct {
	pids []int
	// unknown: there may be one without a process id here, of another namespace, or of which only an earlier core knew. It counts as alive.
	unknown bool
	// looked is when it was last seen which of them live, by CLOCK_MONOTONIC, and most how many there may be before it is seen again.
	looked int64
	most   int
}

const (
	// partedEvery is how often it is looked which processes live: each is a system call, and damages may come as fast as they like.
	partedEvery = int64(10 * time.Millisecond)
	// partedAtFirst is how many there may be before those that are dead are dropped.
	partedAtFirst = 16
)

// Inherit notes that the domain had another agent, which may have known of some that have parted.
func (d *Domain) Inherit() { d.parted.unknown = true }

// Part notes that a worker has said goodbye, before it is buried: its process may live.
func (d *Domain) Part(w *Worker) {
	had := uint64(0)
	for i := range w.used {
		had |= w.used[i] | w.uses[i] | w.Known[i] | w.Mapped[i]
	}
	p := &d.parted
	switch {
	case had == 0: // it has no lane that it could write to
	case w.PID <= 0:
		p.unknown = true
	case !slices.Contains(p.pids, w.PID):
		if len(p.pids) >= max(p.most, partedAtFirst) {
			p.look()
			p.most = 2 * len(p.pids)
		}
		p.pids = append(p.pids, w.PID)
	}
}

// live reports whether a process lives, or may live, that has said goodbye and is not the given one.
func (p *parted) live(but int) bool {
	if len(p.pids) > 0 {
		if now := shm.Nanotime(); now-p.looked >= partedEvery {
			p.looked = now
			p.look()
		}
	}
	return p.unknown || slices.ContainsFunc(p.pids, func(pid int) bool { return pid != but })
}

// look drops those that are dead. An id that another process has meanwhile counts as alive.
func (p *parted) look() {
	p.pids = slices.DeleteFunc(p.pids, func(pid int) bool { return errors.Is(unix.Kill(pid, 0), unix.ESRCH) })
}
