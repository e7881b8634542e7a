package attach

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdmad/rdmad/shm"
)

// Conn is one end of a control connection. Send may be called from any
// goroutine, Recv from one.
type Conn struct {
	sock *net.UnixConn
	turn chan struct{} // holds one: who sends has put it there. One message, one write
	// reserves: Reserve has been called. spare is the descriptor that it keeps back, if spared; all belong to who calls Recv.
	spare            int
	reserves, spared bool
	// patience is for how long Send waits for who does not read.
	patience time.Duration
}

// buffers are for messages that are being received. They are large and a daemon has
// hundreds of connections on which nothing arrives, so none has one of its own.
var buffers = sync.Pool{New: func() any { return new([MaxMessage]byte) }}

// NewConn wraps a SOCK_SEQPACKET connection, which it owns from then on.
func NewConn(sock *net.UnixConn) *Conn {
	return &Conn{sock: sock, turn: make(chan struct{}, 1), patience: sendTimeout}
}

// sendTimeout bounds a Send to a process that does not read.
const sendTimeout = 5 * time.Second

// Send writes a message with descriptors, which stay the caller's. Errors: ErrClosed when the other side is gone,
// ErrBusy, and nothing is sent, when it has read nothing for some seconds and the socket's buffer is full, ErrLimit for a
// message that is too long.
func (c *Conn) Send(m *Message, fds ...int) error { return c.sendWithin(c.patience, m, fds...) }

// sendWithin is Send that waits no longer than patience, also for others who send.
func (c *Conn) sendWithin(patience time.Duration, m *Message, fds ...int) error {
	data, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("attach: encode %s message: %w", m.Type, err)
	}
	if len(data) > MaxMessage {
		return fmt.Errorf("%w: %s message of %d bytes, at most %d", ErrLimit, m.Type, len(data), MaxMessage)
	}
	until := time.Now().Add(patience)
	if !c.begin(patience) {
		return fmt.Errorf("%w: send %s: others have waited for as long", ErrBusy, m.Type)
	}
	defer func() { <-c.turn }()
	err = c.write(until, data, fds)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		// A socket whose deadline has passed is not looked at: the turn may have come late, or this process may have stood still.
		until = time.Now().Add(lastTry)
		err = c.write(until, data, fds)
	}
	for errors.Is(err, unix.ETOOMANYREFS) && time.Now().Before(until) {
		time.Sleep(handPause) // others have not taken theirs; see Hand
		err = shm.SendFDs(c.sock, data, fds...)
	}
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, unix.ETOOMANYREFS):
		return fmt.Errorf("%w: send %s: %w", ErrBusy, m.Type, err)
	case err != nil:
		return fmt.Errorf("%w: send %s: %w", ErrClosed, m.Type, err)
	}
	return nil
}

// lastTry is for how long a socket is waited for that had no room in time.
const lastTry = 100 * time.Millisecond

// write puts a message into the socket by then.
func (c *Conn) write(until time.Time, data []byte, fds []int) error {
	if err := c.sock.SetWriteDeadline(until); err != nil {
		return err
	}
	return shm.SendFDs(c.sock, data, fds...)
}

// begin waits until nobody else sends, and says whether that was within patience.
func (c *Conn) begin(patience time.Duration) bool {
	select {
	case c.turn <- struct{}{}:
		return true
	default:
	}
	late := time.NewTimer(patience)
	defer late.Stop()
	return c.beginBefore(late.C)
}

// beginBefore is begin until late. A turn that is there counts, though both are seen at once.
func (c *Conn) beginBefore(late <-chan time.Time) bool {
	select {
	case c.turn <- struct{}{}:
		return true
	case <-late:
	}
	select {
	case c.turn <- struct{}{}:
		return true
	default:
		return false
	}
}

// Offer is Send for what can wait: it returns ErrBusy, and sends nothing, while the
// other side has not read what fills half of the socket's buffer. So there is always
// room for Send, which waits for it.
func (c *Conn) Offer(m *Message, fds ...int) error { return c.offer(m, math.MaxInt, fds) }

// offer is Offer where less than most bytes may be in use.
func (c *Conn) offer(m *Message, most int, fds []int) error {
	unread, room, err := c.outgoing()
	if err != nil {
		return fmt.Errorf("%w: %w", ErrClosed, err)
	}
	if unread > min(most, room/2) {
		return fmt.Errorf("%w: %d of %d bytes of the socket's buffer are in use", ErrBusy, unread, room)
	}
	return c.Send(m, fds...)
}

