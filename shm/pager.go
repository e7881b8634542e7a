package shm

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Pager is the writing end of a pipe that wakes a goroutine of another process, which waits
// in Pages.Wait. A futex wakes a thread, which the sleeping process must spare; a goroutine
// that waits for a descriptor costs none, and no processor (P) either, so that the Go runtime
// of a process that has nothing else to do is at rest. Whoever has only the reading end
// cannot make Page block or fail: the mode of the writing end is not shared. Page is safe for
// concurrent use; Close is not.
type Pager struct{ fd int }

var page = []byte{1}

// NewPager makes a pipe. The caller must Close the pager, and pass reader on, for OpenPages,
// or close it.
func NewPager() (p *Pager, reader int, err error) {
	var ends [2]int
	if err := unix.Pipe2(ends[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		return nil, -1, fmt.Errorf("shm: pipe: %w", err)
	}
	return &Pager{fd: ends[1]}, ends[0], nil
}

// Page ends the reader's wait, or the next one. A pipe that is full does so anyway, and if
// nobody has its other end nobody waits.
func (p *Pager) Page() { _, _ = WriteFD(p.fd, page) }

// Close closes the pipe: the reader's waits end.
func (p *Pager) Close() error { return unix.Close(p.fd) }

// Pages is the reading end of a Pager. Wait and Listen are for one goroutine at a time, the
// other methods for any.
type Pages struct {
	file *os.File
	raw  syscall.RawConn
	// take reads what is in the pipe and reports whether it was anything; over says that it
	// was the end.
	take func(fd uintptr) bool
	over bool
	buf  [64]byte
	// interrupted: the file has a deadline, which is past.
	interrupted atomic.Bool
}

// OpenPages takes over the reader of a Pager of another process, also if it fails.
func OpenPages(reader int) (*Pages, error) {
	if err := unix.SetNonblock(reader, true); err != nil {
		return nil, errors.Join(fmt.Errorf("shm: pipe: %w", err), unix.Close(reader))
	}
	p := &Pages{file: os.NewFile(uintptr(reader), "pager")}
	// Only what the Go poller knows has deadlines: Interrupt would have no effect.
	err := p.file.SetReadDeadline(time.Time{})
	if err == nil {
		p.raw, err = p.file.SyscallConn()
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("shm: the descriptor of a pager: %w", err), p.file.Close())
	}
	// Not File.Read: its system call would wake the runtime's monitor thread, each time.
	p.take = func(fd uintptr) bool {
		n, err := ReadFD(int(fd), p.buf[:])
		p.over = n == 0 && err == nil
		return !errors.Is(err, unix.EAGAIN)
	}
	return p, nil
}

// Listen forgets interruptions so far. Look at what the wait is for between Listen and Wait:
// an Interrupt before Listen does not end the Wait.
func (p *Pages) Listen() {
	if p.interrupted.Swap(false) {
		_ = p.file.SetReadDeadline(time.Time{})
	}
}

// Wait parks the goroutine until a Page or an Interrupt, which may be one of before. An error
// says that there will be no more pages: the other end is closed, or this one.
func (p *Pages) Wait() error {
	err := p.raw.Read(p.take)
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil
	case err == nil && p.over:
		err = io.EOF
	}
	if err != nil {
		return fmt.Errorf("shm: no more pages: %w", err)
	}
	return nil
}

// Interrupt ends the wait of this process.
func (p *Pages) Interrupt() {
	p.interrupted.Store(true)
	_ = p.file.SetReadDeadline(time.Unix(1, 0))
}

// Close closes the pipe and ends the wait.
func (p *Pages) Close() error { return p.file.Close() }
