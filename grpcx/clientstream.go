package grpcx

import (
	"context"
	"errors"
	"io"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"google.golang.org/grpc"

	"github.com/rdmad/rdmad/client"
)

// clientStream is a call, of any kind. One goroutine may send while another receives.
type clientStream struct {
	conn *Conn
	// via is what the call goes through, unless that has ended before it was begun.
	via             caller
	desc            *grpc.StreamDesc
	service, method string
	info            *callInfo
	// out is the stream; nil until opened is closed, and after that if there never was
	// one.
	out    outgoing
	opened chan struct{}
	// caller is the context that the stream was opened with.
	caller context.Context
	// ctx is shown to users of calls that are not unary. It ends with the call.
	ctx    context.Context
	cancel context.CancelFunc
	// unwatch ends what watch has begun; nil before.
	unwatch func() bool

	// Of the goroutine that sends. head is the block of the head, nil once it is sent.
	head     []byte
	sentLast bool

	// recvMu is held by who receives. Besides RecvMsg that can be Header, which
	// leaves what it receives in ready.
	recvMu   sync.Mutex
	ready    []byte
	isReady  bool
	received bool // a message was delivered
	ended    error

	mu       sync.Mutex // guards all below
	header   metadata.MD
	trailer  metadata.MD
	from     string // the answering node
	answered bool   // a frame has come
	finished bool
	failure  error // why the call was given up by this side

	// headed is closed when the first frame has come or the call has ended without one.
	headed   chan struct{}
	headOnce sync.Once
}

// watch makes the end of the caller's context end the call, if its user does not.
func (s *clientStream) watch() {
	s.ctx, s.cancel = context.WithCancel(s.caller)
	stop := context.AfterFunc(s.caller, func() { s.finish(callError(s.caller, s.caller.Err())) })
	s.mu.Lock()
	s.unwatch = stop
	s.mu.Unlock()
}

// Header returns the header metadata, when it is there. It is nil if the call ended
// without.
func (s *clientStream) Header() (metadata.MD, error) {
	if !s.recvMu.TryLock() {
		<-s.headed // by who receives, who may wait for a message after it, or by the end of the call
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.header, nil
	}
	for s.ended == nil && !s.isReady && !s.hasAnswer() {
		s.ready, s.isReady = s.receive()
	}
	ended, ready := s.ended, s.isReady
	s.recvMu.Unlock()
	// Without its only answer a call has not ended well: RecvMsg says so.
	if ended != nil && !ready && (ended != io.EOF || s.desc.ServerStreams) {
		s.finish(ended)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.header, nil
}

func (s *clientStream) showHead() { s.headOnce.Do(func() { close(s.headed) }) }

func (s *clientStream) hasAnswer() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.answered
}

// Trailer returns the trailer metadata, after RecvMsg has returned an error.
func (s *clientStream) Trailer() metadata.MD {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.trailer
}

// Context returns the call's context, with the peer once that is known.
func (s *clientStream) Context() context.Context {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.answered {
		return s.ctx
	}
	return peer.NewContext(s.ctx, s.peer())
}

// peer runs with mu held.
func (s *clientStream) peer() *peer.Peer {
	node := s.from
	if node == "" {
		node = s.via.target()
	}
	return &peer.Peer{Addr: Addr{Node: node}, LocalAddr: Addr{Node: s.via.node()}}
}

// SendMsg sends a message. It returns io.EOF when the call has ended; RecvMsg then
// says how.
func (s *clientStream) SendMsg(m any) error {
	if s.sentLast {
		return s.abort(status.Error(codes.Internal, "SendMsg called after CloseSend"))
	}
	flags := byte(flagMessage)
	if !s.desc.ClientStreams {
		s.sentLast = true
		flags |= flagLast
	}
	data, err := marshal(s.info.codec, m, s.info.maxSend)
	if err != nil {
		return s.abort(err)
	}
	defer data.Free()
	first := s.head != nil
	err = withBuffer(func(b *[]byte) error {
		*b = appendMessage(s.begin(*b, flags), data)
		return s.send(*b)
	})
	switch {
	case first && err != nil:
		return s.abort(err)
	case errors.Is(err, client.ErrTooLarge):
		return s.abort(s.conn.callError(s.caller, err)) // the stream lives on
	case err == nil, !s.desc.ClientStreams:
		return nil // RecvMsg will say why
	}
	return io.EOF
}