// handed is how many bytes of a socket's buffer, with what the kernel adds to each message, may be in use before Hand sends
// another one: those of a few messages.
const handed = 4096

// Hand is Offer for answers with descriptors, for which a process may ask again and again: it waits, as long as Send does,
// while the process has some to take. Descriptors that nobody has taken from a socket count for the user that has sent
// them, who may have as many under way as a process may have open (RLIMIT_NOFILE), unless it has CAP_SYS_RESOURCE: processes
// that ask and do not read could keep a daemon from sending any to anybody.
func (c *Conn) Hand(m *Message, fds ...int) error {
	until, pause := time.Now().Add(c.patience), handPause
	for ; ; pause = min(2*pause, handLongest) {
		over := time.Now().After(until) // before it looks: it may have stood still since
		if err := c.offer(m, handed, fds); !errors.Is(err, ErrBusy) || over {
			return err
		}
		time.Sleep(pause)
	}
}

// handPause is how often Hand looks at first whether the other side has read, and Send whether anybody has: no event of a socket tells of
// the one or the other.
const handPause = time.Millisecond

// handLongest is what that grows to for a process that does not read: many of them must not keep the daemon busy.
const handLongest = 32 * handPause

// outgoing returns how much of the socket's buffer what was sent and not read takes,
// and its size.
func (c *Conn) outgoing() (unread, room int, err error) {
	raw, err := c.sock.SyscallConn()
	if err != nil {
		return 0, 0, err
	}
	var errs [2]error
	err = raw.Control(func(fd uintptr) {
		unread, errs[0] = unix.IoctlGetInt(int(fd), unix.SIOCOUTQ)
		room, errs[1] = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_SNDBUF)
	})
	return unread, room, errors.Join(err, errs[0], errs[1])
}

// Reserve keeps a descriptor back for one that comes with a message: a process that has opened as many as it may
// just then would lose that. Recv gives it up for a message with descriptors, no sooner, and Release has it back. It belongs to
// who calls Recv.
func (c *Conn) Reserve() {
	c.reserves = true
	if c.spared {
		return
	}
	// A copy of what is open in any case.
	c.spared = c.control(func(sock int) (err error) {
		c.spare, err = unix.FcntlInt(uintptr(sock), unix.F_DUPFD_CLOEXEC, 3)
		return err
	}) == nil // else there is none now
}

// Release closes descriptors that came with a message, but for those below 0. Where nothing is kept back the number of one of them is
// from then on, and was never free: others who wait for one do not get it.
func (c *Conn) Release(fds []int) {
	for _, fd := range fds {
		if fd < 0 {
			continue
		}
		if c.reserves && !c.spared && c.control(func(sock int) error { return unix.Dup3(sock, fd, unix.O_CLOEXEC) }) == nil {
			c.spare, c.spared = fd, true
			continue
		}
		shm.CloseFDs([]int{fd})
	}
}

// control calls f with the socket.
func (c *Conn) control(f func(sock int) error) error {
	raw, err := c.sock.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Control(func(fd uintptr) { failed = f(int(fd)) })
	return errors.Join(err, failed)
}

// Unreserve gives up what Reserve keeps back.
func (c *Conn) Unreserve() {
	if c.spared {
		_ = unix.Close(c.spare)
		c.spared = false
	}
}

// Recv reads one message. The descriptors that came with it are the caller's to
// close. Errors: ErrClosed when the other side is gone, ErrInvalid for bytes
// that are no message.
func (c *Conn) Recv() (*Message, []int, error) {
	withFDs, err := c.arrival()
	if err != nil {
		return nil, nil, fmt.Errorf("%w: %w", ErrClosed, err)
	}
	buf := buffers.Get().(*[MaxMessage]byte)
	defer buffers.Put(buf)
	receive := shm.RecvFDs
	if withFDs && c.reserves {
		receive = c.receive
	}
	n, fds, err := receive(c.sock, buf[:])
	if errors.Is(err, shm.ErrFDsLost) {
		if m := withoutFDs(buf[:n]); m != nil {
			m.lost = true
			return m, nil, nil
		}
	}
	if err == nil && n == 0 && len(fds) == 0 {
		err = io.EOF
	}
	if err != nil {
		if errors.Is(err, io.EOF) {
			return nil, nil, ErrClosed
		}
		return nil, nil, fmt.Errorf("%w: %w", ErrClosed, err)
	}
	m, err := DecodeMessage(buf[:n])
	if err != nil {
		shm.CloseFDs(fds)
		return nil, nil, err
	}
	return m, fds, nil
}

