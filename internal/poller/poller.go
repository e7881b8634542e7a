// Package poller is the wait of an agent: an epoll instance that hands ready
// descriptors to their owners, with a short wait that bypasses the Go scheduler
// and a long one that does not.
package poller

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdmad/rdmad/shm"
)

// Handler is told that a descriptor it registered became ready. It runs on the
// goroutine that calls Wait and must not block.
type Handler interface {
	// Ready reports epoll events (unix.EPOLLIN, EPOLLOUT, EPOLLHUP, EPOLLERR)
	// of fd.
	Ready(fd int, events uint32)
}

// Poller is one epoll instance. Wait belongs to one goroutine; Add, Modify and
// Remove may be called from any.
type Poller struct {
	epfd   int
	events []unix.EpollEvent

	mu       sync.Mutex
	handlers map[int32]Handler
}

// New makes a poller. The caller must Close it.
func New() (*Poller, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("poller: epoll_create: %w", err)
	}
	return &Poller{epfd: fd, events: make([]unix.EpollEvent, 64), handlers: make(map[int32]Handler)}, nil
}

// Add registers fd for the given epoll events, level triggered.
func (p *Poller) Add(fd int, events uint32, h Handler) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := unix.EpollCtl(p.epfd, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: events, Fd: int32(fd)}); err != nil {
		return fmt.Errorf("poller: add descriptor %d: %w", fd, err)
	}
	p.handlers[int32(fd)] = h
	return nil
}

// Modify changes the events of a registered fd.
func (p *Poller) Modify(fd int, events uint32) error {
	if err := unix.EpollCtl(p.epfd, unix.EPOLL_CTL_MOD, fd, &unix.EpollEvent{Events: events, Fd: int32(fd)}); err != nil {
		return fmt.Errorf("poller: change descriptor %d: %w", fd, err)
	}
	return nil
}

// Remove forgets fd; do it before closing fd. An event of fd that Wait already
// holds is dropped.
func (p *Poller) Remove(fd int) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, ok := p.handlers[int32(fd)]; !ok {
		return nil
	}
	delete(p.handlers, int32(fd))
	if err := unix.EpollCtl(p.epfd, unix.EPOLL_CTL_DEL, fd, nil); err != nil && !errors.Is(err, unix.EBADF) {
		return fmt.Errorf("poller: remove descriptor %d: %w", fd, err)
	}
	return nil
}

// RawLimit is the longest wait that Wait spends behind the Go scheduler's back;
// longer ones hand the processor over.
const RawLimit = shm.RawLimit

// Wait waits for events for at most timeout (0 only looks, negative waits
// without limit), calls the handlers of the ready descriptors and returns how
// many there were. Waits of up to RawLimit do not involve the Go scheduler.
func (p *Poller) Wait(timeout time.Duration) (int, error) {
	var n int
	var err error
	if timeout >= 0 && timeout <= RawLimit {
		n, err = shm.EpollWaitRaw(p.epfd, p.events, timeout)
	} else {
		n, err = shm.EpollWait(p.epfd, p.events, timeout)
	}
	if err != nil {
		return 0, fmt.Errorf("poller: wait: %w", err)
	}
	for _, e := range p.events[:n] {
		p.mu.Lock()
		h := p.handlers[e.Fd]
		p.mu.Unlock()
		if h != nil {
			h.Ready(int(e.Fd), e.Events)
		}
	}
	return n, nil
}

// Close closes the epoll instance, not the registered descriptors.
func (p *Poller) Close() error { return unix.Close(p.epfd) }