// begin appends the beginning of a frame, with the head if that was not sent yet.
func (s *clientStream) begin(b []byte, flags byte) []byte {
	if s.head != nil {
		flags |= flagHead
	}
	b = append(append(b, flags), s.head...)
	return b
}

// send sends a frame, the first one by opening the stream. The error of that is a
// status.
func (s *clientStream) send(b []byte) error {
	first := s.head != nil
	s.head = nil
	switch {
	case first:
		return s.open(b)
	case s.out == nil:
		return errNoStream
	case s.caller.Err() != nil:
		return s.caller.Err()
	}
	return s.out.Send(s.caller, b)
}

// errNoStream is of a call that could not be begun.
var errNoStream = errors.New("grpcx: the call was not begun")

// open opens the stream with a first frame.
func (s *clientStream) open(first []byte) error {
	out, err := s.conn.open(s.caller, s.service, s.method, s.info.wait, first)
	if err != nil {
		s.mu.Lock()
		if s.failure == nil {
			s.failure = err // for who waits for opened
		}
		s.mu.Unlock()
		close(s.opened)
		return err
	}
	s.mu.Lock()
	s.out = out
	finished := s.finished
	s.mu.Unlock()
	close(s.opened)
	if finished { // meanwhile
		_ = out.Close()
	}
	return nil
}

// stream returns the stream, when it is open. The end of the call ends the wait.
func (s *clientStream) stream() (outgoing, error) {
	select {
	case <-s.opened:
	case <-s.ctx.Done():
		return nil, s.ctx.Err()
	}
	if s.out == nil {
		return nil, errNoStream
	}
	return s.out, nil
}

// sendHead sends the head alone.
func (s *clientStream) sendHead() error {
	return withBuffer(func(b *[]byte) error {
		*b = s.begin(*b, 0)
		return s.send(*b)
	})
}

// abort ends the call because of an error of this side.
func (s *clientStream) abort(err error) error {
	s.finish(err)
	return err
}

// CloseSend says that there are no more messages. It returns nil: if it fails RecvMsg
// says why.
func (s *clientStream) CloseSend() error {
	if s.sentLast {
		return nil
	}
	s.sentLast = true
	if s.head != nil { // without a message: the handler says that there should be one
		if err := withBuffer(func(b *[]byte) error {
			*b = s.begin(*b, flagLast)
			return s.send(*b)
		}); err != nil {
			_ = s.abort(err)
		}
		return nil
	}
	if s.out != nil {
		_ = s.out.CloseSend(s.caller)
	}
	return nil
}

// RecvMsg receives a message into m. It returns io.EOF after the last one of a call
// that has ended well, and otherwise the status with which it ended.
func (s *clientStream) RecvMsg(m any) error {
	s.recvMu.Lock()
	err := s.recvMsg(m)
	s.recvMu.Unlock()
	if err != nil || !s.desc.ServerStreams {
		s.finish(err)
	}
	return err
}

// recvMsg does not end the call. recvMu is held, or the call has no other user.
func (s *clientStream) recvMsg(m any) error {
	b, err := s.next()
	if err != nil {
		if err == io.EOF && !s.desc.ServerStreams && !s.received {
			return status.Error(codes.Internal, "cardinality violation: received no response message from non-server-streaming RPC")
		}
		return err
	}
	s.received = true
	if err := decode(b, s.info.codec, m, s.info.maxRecv); err != nil {
		s.ended = err
		return err
	}
	if s.desc.ServerStreams {
		return nil
	}
	// Of the end of the call its status is wanted too.
	switch _, err := s.next(); err {
	case io.EOF:
		return nil
	case nil:
		return status.Error(codes.Internal, "cardinality violation: expected <EOF> for non server-streaming RPCs, but received another message")
	default:
		return err
	}
}

