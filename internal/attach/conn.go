package attach

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/rdmad/rdmad/shm"
)

// Conn is one end of a control connection. Send may be called from any
// goroutine, Recv from one.
type Conn struct {
	sock *net.UnixConn
	buf  []byte
	mu   sync.Mutex // serialises Send: one message, one write
}

// NewConn wraps a SOCK_SEQPACKET connection, which it owns from then on.
func NewConn(sock *net.UnixConn) *Conn {
	return &Conn{sock: sock, buf: make([]byte, MaxMessage)}
}

// sendTimeout bounds a Send to a process that does not read.
const sendTimeout = 5 * time.Second

// Send writes a message with descriptors, which stay the caller's. A receiver
// that does not read makes it fail after some seconds.
func (c *Conn) Send(m *Message, fds ...int) error {
	data, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("attach: encode %s message: %w", m.Type, err)
	}
	if len(data) > MaxMessage {
		return fmt.Errorf("%w: %s message of %d bytes, at most %d", ErrLimit, m.Type, len(data), MaxMessage)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.sock.SetWriteDeadline(time.Now().Add(sendTimeout)); err != nil {
		return fmt.Errorf("%w: %w", ErrClosed, err)
	}
	if err := shm.SendFDs(c.sock, data, fds...); err != nil {
		return fmt.Errorf("%w: send %s: %w", ErrClosed, m.Type, err)
	}
	return nil
}

// Recv reads one message. The descriptors that came with it are the caller's to
// close. Errors: ErrClosed when the other side is gone, ErrInvalid for bytes
// that are no message.
func (c *Conn) Recv() (*Message, []int, error) {
	n, fds, err := shm.RecvFDs(c.sock, c.buf)
	if err == nil && n == 0 && len(fds) == 0 {
		err = io.EOF
	}
	if err != nil {
		if errors.Is(err, io.EOF) {
			return nil, nil, ErrClosed
		}
		return nil, nil, fmt.Errorf("%w: %w", ErrClosed, err)
	}
	m, err := DecodeMessage(c.buf[:n])
	if err != nil {
		shm.CloseFDs(fds)
		return nil, nil, err
	}
	return m, fds, nil
}

// DecodeMessage parses the bytes of one message. Errors wrap ErrInvalid.
func DecodeMessage(data []byte) (*Message, error) {
	d := json.NewDecoder(bytes.NewReader(data))
	var m Message
	if err := d.Decode(&m); err != nil {
		return nil, fmt.Errorf("%w: control message: %w", ErrInvalid, err)
	}
	if m.Type == "" {
		return nil, fmt.Errorf("%w: control message without a type", ErrInvalid)
	}
	return &m, nil
}

// SetDeadline bounds the next Recv calls; the zero time removes the bound.
func (c *Conn) SetDeadline(t time.Time) error { return c.sock.SetReadDeadline(t) }

// Socket returns the socket, for credentials.
func (c *Conn) Socket() *net.UnixConn { return c.sock }

// Close ends the connection. A Recv that waits returns.
func (c *Conn) Close() error { return c.sock.Close() }
