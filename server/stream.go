package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"sync"
	"time"

	"github.com/rdmad/rdmad/internal/exchange"
	"github.com/rdmad/rdmad/shm"
	"github.com/rdmad/rdmad/slots"
)

// StreamHandler serves one stream, on a goroutine of its own. When it returns, the
// caller's Recv returns io.EOF behind what was sent, or an ErrRemote with the text of
// the error, cut to what the caller has room for at the time: 156 bytes, or more if much has been
// sent just before. The Stream is valid until it returns.
type StreamHandler func(s *Stream) error

// ErrGivenUp is the cause of the end of a stream's context when the caller has given
// the stream up, has ended, or has not been heard of for 15 seconds, node.link_hold, and the time in which a core
// that hangs is replaced (35 seconds with the default of node.hang_limit), and of the end of a
// Call's context when the caller has ended.
var ErrGivenUp = errors.New("the caller has given up or has ended")

// Stream is one exchange of messages with a caller. Send and Recv may be used by one
// goroutine each at the same time.
type Stream struct {
	x      *exchanges
	e      *serverExchange
	ctx    context.Context
	cancel context.CancelCauseFunc
	// shown is what Context returns, if it is not ctx. carried is what goes with the
	// stream's first part.
	shown   context.Context
	carried []byte

	mu  sync.Mutex
	in  *exchange.Inbox
	out *exchange.Outbox
	// counted is how much of exchanges.limit the stream takes, for one message. given: the handler
	// has it.
	counted int64
	given   bool
	// refused is why nothing more is let in, nil if it is.
	refused error
	// more: the caller waits for credit. reading: the handler waits in Recv.
	more, reading bool
	// held is the caller's wait for news, and timer ends it; nil if there is none.
	held  *part
	timer *time.Timer
	// gone: the caller has given the stream up, or has not been heard of. over: it has the end.
	gone, over bool
	// half: out has the beginning of a message, and not its end yet.
	half bool
	// status and text are the outcome, when out has its end.
	status slots.Status
	text   string

	readable, writable chan struct{} // what Recv and Send wait for, room for one
}

// HandleStream offers a method whose callers exchange messages with its handler; see
// client.Method.Stream. It is like Handle otherwise. How many of its handlers run at
// once is limited by the option Streams, not by Workers.
func (s *Server) HandleStream(service, method string, h StreamHandler, opts ...MethodOption) error {
	if h == nil {
		return s.handle(service, method, handlers{}, opts)
	}
	return s.handle(service, method, handlers{call: refuseCall, stream: h}, opts)
}

// refuseCall is the handler of an ordinary request to a method that is a stream.
func refuseCall(*Call) error { return errors.New("the method is a stream (client.Method.Stream)") }

// openStream begins a stream.
func (x *exchanges) openStream(p *part, data []byte) {
	h := x.server.streamHandler(p.header.Method)
	if h == nil {
		p.fail(slots.StatusNoService, "the method is no stream")
		return
	}
	s := &Stream{
		x: x, carried: p.carried, in: exchange.NewInbox(exchange.Window, exchange.MaxMessage), out: exchange.NewOutbox(exchange.Window, p.head.Credit),
		readable: make(chan struct{}, 1), writable: make(chan struct{}, 1),
	}
	if err := s.take(&p.head, data); err != nil {
		p.fail(slots.StatusInvalid, err.Error())
		return
	}
	if !x.begin() {
		p.fail(slots.StatusNotExecuted, stopping)
		return
	}
	s.e = &serverExchange{from: caller{p.lane, p.header.From}, method: p.header.Method, stream: s}
	s.context(p.header.Deadline)
	if ok, why := x.add(s.e); !ok {
		s.cancel(nil)
		x.running.Done()
		p.fail(slots.StatusNotExecuted, why)
		return
	}
	limit, _ := s.in.Credit(false)
	p.answer(&exchange.PartAnswer{ID: s.e.id, Credit: limit, Kind: exchange.KindOpened}, nil, nil)
	go s.run(h)
}

// context makes the stream's context, which ends at the caller's deadline, if it has one.
func (s *Stream) context(deadline int64) {
	base := s.x.server.base
	if deadline == 0 {
		s.ctx, s.cancel = context.WithCancelCause(base)
		return
	}
	timed, stop := context.WithTimeout(base, time.Duration(deadline-shm.Nanotime()))
	ctx, cancel := context.WithCancelCause(timed)
	s.ctx, s.cancel = ctx, func(err error) { cancel(err); stop() }
}

// run is the goroutine of the stream's handler.
func (s *Stream) run(h StreamHandler) {
	defer s.x.running.Done()
	status, text := slots.StatusRemote, "handler exited"
	defer func() {
		if p := recover(); p != nil {
			text = fmt.Sprintf("handler panicked: %v", p)
			defer s.x.server.said.sayPanic(&panicked{p, debug.Stack()}) // which may take long
		}
		s.finish(status, text)
	}()
	if err := h(s); err != nil {
		text = err.Error()
		return
	}
	status, text = slots.StatusOK, ""
}