// next returns the next message, or how the call ended. recvMu is held.
func (s *clientStream) next() ([]byte, error) {
	for !s.isReady {
		if s.ended != nil {
			return nil, s.ended
		}
		s.ready, s.isReady = s.receive()
	}
	b := s.ready
	s.ready, s.isReady = nil, false
	return b, nil
}

// receive takes one frame. It returns its message, if it has one, and sets ended if
// the call has ended. recvMu is held.
func (s *clientStream) receive() (message []byte, ok bool) {
	out, err := s.stream()
	var b []byte
	if err == nil {
		b, err = out.Recv(s.caller)
	}
	if err != nil {
		if failure := s.gaveUp(); failure != nil {
			s.ended = failure
			return nil, false
		}
	}
	switch {
	case err == io.EOF:
		s.ended = status.Error(codes.Internal, "grpcx: the handler's end of the stream has ended without a status")
		return nil, false
	case err != nil:
		s.ended = s.conn.callError(s.caller, err)
		return nil, false
	}
	if message, ok, err = s.take(b); err != nil {
		s.ended = failed(codes.Internal, err)
	} else if s.ended != nil {
		awaitEnd(s.caller, out)
	}
	return message, ok
}

// gaveUp returns why this side has given the call up, or nil.
func (s *clientStream) gaveUp() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failure
}

func (s *clientStream) take(b []byte) (message []byte, ok bool, err error) {
	f, err := parseFrame(b)
	if err != nil {
		return nil, false, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if f.has(flagHead) == s.answered || f.has(flagLast) {
		return nil, false, errFrame // a head comes first, and only there
	}
	s.answered = true
	defer s.showHead()
	if f.has(flagHead) {
		h, err := parseHead(f.head)
		if err != nil {
			return nil, false, err
		}
		s.from = h.node
		if len(h.md) > 0 || !f.has(flagStatus) || f.has(flagMessage) {
			s.header = h.md
		}
	}
	if f.has(flagStatus) {
		e, err := parseEnding(f.status)
		if err != nil {
			return nil, false, err
		}
		s.trailer, s.ended = e.trailer, io.EOF
		if e.status != nil {
			s.ended = e.status.Err()
		}
	}
	return f.message, f.has(flagMessage), nil
}

// untouched reports whether a call that failed with err was certainly not seen by a
// handler.
func (s *clientStream) untouched(err error) bool {
	return err != nil && s.out != nil && s.caller.Err() == nil && !s.hasAnswer() &&
		errors.Is(err, client.ErrNotExecuted) && !errors.Is(err, client.ErrMaybeExecuted)
}

// finish ends the call, once, and tells whoever wanted to know.
func (s *clientStream) finish(err error) {
	if err == io.EOF {
		err = nil
	}
	s.mu.Lock()
	if s.finished {
		s.mu.Unlock() // what tell has told is there
		return
	}
	s.finished, s.failure = true, err
	s.tell()
	s.showHead()
	unwatch := s.unwatch
	s.mu.Unlock()
	if unwatch != nil {
		unwatch()
	}
	s.release()
	s.info.finished(err)
}

// tell writes what is known to where the call's options want it. It runs with mu held: others learn from
// finish that the call has ended, and read it then.
func (s *clientStream) tell() {
	for _, to := range s.info.headers {
		*to = s.header
	}
	for _, to := range s.info.trailers {
		*to = s.trailer
	}
	for _, to := range s.info.peers {
		if s.answered {
			*to = *s.peer()
		}
	}
}

// release gives the stream back. What was received can still be read.
func (s *clientStream) release() {
	s.mu.Lock()
	out := s.out
	s.mu.Unlock()
	if out != nil {
		_ = out.Close()
	}
	if s.cancel != nil {
		s.cancel()
	}
}

func (i *callInfo) finished(err error) {
	for _, f := range i.finish {
		f(err)
	}
}
