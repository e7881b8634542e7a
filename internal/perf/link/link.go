package link

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// DefaultPort is where a server waits that is not told otherwise, as perftest's does.
	DefaultPort = 18515
	// KeepAlive is after how long at most a machine is missed that is gone without a word.
	KeepAlive = 4 * time.Second
	// Patience is for how long a side waits for a message that is due, or for anything else that
	// the other one must do: its process may be stopped while its kernel answers for it.
	Patience = time.Minute
	// greetingTime bounds the exchange of greetings, sendTime the sending of a message.
	greetingTime = 15 * time.Second
	sendTime     = 15 * time.Second
	dialTime     = 15 * time.Second
	// failTime is how long Fail waits for the other side to end.
	failTime = 2 * time.Second
	// backlog is how many messages may wait to be received: each side answers before it
	// is told more, of each of its connections.
	backlog = 256
)

// Link is one end of a control connection whose greetings fit. A goroutine of its own
// reads; it ends with Close. All methods may be called from any goroutine, Next and Receive
// from one at a time.
type Link struct {
	conn     net.Conn
	peer     Greeting
	messages chan message    // closed by the reader at its end
	waiting  atomic.Int64    // messages that were not received yet
	heard    atomic.Uint64   // messages that have come, those included that nobody receives
	alive    context.Context // until the reader's end
	die      context.CancelFunc
	over     atomic.Bool
	cause    error // set before over is

	sending sync.Mutex // a message at a time
	mu      sync.Mutex
	// notify is called, with mu held, when there is news. Guarded by mu.
	notify func()
}

// Dial connects to a server and exchanges greetings. Errors: *MismatchError,
// *RefusedError, *ProtocolError, and those of the network.
func Dial(ctx context.Context, address string, own Greeting) (*Link, error) {
	conn, err := (&net.Dialer{Timeout: dialTime}).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("link: %w", err)
	}
	return Greet(ctx, conn, own)
}

// Greet is Dial over a connection that there is already, and that becomes the link's.
func Greet(ctx context.Context, conn net.Conn, own Greeting) (*Link, error) {
	return greet(ctx, conn, func(in *bufio.Reader) (Greeting, error) {
		if err := write(conn, kindHello, own); err != nil {
			return Greeting{}, err
		}
		peer, err := readGreeting(in)
		if err != nil {
			return peer, ungreeted(err)
		}
		return peer, own.fits(peer)
	})
}

// Answer is the other end of Greet.
func Answer(ctx context.Context, conn net.Conn, own Greeting) (*Link, error) {
	return answer(ctx, conn, own, func() error { return nil })
}

// answer is Answer for those to whom welcome, which is called when they have greeted, has no objection.
func answer(ctx context.Context, conn net.Conn, own Greeting, welcome func() error) (*Link, error) {
	return greet(ctx, conn, func(in *bufio.Reader) (Greeting, error) {
		peer, err := readGreeting(in)
		if err != nil {
			return peer, err
		}
		if err := welcome(); err != nil {
			return peer, err
		}
		// Also if they do not fit, so that the other side can say so.
		return peer, errors.Join(own.fits(peer), write(conn, kindHello, own))
	})
}

// greet makes the link of a connection after the exchange of greetings, or closes it.
func greet(ctx context.Context, conn net.Conn, exchange func(*bufio.Reader) (Greeting, error)) (*Link, error) {
	if err := watch(conn); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	in := bufio.NewReaderSize(conn, MaxMessage)
	err := conn.SetDeadline(time.Now().Add(greetingTime))
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	var peer Greeting
	if err == nil {
		peer, err = exchange(in)
	}
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err == nil {
		err = conn.SetDeadline(time.Time{})
	}
	if err != nil {
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		_ = conn.Close() // the cause is known
		return nil, err
	}
	l := &Link{conn: conn, peer: peer, messages: make(chan message, backlog)}
	l.alive, l.die = context.WithCancel(context.Background())
	go l.read(in)
	return l, nil
}

