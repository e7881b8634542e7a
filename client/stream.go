package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/rdmad/rdmad/internal/exchange"
	"github.com/rdmad/rdmad/slots"
)

// Stream is an exchange of messages with one handler (server.HandleStream). Send and
// CloseSend may be used by one goroutine, and Recv by another, at the same time; Close
// by any.
type Stream struct {
	m  *Method
	r  *route
	id uint64
	to uint16
	// ctx ends with the stream.
	ctx    context.Context
	cancel context.CancelCauseFunc
	unhook func() bool // keeps the end of the caller's context from ending the stream

	mu  sync.Mutex
	in  *exchange.Inbox
	out *exchange.Outbox
	// err is why the stream has ended, io.EOF if its handler has returned nil; what
	// has come before is in in.
	err error
	// unsent is why a part could not be sent, after which none is.
	unsent error
	// reading: somebody waits in Recv.
	reading bool
	closed  bool // by Close, before it had ended
	// sender runs while there is something to tell: bytes, the end, or credit.
	sending, credit bool
	// asked: the handler's process knows that this side waits for credit.
	asked bool

	readable, writable chan struct{} // what Recv and Send wait for, room for one
}

// Stream begins an exchange of messages with a handler of the method, which starts at
// once. ctx bounds the life of the stream: its end gives the stream up, and its deadline
// is the handler's. Every stream must be closed, or received from until an error.
//
// Errors are those of Call, and ErrInvalid of a method with Idempotent, since messages that were
// exchanged cannot be sent again, or Ordered, since streams run beside each other. If the method takes no streams, the
// error is ErrNoService.
func (m *Method) Stream(ctx context.Context) (*Stream, error) { return m.stream(ctx, nil, false) }

// StreamWith is Stream and a first Send, with fewer requests: a message of up to 128 KiB,
// or what the largest class of slots takes if that is less, goes with the request that
// begins the stream. An error leaves no stream.
func (m *Method) StreamWith(ctx context.Context, first []byte) (*Stream, error) {
	if len(first) <= maxRoom {
		return m.stream(ctx, first, true)
	}
	if err := m.checkMessage(first); err != nil {
		return nil, err
	}
	s, err := m.stream(ctx, nil, false)
	if err != nil {
		return nil, err
	}
	// After io.EOF the handler has returned, and what it has sent is still to be received.
	if err := s.Send(ctx, first); err != nil && !errors.Is(err, io.EOF) {
		_ = s.Close()
		return nil, err
	}
	return s, nil
}

// stream begins a stream, with a first message that fits the window.
func (m *Method) stream(ctx context.Context, first []byte, with bool) (*Stream, error) {
	s, err := m.openStream(ctx, first, with)
	for tries := 0; errors.Is(err, slots.ErrClosed) && tries < maxReroutes; tries++ {
		s, err = m.openStream(ctx, first, with) // the lanes of its way were closed, and nothing was sent
	}
	if refused(err) {
		s, err = m.openStream(ctx, first, with) // what was cached is forgotten
		return s, secondTry(err)
	}
	return s, err
}

func (m *Method) openStream(ctx context.Context, first []byte, with bool) (*Stream, error) {
	if m.opts.idempotent {
		return nil, m.notAgain("a stream")
	}
	if m.opts.ordered {
		return nil, fmt.Errorf("client: %s: %w: streams have no order among requests: use the method without client.Ordered", m.name, ErrInvalid)
	}
	if ctx.Err() != nil {
		return nil, m.late(ctx, false)
	}
	r, err := m.currentRoute(ctx)
	if err != nil {
		return nil, err
	}
	s := &Stream{
		m: m, r: r, in: exchange.NewInbox(exchange.Window, MaxMessage),
		out:      exchange.NewOutbox(exchange.Window, exchange.Window),
		readable: make(chan struct{}, 1), writable: make(chan struct{}, 1),
	}
	if with {
		var frame [exchange.FrameSize]byte
		exchange.PutFrame(frame[:], len(first))
		s.out.Append(frame[:])
		s.out.Append(first)
	}
	open := &part{head: exchange.PartRequest{Op: exchange.OpOpenStream, Credit: exchange.Window}}
	open.data, _ = s.out.Next(min(maxRoom, r.largest-exchange.PartSize))
	err = m.part(ctx, r, open, func(a *exchange.PartAnswer, _, _ []byte) error {
		if a.Kind != exchange.KindOpened {
			return s.damaged(exchange.ErrProtocol)
		}
		s.id, s.to = a.ID, a.To
		if err := s.out.Extend(a.Credit); err != nil {
			return s.damaged(err)
		}
		return nil
	})
	if err != nil {
		if s.id != 0 {
			m.closeExchange(r, s.id, s.to)
		}
		if errors.Is(err, slots.ErrClosed) {
			m.route.p.CompareAndSwap(r, nil)
		}
		return nil, err
	}
	s.ctx, s.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	s.mu.Lock() // the end of ctx may have come
	s.unhook = context.AfterFunc(ctx, func() {
		s.giveUp(m.late(ctx, true), false)
	})
	s.mu.Unlock()
	go s.receive()
	s.mu.Lock()
	s.wakeSender() // for what did not fit the first part
	s.mu.Unlock()
	return s, nil
}