// halfSent is the error of a handler that says that all is well, and has left half of a message.
const halfSent = "the handler returned before a message was sent to its end"

// finish says that the handler has returned.
func (s *Stream) finish(status slots.Status, text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.half && status == slots.StatusOK {
		// A Send was left to another goroutine, or its error was dropped: what the caller gets is not what was meant.
		status, text = slots.StatusRemote, halfSent
	}
	s.status, s.text = status, text
	s.x.streamOver(s.e, s.out.Pending())
	s.cancel(nil)
	s.reading = false
	s.uncount()
	s.in.Drop()
	s.out.End()
	if s.gone {
		// Nobody asks any more.
		s.x.remove(s.e)
		s.release()
		return
	}
	s.tell()
}

// Context ends when the caller's deadline passes, when it gives the stream up, has ended or
// has not been heard of for as long as ErrGivenUp says, and when the server closes.
func (s *Stream) Context() context.Context {
	if s.shown != nil {
		return s.shown
	}
	return s.ctx
}

// Abort ends the stream's context with err as its cause, or context.Canceled if that is nil: Send and Recv, also those that another
// goroutine waits in, return it. The caller gets what was sent before, and of a message that is half sent nothing: then the handler is to return an
// error, as for that it gets an ErrRemote. Again, or after the handler has returned, it does nothing. It is safe for concurrent use.
func (s *Stream) Abort(err error) {
	s.cancel(err)
}

// Recv returns the next message, in a slice that is the handler's. It returns io.EOF
// when the caller has said that there are no more, and the cause of the context's end
// when that comes first: of a message larger than 256 KiB for which LargeMessages leaves no
// room, an ErrLimit.
func (s *Stream) Recv() ([]byte, error) {
	for {
		s.mu.Lock()
		if s.given {
			s.uncount()
		}
		msg, ok, end := s.in.Take()
		s.given = ok && s.counted > 0 // there was none before it when it was counted
		s.reading = !ok && !end && s.ctx.Err() == nil
		if err := s.count(); err != nil {
			s.refuse(err)
		}
		if !end {
			s.offer()
		}
		s.mu.Unlock()
		switch {
		case ok:
			return msg, nil
		case end:
			return nil, io.EOF
		}
		select {
		case <-s.readable:
		case <-s.ctx.Done():
			s.mu.Lock()
			s.reading = false // or the caller could send all of a message that nobody waits for
			s.mu.Unlock()
			return nil, context.Cause(s.ctx)
		}
	}
}

// Send sends a message of up to 1 GiB, which it copies. It waits while the caller, who
// has not taken earlier ones, gives no credit. Errors: ErrTooLarge, or the cause of the context's end, which the return of
// the handler is, too: if it leaves half of a message, its caller gets an ErrRemote.
func (s *Stream) Send(msg []byte) error {
	if len(msg) > exchange.MaxMessage {
		return fmt.Errorf("server: stream: %w: %d bytes, at most %d", ErrTooLarge, len(msg), exchange.MaxMessage)
	}
	var frame [exchange.FrameSize]byte
	exchange.PutFrame(frame[:], len(msg))
	for head, rest := frame[:], msg; ; {
		s.mu.Lock()
		if s.ctx.Err() != nil { // nothing goes behind the end
			s.mu.Unlock()
			return context.Cause(s.ctx)
		}
		head, rest = s.out.Fill(head, rest)
		s.half = len(head) == 0 && len(rest) > 0
		s.tell()
		s.mu.Unlock()
		if len(head)+len(rest) == 0 {
			return nil
		}
		select {
		case <-s.writable:
		case <-s.ctx.Done():
		}
	}
}

// take takes what a part brings: bytes, the end of them, and credit.
func (s *Stream) take(h *exchange.PartRequest, data []byte) error {
	if h.Flags&exchange.FlagRegion != 0 {
		return fmt.Errorf("%w: a stream's bytes in a region", exchange.ErrProtocol)
	}
	if err := s.in.Add(h.Offset, data); err != nil {
		return err
	}
	if h.Flags&exchange.FlagEnd != 0 {
		if err := s.in.End(); err != nil {
			return err
		}
	}
	s.more = h.Flags&exchange.FlagMore != 0
	return s.out.Extend(h.Credit)
}

// received deals with a part that carries bytes.
func (s *Stream) received(p *part, data []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.refused != nil {
		p.fail(slots.StatusMaybeExecuted, s.refused.Error())
		return
	}
	if err := s.take(&p.head, data); err != nil {
		s.refuse(err)
		p.fail(slots.StatusInvalid, err.Error())
		return
	}
	if err := s.count(); err != nil {
		s.refuse(err)
		p.fail(slots.StatusMaybeExecuted, err.Error())
		return
	}
	s.poke()
	limit, _ := s.in.Credit(s.reading)
	s.in.Tell(limit)
	s.more = s.more && limit == s.in.Got()
	p.answer(&exchange.PartAnswer{ID: s.e.id, Credit: limit, Kind: exchange.KindAck}, nil, nil)
	s.tell() // there may be new credit
}