// watch makes the kernel notice a machine that is gone within KeepAlive.
func watch(conn net.Conn) error {
	tcp, ok := conn.(*net.TCPConn)
	if !ok {
		return nil // a test's
	}
	err := tcp.SetKeepAliveConfig(net.KeepAliveConfig{Enable: true, Idle: time.Second, Interval: time.Second, Count: 3})
	if err != nil {
		return fmt.Errorf("link: keep-alive: %w", err)
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return fmt.Errorf("link: %w", err)
	}
	var failed error
	err = raw.Control(func(fd uintptr) {
		failed = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(KeepAlive.Milliseconds()))
	})
	if err = errors.Join(err, failed); err != nil {
		return fmt.Errorf("link: user timeout: %w", err)
	}
	return nil
}

// readGreeting reads the other side's first line.
func readGreeting(in *bufio.Reader) (Greeting, error) {
	var g Greeting
	m, err := readMessage(in)
	if err != nil {
		return g, err
	}
	if m.Kind != kindHello {
		return g, protocolError("a message %q instead of a greeting", m.Kind)
	}
	// One of another protocol may have more to say.
	if err := json.Unmarshal(m.Body, &g); err != nil {
		return g, protocolError("a greeting: %v", err)
	}
	return g, g.check()
}

// readMessage reads a line. At an end between lines the error is io.EOF.
func readMessage(in *bufio.Reader) (message, error) {
	line, err := in.ReadSlice('\n')
	switch {
	case errors.Is(err, bufio.ErrBufferFull):
		return message{}, protocolError("a line of more than %d bytes", MaxMessage)
	case err != nil && len(line) > 0 && errors.Is(err, io.EOF):
		return message{}, io.ErrUnexpectedEOF
	case err != nil:
		return message{}, err
	}
	return decode(bytes.TrimSuffix(line, []byte("\n")))
}

// write sends a message within the connection's deadline.
func write(conn net.Conn, kind string, body any) error {
	line, err := encode(kind, body)
	if err != nil {
		return err
	}
	if _, err := conn.Write(line); err != nil {
		return lost(err)
	}
	return nil
}

// ungreeted says why a server has not greeted.
func ungreeted(err error) error {
	var broken *ProtocolError
	switch {
	case errors.As(err, &broken):
		return err
	case errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Errorf("%w for %v after the connection: is it rdmad perf, and is its process stopped?", ErrSilent, greetingTime)
	}
	return lost(err)
}

// lost wraps what ended a connection.
func lost(err error) error {
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("%w: its process has ended", ErrLost)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Errorf("%w: it takes no message", ErrLost)
	case errors.Is(err, unix.ETIMEDOUT):
		return fmt.Errorf("%w: its machine has answered nothing for %v", ErrLost, KeepAlive)
	}
	return fmt.Errorf("%w: %w", ErrLost, err)
}

// read takes messages until the end of the connection.
func (l *Link) read(in *bufio.Reader) {
	var err error
	for {
		var m message
		if m, err = readMessage(in); err != nil {
			var broken *ProtocolError
			if !errors.As(err, &broken) {
				err = lost(err)
			}
			break
		}
		if m.Kind == kindFailure {
			refused := new(RefusedError)
			if err = m.into(refused); err == nil {
				err = refused
			}
			break
		}
		l.heard.Add(1)
		if m.Kind == kindAlive {
			continue
		}
		if l.waiting.Add(1) > backlog {
			err = protocolError("more than %d messages at once", backlog)
			break
		}
		l.messages <- m // which has room
		l.tell()
	}
	l.cause = err
	l.over.Store(true)
	close(l.messages)
	l.die()
	l.tell()
}

// tell says that there is news.
func (l *Link) tell() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.notify != nil {
		l.notify()
	}
}

// Notify has f called whenever a message has come, and when the link has ended; from any
// goroutine, and never again after Notify(nil) has returned. f must not block, nor call Notify.
func (l *Link) Notify(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.notify = f
}

// RemoteAddr returns the other side's address.
func (l *Link) RemoteAddr() net.Addr { return l.conn.RemoteAddr() }

