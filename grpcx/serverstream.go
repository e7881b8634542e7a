package grpcx

import (
	"context"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/rdmad/rdmad/server"
)

// serverStream is a call at its handler. One goroutine may send while another
// receives.
type serverStream struct {
	server *Server
	method *method
	in     incoming
	ctx    context.Context
	codec  encoding.CodecV2

	// Of the goroutine that receives. ready is a message that has come.
	ready    []byte
	isReady  bool
	last     bool // no message comes after it
	received bool

	// sending is held by who sends a frame.
	sending sync.Mutex
	begun   bool  // the head was sent
	over    bool  // the status was sent, or cannot be
	outcome error // of over: what the handler of the stream is to return
	// closing: the status is being sent, or was. It is stored with sending held, and loaded without.
	closing atomic.Bool
	// held is the answer of a call that has one: it goes in a frame with the status.
	held   mem.BufferSlice
	isHeld bool

	mu      sync.Mutex // guards all below
	header  metadata.MD
	trailer metadata.MD
	sealed  bool // the header is settled
	// failure is the error of the SendMsg or RecvMsg that has ended the call; later ones return it.
	failure error
}

// errHeaderSent is of gRPC's text.
var errHeaderSent = status.Error(codes.Internal, "transport: SendHeader called multiple times")

// Context returns the handler's context. It ends when the caller's deadline passes,
// the caller gives up or is gone, or the server is closed.
func (r *serverStream) Context() context.Context { return r.ctx }

// SetHeader adds to the header metadata.
func (r *serverStream) SetHeader(md metadata.MD) error {
	if md.Len() == 0 {
		return nil
	}
	if err := checkMetadata(md); err != nil {
		return status.Error(codes.Internal, err.Error())
	}
	return r.setHeader(md)
}

// setHeader is SetHeader without a look at what md has.
func (r *serverStream) setHeader(md metadata.MD) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.sealed {
		return errHeaderSent
	}
	r.header = metadata.Join(r.header, md)
	return nil
}

// SendHeader adds to the header metadata and sends it. Of a unary call it goes with
// the answer, before which nobody could see it.
func (r *serverStream) SendHeader(md metadata.MD) error {
	if err := r.SetHeader(md); err != nil {
		return err
	}
	return r.sendHeader()
}

func (r *serverStream) sendHeader() error {
	r.mu.Lock()
	again := r.sealed
	r.sealed = true
	r.mu.Unlock()
	if again {
		return errHeaderSent
	}
	if !r.method.desc.ClientStreams && !r.method.desc.ServerStreams {
		return nil
	}
	defer r.settle() // when nobody sends any more
	r.sending.Lock()
	defer r.sending.Unlock()
	if r.begun {
		return nil // it went with a message, which another goroutine was about to send
	}
	return withBuffer(func(b *[]byte) (err error) {
		if *b, err = r.begin(*b, 0); err != nil {
			return err
		}
		return r.send(*b)
	})
}

// SetTrailer adds to the trailer metadata. What gRPC does not allow in it makes the
// call fail.
func (r *serverStream) SetTrailer(md metadata.MD) { _ = r.setTrailer(md) }

func (r *serverStream) setTrailer(md metadata.MD) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.trailer = metadata.Join(r.trailer, md)
	return nil
}

// begin appends the beginning of a frame: with the head, if that was not sent yet.
// sending is held.
func (r *serverStream) begin(b []byte, flags byte) ([]byte, error) {
	if r.over {
		return b, status.Error(codes.Internal, "grpcx: the call has ended")
	}
	if r.begun {
		return append(b, flags), nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sealed = true
	h := head{node: r.server.host.node(), md: r.header}
	b, err := appendBlock(append(b, flags|flagHead), h.append)
	if err != nil {
		return b, status.Error(codes.Internal, "grpcx: "+err.Error())
	}
	return b, nil
}

// send sends a frame that begin has begun. sending is held.
func (r *serverStream) send(b []byte) error {
	if err := r.in.Send(b); err != nil {
		return r.broken(err).Err()
	}
	r.begun = true
	return nil
}

// fail ends the call with the error of a SendMsg or RecvMsg, as gRPC does: a handler that goes on
// regardless must not end it with OK while messages are missing. The status is sent at once, or after what
// another goroutine is just sending, which is not waited for long: the handler may wait for one that receives, which waits for the caller,
// who waits for the end. When the context has ended the call has an outcome already.
func (r *serverStream) fail(err error) error {
	if err == nil || err == io.EOF || r.in.Context().Err() != nil {
		return err
	}
	r.mu.Lock()
	if r.failure == nil {
		r.failure = err
	}
	r.mu.Unlock()
	r.settle()
	return err
}

// settle ends a call that has failed. It leaves that to who sends just now: whoever has sent something calls it.
func (r *serverStream) settle() {
	err := r.refusal()
	if err == nil {
		return
	}
	if !r.sending.TryLock() {
		r.hurry()
		return
	}
	defer r.sending.Unlock()
	_ = r.endOnce(status.Convert(err)) // the handler's return says it again
}

// errHurried is the cause of the end of the context of a call that has failed.
var errHurried = errors.New("grpcx: the call has failed, and its caller did not read what was being sent")

// hurry ends what another goroutine sends, of a call that has failed, unless that has come to an end within endPatience: the caller may
// not read for as long as it likes. The status is then the error of the stream.
func (r *serverStream) hurry() *time.Timer {
	return time.AfterFunc(endPatience, func() {
		if r.closing.Load() {
			return // what is being sent is the status
		}
		if !r.sending.TryLock() {
			r.in.Abort(errHurried)
			return
		}
		r.sending.Unlock()
		r.settle() // whoever has sent has done so, but if it was kept from it by a look like this one
	})
}

// refusal returns the error of the SendMsg or RecvMsg that has ended the call, or nil.
func (r *serverStream) refusal() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.failure
}