// count counts the message that the handler waits for among the large messages of the process, if
// it is larger than the window: what is in the window is not counted. An error, which wraps ErrLimit,
// says that there is no room for it. mu is held.
func (s *Stream) count() error {
	n := int64(s.in.Large())
	if n == 0 || !s.reading || s.counted > 0 {
		return nil
	}
	if !s.x.more(n) {
		return fmt.Errorf("server: stream: %w: a message of %d bytes: %s", ErrLimit, n, noRoom)
	}
	s.counted = n
	return nil
}

// uncount ends what count began. mu is held.
func (s *Stream) uncount() {
	s.x.less(s.counted)
	s.counted, s.given = 0, false
}

// refuse ends the stream for its handler, and lets nothing more in. mu is held.
func (s *Stream) refuse(err error) {
	s.refused, s.reading = err, false
	s.cancel(err)
}

// hold keeps a wait for news until there is some.
func (s *Stream) hold(p *part) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.out.Extend(p.head.Credit); err != nil {
		s.refuse(err)
		p.fail(slots.StatusInvalid, err.Error())
		return
	}
	if s.held != nil {
		s.release() // a caller has one at a time
	}
	s.held = p
	s.poke()
	s.tell()
	if !s.gone && !s.over {
		s.offer() // room that was made while there was no wait to be answered
	}
	if s.gone || s.over {
		s.release() // the exchange may not be there any more, for shut to find the wait
	}
	if s.held != nil {
		p.keep()
		s.timer = time.AfterFunc(holdLimit, func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			if s.held == p {
				s.release()
			}
		})
	}
}

// poke wakes Recv and Send. mu is held.
func (s *Stream) poke() {
	for _, c := range []chan struct{}{s.readable, s.writable} {
		poke(c)
	}
}

// offer answers the caller's wait if there is credit that it has asked for. mu is held.
func (s *Stream) offer() {
	limit, gain := s.in.Credit(s.reading)
	if !s.more || s.held == nil || gain == 0 || gain < s.in.Window()/4 && s.in.Got()+exchange.FrameSize < limit-gain {
		return
	}
	s.more = false
	s.tell()
	if s.held != nil {
		s.release()
	}
}

// tell answers the caller's wait if there are bytes for it, or the end. mu is held.
func (s *Stream) tell() {
	if s.held == nil || s.out.Sendable() == 0 && !s.out.EndDue() {
		return
	}
	room := s.held.room()
	data, off := s.out.Next(room)
	a := exchange.PartAnswer{Offset: off, Length: uint32(len(data))}
	var outcome []byte
	last := false
	// The text is not cut for the sake of the bytes before it: then the next wait has the end.
	if left := room - len(data); left >= exchange.OutcomeSize && (len(data) == 0 || left >= exchange.OutcomeSize+len(s.text)) && s.out.TakeEnd() {
		a.Flags, s.over = exchange.FlagEnd, true
		outcome = exchange.AppendOutcome(nil, uint32(s.status), s.text)
		outcome = outcome[:min(len(outcome), left)]
		last = true
		s.x.end(s.e)
	}
	s.answerHeld(a, data, outcome)
	if last {
		s.x.answered()
	}
	poke(s.writable)
}

// release answers the caller's wait, if there is one, without news. mu is held.
func (s *Stream) release() {
	if s.held != nil {
		_, off := s.out.Next(0)
		s.answerHeld(exchange.PartAnswer{Offset: off}, nil, nil)
	}
}

// answerHeld answers the caller's wait. mu is held.
func (s *Stream) answerHeld(a exchange.PartAnswer, data, rest []byte) {
	p := s.held
	s.held = nil
	if s.timer != nil {
		s.timer.Stop()
		s.timer = nil
	}
	a.ID, a.Kind = s.e.id, exchange.KindData
	a.Credit, _ = s.in.Credit(s.reading)
	s.in.Tell(a.Credit)
	p.answer(&a, data, rest)
}

// giveUp ends the stream's context because the caller is gone.
func (s *Stream) giveUp() {
	s.cancel(ErrGivenUp)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gone = true
	// Answered before the exchange is removed: shut waits for those that are not.
	s.release()
	if s.out.Ended() {
		s.x.remove(s.e) // its handler had returned before; else finish does it
	}
}

// abandon ends the wait of a caller whose stream ends with the server.
func (s *Stream) abandon() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.held; p != nil {
		s.held = nil
		s.timer.Stop()
		p.fail(slots.StatusMaybeExecuted, stopping)
	}
}