// Stream begins an exchange of messages with target; see Method.Stream.
func (c *Conn) Stream(ctx context.Context, target string) (*Stream, error) {
	m, err := c.Method(ctx, target)
	if err != nil {
		return nil, err
	}
	return m.Stream(ctx)
}

// checkMessage refuses what is no message of a stream.
func (m *Method) checkMessage(msg []byte) error {
	if len(msg) > MaxMessage {
		return &TooLargeError{Target: m.name, What: "request", Size: len(msg), Limit: MaxMessage, remedy: noLarger}
	}
	return nil
}

// Send sends a message of up to 1 GiB, which it copies. It waits while the handler, who
// has not taken earlier ones, gives no credit. When Send returns, the message is on its
// way or waits in this process behind others. After an error, which is the stream's if
// it has ended (io.EOF if the handler has returned), or ctx's, no more can be sent; an
// ErrTooLarge does no harm.
func (s *Stream) Send(ctx context.Context, msg []byte) error {
	if err := s.m.checkMessage(msg); err != nil {
		return err
	}
	var frame [exchange.FrameSize]byte
	exchange.PutFrame(frame[:], len(msg))
	for head, rest := frame[:], msg; ; {
		s.mu.Lock()
		err := s.err
		if err == nil && s.out.Ended() {
			err = fmt.Errorf("client: %s: %w: Send after CloseSend", s.m.name, ErrInvalid)
		}
		if err == nil {
			head, rest = s.out.Fill(head, rest)
			s.wakeSender()
		}
		s.mu.Unlock()
		if err != nil || len(head)+len(rest) == 0 {
			return err
		}
		select {
		case <-s.writable:
		case <-s.ctx.Done():
		case <-ctx.Done():
			err := s.m.late(ctx, true)
			s.giveUp(err, false) // half of a message may have gone
			return err
		}
	}
}

// CloseSend says that no more messages are sent: the handler's Recv returns io.EOF behind
// those that were. Again it does nothing. It does not wait, and so does not look at the context.
func (s *Stream) CloseSend(_ context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil && !s.out.Ended() {
		s.out.End()
		s.wakeSender()
	}
	if s.err != nil && !errors.Is(s.err, io.EOF) {
		return s.err
	}
	return nil
}

// Recv returns the next message, in a slice that is the caller's. When the handler has
// returned, and all messages were received, it returns io.EOF, or an ErrRemote with the
// handler's error. Other errors are those of Call's outcomes. The end of ctx ends the
// wait and not the stream.
func (s *Stream) Recv(ctx context.Context) ([]byte, error) {
	for {
		s.mu.Lock()
		err := s.err
		if s.closed {
			s.mu.Unlock()
			return nil, err
		}
		msg, ok, _ := s.in.Take()
		s.reading = !ok && err == nil
		if err == nil {
			s.offer()
		}
		s.mu.Unlock()
		switch {
		case ok:
			return msg, nil
		case err != nil:
			return nil, err
		}
		select {
		case <-s.readable:
		case <-s.ctx.Done():
		case <-ctx.Done():
			s.mu.Lock()
			s.reading = false // or the handler could send all of a message that nobody waits for
			s.mu.Unlock()
			return nil, s.m.late(ctx, true)
		}
	}
}

// Err returns how the stream has ended, whether or not Recv has come to it: io.EOF if its handler has returned nil, and
// nil while it has not ended. It is safe for concurrent use.
func (s *Stream) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// Close ends the stream, if it has not ended, without waiting: the context of the
// handler ends. Calls of Send and Recv return, and later ones fail. Again it does
// nothing.
func (s *Stream) Close() error {
	s.giveUp(fmt.Errorf("client: %s: %w: the stream was closed", s.m.name, ErrClosed), true)
	return nil
}

// giveUp ends the stream from this side.
func (s *Stream) giveUp(err error, closed bool) {
	if s.end(err, closed) {
		s.m.closeExchange(s.r, s.id, s.to)
	}
}

// end notes how the stream has ended, and returns true the first time.
func (s *Stream) end(err error, closed bool) bool {
	s.mu.Lock()
	first := s.err == nil
	if first {
		s.err, s.closed = err, closed // together: Recv must not find the one without the other
	}
	unhook := s.unhook
	s.mu.Unlock()
	if first {
		unhook()
		s.cancel(err)
	}
	return first
}

func (s *Stream) damaged(err error) error {
	return fmt.Errorf("%s: %w: a part of the stream was damaged: %w", s.m.name, ErrMaybeExecuted, err)
}

// broken ends the stream because a part has failed.
func (s *Stream) broken(err error) {
	var late *DeadlineError
	switch {
	case errors.As(err, &late):
		err = late.of(s.m.name, true)
	case !errors.Is(err, ErrMaybeExecuted):
		// What was not executed is a part, not the stream.
		err = fmt.Errorf("%s: %w: the stream broke: %w", s.m.name, ErrMaybeExecuted, hideNotExecuted{err})
	}
	s.giveUp(err, false)
}