// SendMsg sends a message. An error ends the call.
func (r *serverStream) SendMsg(m any) error {
	if err := r.refusal(); err != nil {
		return err
	}
	defer r.settle()
	return r.fail(r.sendMsg(m))
}

func (r *serverStream) sendMsg(m any) error {
	r.sending.Lock()
	defer r.sending.Unlock()
	if r.over {
		return status.Error(codes.Internal, "grpcx: the call has ended")
	}
	data, err := marshal(r.codec, m, r.server.options.maxSend)
	if err != nil {
		return err
	}
	if !r.method.desc.ServerStreams {
		if r.isHeld {
			data.Free()
			return status.Error(codes.Internal, "grpcx: a second message of a call that has one answer")
		}
		r.held, r.isHeld = data, true
		return nil
	}
	defer data.Free()
	return withBuffer(func(b *[]byte) (err error) {
		if *b, err = r.begin(*b, flagMessage); err != nil {
			return err
		}
		*b = appendMessage(*b, data)
		return r.send(*b)
	})
}

// end ends the call with a status, unless it has ended, and returns what the handler of the
// stream is to return. What another goroutine still sends comes before, if the call ends well, however long it takes.
func (r *serverStream) end(st *status.Status) error {
	if !r.sending.TryLock() {
		if st.Code() != codes.OK {
			defer r.hurry().Stop()
		}
		r.sending.Lock()
	}
	defer r.sending.Unlock()
	if err := r.refusal(); err != nil {
		st = status.Convert(err) // whatever the handler has made of it, and if it has returned before settle
	}
	return r.endOnce(st)
}

// endOnce is end with sending held.
func (r *serverStream) endOnce(st *status.Status) error {
	if !r.over {
		r.closing.Store(true)
		r.outcome = r.conclude(st)
		r.over = true
		r.held.Free()
	}
	return r.outcome
}

// conclude sends the status, with the answer if there is one. After the end of the context, when
// nothing can be sent, it returns an error that is the status. sending is held.
func (r *serverStream) conclude(st *status.Status) error {
	r.mu.Lock()
	e := ending{status: st, trailer: r.trailer}
	r.mu.Unlock()
	flags := byte(flagStatus)
	if r.isHeld && st.Code() == codes.OK {
		flags |= flagMessage
	}
	err := r.sendEnd(flags, e)
	if st := (*statusError)(nil); errors.As(err, &st) {
		// Something was too large, or not allowed: then at least the caller knows.
		r.mu.Lock()
		r.header = nil
		r.mu.Unlock()
		err = r.sendEnd(flagStatus, ending{status: st.status})
	}
	if err != nil && r.in.Context().Err() != nil {
		if st.Code() == codes.OK {
			st = r.broken(err)
		}
		return lateStatus{st}
	}
	return err
}

// sendEnd sends the last frame. The error is a statusError if the frame could not be
// made, or is too large. sending is held.
func (r *serverStream) sendEnd(flags byte, e ending) error {
	return withBuffer(func(b *[]byte) (err error) {
		if *b, err = r.begin(*b, flags); err != nil {
			return failed(codes.Internal, err)
		}
		if *b, err = appendBlock(*b, e.append); err != nil {
			return failed(codes.Internal, err)
		}
		if flags&flagMessage != 0 {
			*b = appendMessage(*b, r.held)
		}
		err = r.in.Send(*b)
		if r.begun = r.begun || err == nil; errors.Is(err, server.ErrTooLarge) {
			return failed(codes.ResourceExhausted, err)
		}
		return err
	})
}

// RecvMsg receives a message into m, or returns io.EOF after the last one. Any other error ends the
// call.
func (r *serverStream) RecvMsg(m any) error {
	if err := r.refusal(); err != nil {
		return err
	}
	return r.fail(r.recvMsg(m))
}

func (r *serverStream) recvMsg(m any) error {
	b, err := r.next()
	if err == io.EOF && !r.method.desc.ClientStreams && !r.received {
		return status.Error(codes.Internal, "cardinality violation: received no request message from non-client-streaming RPC")
	}
	if err != nil {
		return err
	}
	r.received = true
	if err := decode(b, r.codec, m, r.server.options.maxRecv); err != nil {
		return err
	}
	if r.method.desc.ClientStreams {
		return nil
	}
	switch _, err := r.next(); err {
	case io.EOF:
		return nil
	case nil:
		return status.Error(codes.Internal, "cardinality violation: received multiple request messages for non-client-streaming RPC")
	default:
		return err
	}
}

// next returns the next message, or io.EOF after the last one.
func (r *serverStream) next() ([]byte, error) {
	for !r.isReady {
		if r.last {
			return nil, io.EOF
		}
		b, err := r.in.Recv()
		if err == io.EOF {
			r.last = true
			continue
		}
		if err != nil {
			return nil, r.broken(err).Err()
		}
		f, err := parseFrame(b)
		if err == nil && (f.has(flagHead) || f.has(flagStatus)) {
			err = errFrame
		}
		if err != nil {
			return nil, status.Error(codes.Internal, err.Error())
		}
		r.ready, r.isReady, r.last = f.message, f.has(flagMessage), f.has(flagLast)
	}
	b := r.ready
	r.ready, r.isReady = nil, false
	return b, nil
}
