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

// Pager is the sending end of a socket pair that wakes a goroutine of another process, which
// waits in Pages.Wait. A futex wakes a thread, which the sleeping process must spare; a
// goroutine that waits for a descriptor costs none, and no processor (P) either, so that the Go
// runtime of a process that has nothing else to do is at rest. Page is safe for concurrent use;
// Close is not.
//
// Whoever has the other end cannot make Page wait. With a pipe it could: a reader holds the
// pipe's lock while it copies to its memory, for as long as that takes to be there, and a
// writer waits for the lock whatever its mode. The sender of a socket takes none that a
// receiver holds meanwhile, and says with each message that it does not wait.
type Pager struct{ fd int }

var page = []byte{1}

// NewPager makes a socket pair. The caller must Close the pager, and pass reader on, for
// OpenPages, or close it.
func NewPager() (p *Pager, reader int, err error) {
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, -1, fmt.Errorf("shm: socket pair: %w", err)
	}
	// The reader has nothing to say: what it sends fails there, and is not kept here.
	if err := unix.Shutdown(ends[1], unix.SHUT_RD); err != nil {
		CloseFDs(ends[:])
		return nil, -1, fmt.Errorf("shm: socket pair: %w", err)
	}
	return &Pager{fd: ends[1]}, ends[0], nil
}

// Page ends the reader's wait, or the next one. A socket that is full does so anyway, and if
// nobody has its other end nobody waits.
func (p *Pager) Page() { SendNow(p.fd, page) }

// Close closes the pager: the reader's waits end.
func (p *Pager) Close() error { return unix.Close(p.fd) }

// Pages is the reading end of a Pager. Wait and Listen are for one goroutine at a time, the
// other methods for any.
type Pages struct {
	file *os.File
	raw  syscall.RawConn
	// take reads what has come and reports whether that was anything; over says that it was
	// the end.
	take func(fd uintptr) bool
	over bool
	buf  [64]byte
	// look is take for WaitWhile(word, old); awaited says that the poller was asked in vain already. unread bounds
	// the pages that were not read.
	look    func(fd uintptr) bool
	word    *atomic.Uint32
	old     uint32
	awaited bool
	unread  int
	// interrupted: the file has a deadline, which is past, or had one.
	interrupted atomic.Bool
}

// OpenPages takes over the reader of a Pager of another process, also if it fails.
func OpenPages(reader int) (*Pages, error) {
	if err := unix.SetNonblock(reader, true); err != nil {
		return nil, errors.Join(fmt.Errorf("shm: the descriptor of a pager: %w", err), unix.Close(reader))
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
		again := errors.Is(err, unix.EAGAIN)
		p.over = n == 0 && !again && !errors.Is(err, unix.EINTR)
		return !again
	}
	p.look = func(fd uintptr) bool {
		switch {
		case p.awaited:
			// SYNC POINT (page): the sender changes the word and then pages (slots.HintRing.Rouse), so what has come is no page of
			// this wait while the word is as it was, but the end, or an old page.
			return p.word.Load() != p.old || p.take(fd)
		case p.unread >= maxUnread:
			if p.drain(fd); p.over {
				return true
			}
		}
		// The poller tells of what comes from now on, so after this look at the word nothing is missed.
		p.awaited = true
		return p.word.Load() != p.old
	}
	return p, nil
}

// maxUnread is how many pages may be left unread. A page that a full socket does not take ends no
// wait, and the smallest that the kernel lets anybody configure has room for six.
const maxUnread = 4

// drain reads what has come, but for what comes meanwhile.
func (p *Pages) drain(fd uintptr) {
	p.unread = 0
	for range 64 { // thousands of pages
		n, err := ReadFD(int(fd), p.buf[:])
		if p.over = n == 0 && err == nil; n < len(p.buf) {
			return
		}
	}
}

// Listen forgets interruptions so far. Look at what the wait is for between Listen and Wait:
// an Interrupt before Listen need not end the Wait.
func (p *Pages) Listen() {
	p.unread++
	if p.interrupted.Swap(false) {
		_ = p.file.SetReadDeadline(time.Time{})
	}
}

// Wait parks the goroutine until a Page or an Interrupt, which may be one of before. An error
// says that there will be no more pages: the other end is closed, or this one.
func (p *Pages) Wait() error { return p.wait(p.take) }

// WaitWhile is Wait for a Page that comes after *word has changed from old, if there is at most one for each Listen. Since
// the word says what there is to say, most pages need not be read, which is what a wait costs most. It may return early; that
// the other end is closed may be told by a later wait only, which then ends with Close or Interrupt.
func (p *Pages) WaitWhile(word *atomic.Uint32, old uint32) error {
	p.word, p.old, p.awaited = word, old, false
	return p.wait(p.look)
}

func (p *Pages) wait(until func(fd uintptr) bool) error {
	p.over = false
	err := p.raw.Read(until)
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
	// In this order: a Listen in between leaves a deadline that the next one takes away. The
	// other way round one could be left of which nobody knows, and no Wait would wait again.
	_ = p.file.SetReadDeadline(time.Unix(1, 0))
	p.interrupted.Store(true)
}

// Close closes this end and ends the wait.
func (p *Pages) Close() error { return p.file.Close() }
