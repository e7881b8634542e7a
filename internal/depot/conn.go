package depot

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdmad/rdmad/shm"
)

// conn is one end of the socket. send may be called from any goroutine, recv from one.
type conn struct {
	sock *net.UnixConn
	buf  []byte
	mu   sync.Mutex
}

// newConn makes a connection of a descriptor, which it takes over.
func newConn(f *os.File) (*conn, error) {
	c, err := net.FileConn(f)
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, fmt.Errorf("depot: %w", err)
	}
	sock, ok := c.(*net.UnixConn)
	if !ok {
		return nil, errors.Join(errors.New("depot: not a Unix socket"), c.Close())
	}
	return &conn{sock: sock, buf: make([]byte, maxMessage)}, nil
}

// pair makes the two ends of a socket: ours, and the one that is handed to the core.
func pair() (*conn, *os.File, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("depot: socketpair: %w", err)
	}
	theirs := os.NewFile(uintptr(fds[1]), "depot")
	ours, err := newConn(os.NewFile(uintptr(fds[0]), "depot"))
	if err != nil {
		return nil, nil, errors.Join(err, theirs.Close())
	}
	return ours, theirs, nil
}

// The kernel bounds the descriptors that are under way in sockets. Where that is little
// a sender waits until the receiver has taken some.
const (
	crowdedPause = time.Millisecond
	crowdedTries = 5000
)

// send writes a message with descriptors, which stay the caller's. It waits as long as
// the other side does not read, and fails when that is gone.
func (c *conn) send(m *message, fds ...int) error {
	data, err := m.encode(len(fds))
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for range crowdedTries {
		if err = shm.SendFDs(c.sock, data, fds...); !errors.Is(err, unix.ETOOMANYREFS) {
			break
		}
		time.Sleep(crowdedPause)
	}
	if err != nil {
		return fmt.Errorf("depot: %s %s: %w", m.Op, m.Key, err)
	}
	return nil
}

// recv reads a message. The descriptors are the caller's to close. The error is io.EOF
// when the other side is gone and everything was read, and wraps ErrInvalid for a
// message that makes no sense, after which others may follow. One whose descriptors this process
// had no room for is returned with such an error.
func (c *conn) recv() (*message, []int, error) {
	n, fds, err := shm.RecvFDs(c.sock, c.buf)
	switch {
	case err == nil && n == 0 && len(fds) == 0:
		return nil, nil, io.EOF
	case err != nil && over(err):
		return nil, nil, io.EOF
	case errors.Is(err, shm.ErrFDsLost):
		m, problem := decode(c.buf[:n], 0)
		return m, nil, fmt.Errorf("%w: %w", ErrInvalid, errors.Join(err, problem))
	case err != nil:
		return nil, nil, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	m, err := decode(c.buf[:n], len(fds))
	if err != nil {
		shm.CloseFDs(fds)
		return nil, nil, err
	}
	return m, fds, nil
}

// over reports whether nothing more can come after the error of a read.
func over(err error) bool {
	var call *net.OpError
	return errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) || errors.As(err, &call)
}

func (c *conn) close() error { return c.sock.Close() }
