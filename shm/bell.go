package shm

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// Bell is an eventfd: a wake-up that an epoll instance can wait for. Ring is
// safe for concurrent use; Close is not.
//
// It keeps the bare descriptor: an os.File would put the descriptor into the Go
// poller and, asked for its number, switch the shared eventfd to blocking mode.
type Bell struct{ fd int }

var one = []byte{1, 0, 0, 0, 0, 0, 0, 0}

// NewBell makes a bell. The caller must Close it.
func NewBell() (*Bell, error) {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("shm: eventfd: %w", err)
	}
	return &Bell{fd: fd}, nil
}

// OpenBell takes over fd, an eventfd made by another process.
func OpenBell(fd int) *Bell { return &Bell{fd: fd} }

// FD returns the descriptor, for epoll or to pass it on; b keeps owning it.
func (b *Bell) FD() int { return b.fd }

// ringTries bounds how often Ring empties a full counter.
const ringTries = 4

// Ring makes the bell's descriptor readable, and wakes who waits for an edge of it. A bell
// that already rings stays so. If the counter is full, which takes a process that fills it on
// purpose, nobody would be woken: it is emptied first.
func (b *Bell) Ring() {
	for range ringTries {
		if _, err := WriteFD(b.fd, one); !errors.Is(err, unix.EAGAIN) {
			return
		}
		b.Silence()
	}
}

// Silence takes back all rings so far.
func (b *Bell) Silence() {
	var count [8]byte
	_, _ = ReadFD(b.fd, count[:])
}

// Close closes the descriptor.
func (b *Bell) Close() error { return unix.Close(b.fd) }
