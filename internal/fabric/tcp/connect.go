package tcp

import (
	"context"
	"crypto/subtle"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdmad/rdmad/internal/fabric"
)

const (
	keepaliveIdle     = 5 // seconds
	keepaliveInterval = 2 // seconds
	keepaliveCount    = 3
	// UserTimeout is how long the peer's machine may leave bytes
	// unacknowledged, or its program untaken, before the connection fails.
	UserTimeout = 10 * time.Second
)

var (
	errIntroduction = errors.New("the other side is not the peer of the given address")
	errRefused      = errors.New("the peer closed the connection before its welcome")
	errCrowded      = errors.New("tcp: more connections at once than have room, that have not said a hello")
	errNoToken      = errors.New("tcp: a hello that names no connection that is waited for")
)

// Connect implements fabric.Endpoint. It may be called once.
func (e *Endpoint) Connect(ctx context.Context, peer []byte, role fabric.Role) error {
	a, err := decodeAddress(peer)
	if err != nil {
		return &fabric.ConnectError{Peer: "?", Err: err}
	}
	e.mu.Lock()
	if e.phase != phaseNew {
		e.mu.Unlock()
		return &fabric.ConnectError{Peer: a.dial(), Err: fabric.ErrClosed}
	}
	e.phase = phaseConnecting
	e.mu.Unlock()

	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(e.ended, cancel)()
	fd, sec, err := -1, (*secured)(nil), e.alike(a)
	if err == nil {
		fd, sec, err = e.handshake(ctx, a, role)
	}
	if err == nil {
		err = e.connected(fd, sec)
	}
	if err != nil && e.dev.life.Err() != nil {
		err = fabric.ErrClosed
	}
	if err != nil {
		return &fabric.ConnectError{Peer: a.dial(), Err: err}
	}
	return nil
}

// alike refuses a peer that has TLS where this side has none, and the reverse, before
// anything is sent. What the address says came by the bootstrap connection.
func (e *Endpoint) alike(a address) error {
	switch {
	case a.tls == e.addr.tls:
		return nil
	case a.tls:
		return fmt.Errorf("%w: the peer's has, this node's has not: give both nodes the same tls.data", ErrSecurity)
	}
	return fmt.Errorf("%w: this node's has, the peer's has not: give both nodes the same tls.data", ErrSecurity)
}

// connected records the socket, unless the endpoint was closed meanwhile.
func (e *Endpoint) connected(fd int, sec *secured) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.phase != phaseConnecting {
		return errors.Join(fabric.ErrClosed, unix.Close(fd))
	}
	e.phase, e.fd, e.sec, e.own = phaseConnected, fd, sec, ownAddress(fd)
	if sec != nil {
		sec.moveTo(fd, e.dev.cfg.ReceiveBuffer)
	}
	return nil
}

// handshake joins the endpoint with the peer at a and returns the socket and its TLS.
func (e *Endpoint) handshake(ctx context.Context, a address, role fabric.Role) (int, *secured, error) {
	if role == fabric.Passive {
		return e.await(ctx, a)
	}
	e.dev.forget(e)
	conn, err := (&net.Dialer{Control: e.dev.cfg.prepare}).DialContext(ctx, "tcp", a.dial())
	if errors.Is(err, os.ErrDeadlineExceeded) {
		// ctx's deadline, which the poller has noticed before ctx did.
		err = fmt.Errorf("%w: %w", context.DeadlineExceeded, err)
	}
	if err != nil {
		return -1, nil, err
	}
	stream, sec := conn, (*secured)(nil)
	if s := e.dev.cfg.Security; s != nil {
		sec = e.dev.secure(conn, tls.Client, s.Client(e.peer))
		stream = sec.tls
	}
	fd, err := e.converse(ctx, conn, func() error {
		if sec != nil {
			if err := sec.tls.Handshake(); err != nil {
				return fmt.Errorf("TLS: %w", err)
			}
		}
		if _, err := stream.Write(greeting{to: a.token, from: e.addr.token}.encode(helloMagic)); err != nil {
			return fmt.Errorf("hello: %w", err)
		}
		var b [greetingSize]byte
		if _, err := io.ReadFull(stream, b[:]); err != nil {
			if errors.Is(err, io.EOF) || errors.Is(err, unix.ECONNRESET) {
				err = errRefused
			}
			return fmt.Errorf("welcome: %w", err)
		}
		g, err := decodeGreeting(b[:], welcomeMagic)
		if err != nil {
			return err
		}
		if !same(g.to, e.addr.token) || !same(g.from, a.token) {
			return errIntroduction
		}
		return nil
	})
	return fd, sec, err
}