// withoutFDs returns the message if what comes with it can be done without, or is missing to who has asked for it only, else nil.
func withoutFDs(data []byte) *Message {
	m, err := DecodeMessage(data)
	if err == nil && (m.Type == TypeResumed || m.Type == TypeRegion || m.Type == TypeStatusIs) {
		return m
	}
	return nil
}

// fdsLate is for how long a message waits for room for what comes with it.
const fdsLate = 5 * time.Second

// receive is shm.RecvFDs in the place that Reserve has kept back. Others who wait for a descriptor can be faster than the
// kernel, between the one's end and the other's beginning: then the message stays where it is until there is room, unless it
// can do without. Nobody says when a descriptor is free, so it is tried now and then.
func (c *Conn) receive(sock *net.UnixConn, buf []byte) (n int, fds []int, err error) {
	for until := time.Now().Add(fdsLate); ; time.Sleep(handPause) {
		c.Unreserve()
		n, fds, err = shm.PeekFDs(sock, buf)
		if !errors.Is(err, shm.ErrFDsLost) || withoutFDs(buf[:n]) != nil || time.Now().After(until) {
			break
		}
	}
	if err != nil {
		return shm.RecvFDs(sock, buf) // says the same, or is lucky
	}
	var some [1]byte // the kernel drops the rest of the message, and closes what has come with it
	if _, err := sock.Read(some[:]); err != nil {
		shm.CloseFDs(fds)
		return 0, nil, err
	}
	return n, fds, nil
}

// arrival waits until there is something to receive, a message or the end, and reports whether descriptors come with it.
func (c *Conn) arrival() (withFDs bool, err error) {
	raw, err := c.sock.SyscallConn()
	if err != nil {
		return false, err
	}
	err = raw.Read(func(fd uintptr) bool {
		var some [1]byte
		_, _, flags, _, err := unix.Recvmsg(int(fd), some[:], nil, unix.MSG_PEEK|unix.MSG_DONTWAIT)
		withFDs = err == nil && flags&unix.MSG_CTRUNC != 0 // there is no room for them here
		return !errors.Is(err, unix.EAGAIN)
	})
	return withFDs, err
}

// credentials returns what the kernel says of the process at the other side.
func (c *Conn) credentials() (cred *unix.Ucred, err error) {
	raw, err := c.sock.SyscallConn()
	if err != nil {
		return nil, err
	}
	var failed error
	err = raw.Control(func(fd uintptr) { cred, failed = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	return cred, errors.Join(err, failed)
}

// forgo gives up a connection whose other side may have made this process a worker, and have sent what it has not
// received: it takes no more and says that it touches nothing. Otherwise the process would count as a
// worker for as long as it lives. What was not read would be an error for the other side, which it would see before
// the goodbye. A core that dies when it has read one, and has not kept it, leaves the other to the next core.
func (c *Conn) forgo() {
	bye, err := json.Marshal(&Message{Type: TypeBye})
	raw, err2 := c.sock.SyscallConn()
	if err != nil || err2 != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) {
		_ = unix.Shutdown(int(fd), unix.SHUT_RD)
		var some [1]byte // the kernel closes the descriptors
		for range maxUnread {
			if n, _, err := unix.Recvfrom(int(fd), some[:], unix.MSG_DONTWAIT); n <= 0 || err != nil {
				break
			}
		}
		for range 2 {
			_, _ = unix.SendmsgN(int(fd), bye, nil, nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
		}
	})
}

// maxUnread bounds how many messages are thrown away; a socket holds fewer.
const maxUnread = 1 << 12

// DecodeMessage parses the bytes of one message. Errors wrap ErrInvalid, and are short: the decoder's quote the message.
func DecodeMessage(data []byte) (*Message, error) {
	d := json.NewDecoder(bytes.NewReader(data))
	var m Message
	if err := d.Decode(&m); err != nil {
		return nil, fmt.Errorf("%w: control message: %.200v", ErrInvalid, err)
	}
	if m.Type == "" {
		return nil, fmt.Errorf("%w: control message without a type", ErrInvalid)
	}
	return m.own(), nil
}

// SetDeadline bounds the next Recv calls; the zero time removes the bound.
func (c *Conn) SetDeadline(t time.Time) error { return c.sock.SetReadDeadline(t) }

// Socket returns the socket, for credentials.
func (c *Conn) Socket() *net.UnixConn { return c.sock }

// Close ends the connection, also if another process has a copy of its descriptor. A
// Recv that waits returns, at both ends.
func (c *Conn) Close() error {
	if raw, err := c.sock.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { _ = unix.Shutdown(int(fd), unix.SHUT_RDWR) })
	}
	return c.sock.Close()
}
