package daemon

import (
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdmad/rdmad/internal/attach"
	"github.com/rdmad/rdmad/shm"
)

// lacksDescriptors reports whether err says that this process, or the machine, has no
// descriptor left.
func lacksDescriptors(err error) bool {
	return errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE)
}

// withoutMemory is the refusal of a process for whose segment there is no memory or no descriptor.
func withoutMemory(err error) error {
	if lacksDescriptors(err) {
		return fmt.Errorf("%w: the daemon has no descriptor left: raise LimitNOFILE of its service; rdmad config explain-memory says how many it needs: %w", attach.ErrLimit, err)
	}
	if errors.Is(err, unix.ENOMEM) {
		return fmt.Errorf("%w: the daemon has no memory for it (MemoryMax of its service, the limit of its pod, vm.max_map_count); rdmad config explain-memory says what rings and regions take: %w", attach.ErrLimit, err)
	}
	return fmt.Errorf("%w: %w", attach.ErrLimit, err)
}

// doorkeeper holds a descriptor for when no other is left: with it, who wants to attach is
// told so, instead of waiting unheard until their context ends. It belongs to the goroutine
// that accepts.
type doorkeeper struct {
	spare int // -1: none
}

func newDoorkeeper() *doorkeeper {
	d := &doorkeeper{spare: -1}
	d.reserve()
	return d
}

// reserve takes the descriptor back. If others were quicker it is tried again the next time.
func (d *doorkeeper) reserve() {
	if fd, err := unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0); d.spare < 0 && err == nil {
		d.spare = fd
	}
}

// release gives the descriptor up.
func (d *doorkeeper) release() {
	if d.spare >= 0 {
		_ = unix.Close(d.spare)
		d.spare = -1
	}
}

// refuse tells all who come within acceptRetry why they cannot attach, one after the other.
// It returns at once if it cannot accept them either.
func (d *doorkeeper) refuse(l *net.UnixListener, why error, counter *uint64) {
	end := time.Now().Add(acceptRetry)
	d.release()
	defer d.reserve()
	if l.SetDeadline(end) != nil {
		return
	}
	defer func() { _ = l.SetDeadline(time.Time{}) }()
	for {
		sock, err := l.AcceptUnix()
		if err != nil {
			return
		}
		conn := attach.NewConn(sock)
		// Who has not been listened to could not say hello and would not hear the refusal.
		_ = conn.SetDeadline(end)
		_, fds, _ := conn.Recv()
		shm.CloseFDs(fds)
		atomic.AddUint64(counter, 1)
		_ = conn.Send(&attach.Message{Type: attach.TypeFail, Fail: attach.FailFor(withoutMemory(why))})
		_ = conn.Close()
	}
}

// leastAttaching is how many processes may always be about to attach.
const leastAttaching = 16

// mostAttaching is how many processes may be about to attach: as many as may be attached, but in what they have, which
// is a descriptor or two each, they must leave room for those that are.
func (c *conductor) mostAttaching() int {
	most := c.live().Limits.Workers + maxTools
	var files unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &files); err == nil {
		most = int(min(uint64(most), files.Cur/8))
	}
	return max(leastAttaching, most)
}
