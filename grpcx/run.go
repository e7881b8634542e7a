package grpcx

import (
	"context"
	"errors"
	"fmt"
	"io"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/rdmad/rdmad/server"
)

// run is the life of one call on the handler's side: the handler of the stream.
func (s *Server) run(m *method, in incoming) error {
	r := &serverStream{server: s, method: m, in: in}
	refused := s.enter()
	if refused != nil {
		return r.end(refused)
	}
	defer s.leave()
	if st := r.start(); st != nil {
		return r.end(st)
	}
	st := handlerStatus(s.call(m, r))
	if st.Code() != codes.OK && r.stopped() || st.Code() == codes.Canceled && r.noRoom() {
		st = r.broken(context.Canceled) // says why, which is not the caller
	}
	return r.end(st)
}

// call calls the handler, through the interceptors.
func (s *Server) call(m *method, r *serverStream) error {
	if s.stream == nil || !m.desc.ClientStreams && !m.desc.ServerStreams {
		return m.desc.Handler(m.impl, r)
	}
	info := &grpc.StreamServerInfo{FullMethod: m.full, IsClientStream: m.desc.ClientStreams, IsServerStream: m.desc.ServerStreams}
	return s.stream(m.impl, r, info, m.desc.Handler)
}

// enter counts a call, or says why it must not run.
func (s *Server) enter() *status.Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.refusing {
		return status.New(codes.Unavailable, "grpcx: the server is stopping")
	}
	if s.running >= s.options.calls {
		return status.Newf(codes.ResourceExhausted, "grpcx: the server runs %d calls already", s.options.calls)
	}
	s.running++
	return nil
}

func (s *Server) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running--
	s.settleLocked()
}

// start receives the head of the call and makes the handler's context.
func (r *serverStream) start() *status.Status {
	b, err := r.in.Recv()
	if err != nil {
		return r.broken(err)
	}
	f, err := parseFrame(b)
	if err != nil {
		return status.New(codes.Internal, err.Error())
	}
	if !f.has(flagHead) || f.has(flagStatus) {
		return status.New(codes.Internal, fmt.Sprintf("%v: the first one has no head", errFrame))
	}
	h, err := parseHead(f.head)
	if err != nil {
		return status.New(codes.Internal, err.Error())
	}
	if r.codec = codecOf(h.codec); r.codec == nil {
		return status.Newf(codes.Unimplemented, "grpcx: no codec registered for content-subtype %.80q", h.codec)
	}
	r.ready, r.isReady, r.last = f.message, f.has(flagMessage), f.has(flagLast)
	ctx := metadata.NewIncomingContext(r.in.Context(), h.md)
	ctx = peer.NewContext(ctx, &peer.Peer{Addr: Addr{Node: h.node}, LocalAddr: Addr{Node: r.server.host.node()}})
	r.ctx = grpc.NewContextWithServerTransportStream(ctx, transportStream{r})
	return nil
}

// stoppedText is the message of the status of a call whose server was closed.
const stoppedText = "grpcx: the server was closed"

// stopped reports whether the context has ended because of the server, and not because
// of the caller.
func (r *serverStream) stopped() bool { return context.Cause(r.in.Context()) == context.Canceled }

// noRoom reports whether the context has ended because there was no room for a message.
func (r *serverStream) noRoom() bool {
	return errors.Is(context.Cause(r.in.Context()), server.ErrLimit)
}

// broken is the status of a call whose stream has failed. Nobody may be left to see
// it but interceptors and handlers.
func (r *serverStream) broken(err error) *status.Status {
	if err == io.EOF {
		return status.New(codes.Internal, "grpcx: the caller's end of the stream has ended too early")
	}
	cause := r.in.Context().Err()
	switch {
	case r.noRoom():
		return status.New(codes.ResourceExhausted, context.Cause(r.in.Context()).Error())
	case cause != nil && r.stopped():
		return status.New(codes.Unavailable, stoppedText)
	case cause != nil:
		return status.FromContextError(cause)
	case errors.Is(err, server.ErrTooLarge):
		return status.New(codes.ResourceExhausted, err.Error())
	}
	return status.New(codes.Unavailable, err.Error())
}

// transportStream is what package grpc finds in the handler's context.
type transportStream struct{ *serverStream }

// Method returns "/service/method".
func (t transportStream) Method() string { return t.method.full }

// SetHeader and SendHeader are those of grpc.SetHeader and grpc.SendHeader.
func (t transportStream) SetHeader(md metadata.MD) error {
	if md.Len() == 0 {
		return nil
	}
	return t.setHeader(md)
}

func (t transportStream) SendHeader(md metadata.MD) error {
	if err := t.SetHeader(md); err != nil {
		return err
	}
	return t.sendHeader()
}

// SetTrailer adds to the trailer metadata.
func (t transportStream) SetTrailer(md metadata.MD) error { return t.setTrailer(md) }

var _ grpc.ServerTransportStream = transportStream{}