// await waits for the peer's connection and welcomes it.
func (e *Endpoint) await(ctx context.Context, a address) (int, *secured, error) {
	select {
	case in := <-e.arrived:
		stream := in.conn
		if in.sec != nil {
			stream = in.sec.tls
		}
		fd, err := e.converse(ctx, in.conn, func() error {
			if !same(in.from, a.token) {
				e.dev.rejected.Add(1)
				return errIntroduction
			}
			_, err := stream.Write(greeting{to: a.token, from: e.addr.token}.encode(welcomeMagic))
			return err
		})
		return fd, in.sec, err
	case <-e.dev.life.Done():
		return -1, nil, fabric.ErrClosed
	case <-ctx.Done():
		e.dev.forget(e)
		return -1, nil, ctx.Err()
	}
}

func same(a, b token) bool { return subtle.ConstantTimeCompare(a[:], b[:]) == 1 }

// converse runs the exchange of greetings, which ends early with ctx, and takes
// the socket out of conn.
func (e *Endpoint) converse(ctx context.Context, conn net.Conn, exchange func() error) (int, error) {
	// The deadline of the hello must go.
	err := conn.SetDeadline(time.Time{})
	if err == nil {
		stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
		err = exchange()
		stop()
	}
	fd := -1
	if err == nil {
		fd, err = detach(conn, e.dev.cfg.SocketBuffer)
	}
	if ctx.Err() != nil && err != nil {
		err = ctx.Err()
	}
	// fd, if there is one, keeps the connection.
	_ = conn.Close()
	return fd, err
}

// detach returns a descriptor of conn's socket that the Go poller knows nothing
// of, tuned for the data path. conn must be closed by the caller; that does not
// end the connection, the new descriptor keeps it.
func detach(conn net.Conn, buffer int) (int, error) {
	tc, ok := conn.(*net.TCPConn)
	if !ok {
		return -1, fmt.Errorf("tcp: %T is not a TCP connection", conn)
	}
	rc, err := tc.SyscallConn()
	if err != nil {
		return -1, err
	}
	fd, derr := -1, error(nil)
	if err := rc.Control(func(s uintptr) {
		fd, derr = unix.FcntlInt(s, unix.F_DUPFD_CLOEXEC, 0)
	}); err != nil || derr != nil {
		return -1, errors.Join(err, derr)
	}
	if err := tune(fd, buffer); err != nil {
		return -1, errors.Join(err, unix.Close(fd))
	}
	return fd, nil
}

// tune sets the socket's options.
func tune(fd, buffer int) error {
	// The descriptor shares its mode with conn's, which was non-blocking; say
	// so once more, because everything after this depends on it.
	if err := unix.SetNonblock(fd, true); err != nil {
		return fmt.Errorf("tcp: non-blocking mode: %w", err)
	}
	type option struct{ level, name, value int }
	options := []option{
		{unix.IPPROTO_TCP, unix.TCP_NODELAY, 1},
		{unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1},
		{unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, keepaliveIdle},
		{unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, keepaliveInterval},
		{unix.IPPROTO_TCP, unix.TCP_KEEPCNT, keepaliveCount},
		{unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(UserTimeout.Milliseconds())},
	}
	if buffer > 0 {
		options = append(options,
			option{unix.SOL_SOCKET, unix.SO_SNDBUF, buffer},
			option{unix.SOL_SOCKET, unix.SO_RCVBUF, buffer})
	}
	for _, o := range options {
		if err := unix.SetsockoptInt(fd, o.level, o.name, o.value); err != nil {
			return fmt.Errorf("tcp: socket option %d: %w", o.name, err)
		}
	}
	return nil
}