// LocalAddr returns the address at which the other side has reached this one, or from which
// this one has reached it.
func (l *Link) LocalAddr() net.Addr { return l.conn.LocalAddr() }

// News reports that a message can be received or that the link has ended. It costs next to
// nothing.
func (l *Link) News() bool { return l.waiting.Load() > 0 || l.over.Load() }

// Err returns why the link has ended, nil while it has not: *RefusedError, *ProtocolError, or
// an error that wraps ErrLost.
func (l *Link) Err() error {
	if !l.over.Load() {
		return nil
	}
	return l.cause
}

// Context ends with the link.
func (l *Link) Context() context.Context { return l.alive }

// Verdict waits for the end of the link, for d at most, and returns Err. It is for those who
// see something else fail, of which the other side may have told the reason.
func (l *Link) Verdict(d time.Duration) error {
	limit := time.NewTimer(d)
	defer limit.Stop()
	select {
	case <-l.alive.Done():
	case <-limit.C:
	}
	return l.Err()
}

// Send sends a message.
func (l *Link) Send(kind string, body any) error {
	if err := l.Err(); err != nil {
		return err
	}
	err := l.write(kind, body)
	if errors.Is(err, ErrLost) {
		// The other side may have said why before it went.
		if why := l.Verdict(time.Second); why != nil {
			return why
		}
	}
	return err
}

// write sends a message within sendTime.
func (l *Link) write(kind string, body any) error {
	l.sending.Lock()
	defer l.sending.Unlock()
	if err := l.conn.SetWriteDeadline(time.Now().Add(sendTime)); err != nil {
		return lost(err)
	}
	return write(l.conn, kind, body)
}

// Message is one that was received.
type Message struct{ m message }

// Kind returns what the message is about.
func (m Message) Kind() string { return m.m.Kind }

// Into decodes the body.
func (m Message) Into(body any) error { return m.m.into(body) }

// Alive tells the other side that this one is at work, for as long as it has no message: see
// Heard.
func (l *Link) Alive() error { return l.Send(kindAlive, struct{}{}) }

// Heard returns how many messages have come, those of Alive included. It costs next to nothing.
func (l *Link) Heard() uint64 { return l.heard.Load() }

// Next waits for the next message, for Patience at most since the other side has been heard of: then
// the error wraps ErrSilent.
func (l *Link) Next(ctx context.Context) (Message, error) {
	limit := time.NewTimer(Patience)
	defer limit.Stop()
	for heard := l.Heard(); ; {
		select {
		case m, open := <-l.messages:
			if !open {
				return Message{}, l.cause
			}
			l.waiting.Add(-1)
			return Message{m}, nil
		case <-ctx.Done():
			return Message{}, ctx.Err()
		case <-limit.C:
		}
		if now := l.Heard(); now != heard {
			heard = now
			limit.Reset(Patience)
			continue
		}
		return Message{}, fmt.Errorf("%w for %v, and its connection stands: its process is stopped, or is busy with something else", ErrSilent, Patience)
	}
}

// Unexpected is the error for a message that has no place where it has come.
func (m Message) Unexpected() error { return protocolError("a message %q has no place here", m.m.Kind) }

// Receive waits like Next for a message, which must be of the given kind, and decodes its body.
func (l *Link) Receive(ctx context.Context, kind string, body any) error {
	m, err := l.Next(ctx)
	if err != nil {
		return err
	}
	if m.Kind() != kind {
		return m.Unexpected()
	}
	return m.Into(body)
}

// Fail tells the other side, as far as that is possible, why this one ends the connection.
// Input says that it does not like what it was asked for and has done nothing. It waits a
// moment for the other side to have read it, because the end of a connection may overtake
// what was sent. Close must follow.
func (l *Link) Fail(reason error, input bool) {
	if err := l.Send(kindFailure, RefusedError{Reason: reason.Error(), Input: input}); err != nil {
		return // it is gone, too
	}
	_ = l.Verdict(failTime)
}

// Close ends the connection and the reader.
func (l *Link) Close() error {
	err := l.conn.Close()
	<-l.alive.Done()
	return err
}
