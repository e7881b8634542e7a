package grpcx

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/rdmad/rdmad/server"
)

// Server offers gRPC services over rdmad. It is a grpc.ServiceRegistrar: give it to
// the RegisterXServer functions that protoc-gen-go-grpc generates. It is safe for
// concurrent use.
type Server struct {
	host    host
	serve   func(context.Context) error
	options serverOptions
	unary   grpc.UnaryServerInterceptor
	stream  grpc.StreamServerInterceptor

	mu       sync.Mutex
	err      error
	services map[string]grpc.ServiceInfo
	running  int
	stopping bool
	// refusing: the daemon has not been told that calls are to go elsewhere.
	refusing bool
	// idle is closed by rest when nothing runs after stopping. Calls that had begun elsewhere in this process may still
	// come, which fetched waits for.
	idle chan struct{}
	rest sync.Once
}

func newServer(h host, serve func(context.Context) error, opts []ServerOption) *Server {
	o := defaultServerOptions()
	for _, f := range opts {
		f(&o)
	}
	return &Server{
		host: h, serve: serve, options: o,
		unary: chainUnaryServer(o.unary), stream: chainStreamServer(o.streams),
		services: make(map[string]grpc.ServiceInfo), idle: make(chan struct{}),
	}
}

// RegisterService offers the methods of a service to callers on this and other nodes,
// at once; they are answered once Serve runs. Generated code calls it. A service that
// cannot be offered, because impl lacks methods, a name is none of rdmad's, the
// service is registered already or the daemon refuses it, is an error of Err and of
// Serve; gRPC ends the program.
func (s *Server) RegisterService(desc *grpc.ServiceDesc, impl any) {
	if err := s.register(desc, impl); err != nil {
		s.mu.Lock()
		s.err = errors.Join(s.err, fmt.Errorf("grpcx: service %s: %w", desc.ServiceName, err))
		s.mu.Unlock()
	}
}

// Err returns what went wrong in RegisterService, or nil.
func (s *Server) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// Serve answers calls until ctx ends, the underlying server is closed or the daemon is
// gone, as Serve of package server, whose place it takes; the contexts of calls that
// run end. If a service could not be registered it returns that error at once. Use
// GracefulStop before to let calls finish. It returns nil when ctx ended and otherwise an ErrClosed: to go on with the
// next daemon, attach and register again, as examples/greeter does.
func (s *Server) Serve(ctx context.Context) error {
	if err := s.Err(); err != nil {
		return err
	}
	return s.serve(ctx)
}

// GetServiceInfo returns the registered services; reflection and health checks of
// gRPC ask for it.
func (s *Server) GetServiceInfo() map[string]grpc.ServiceInfo {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make(map[string]grpc.ServiceInfo, len(s.services))
	for name, info := range s.services {
		info.Methods = append([]grpc.MethodInfo(nil), info.Methods...)
		all[name] = info
	}
	return all
}

// GracefulStop has new calls go to other processes that serve the same, or end with codes.Unavailable, and returns when those
// that run have ended and their callers have received all of them, or with the error of ctx when that ends first. The underlying
// server.Server serves nothing else any more either. Afterwards end the context of Serve, or Close the server of
// package server. It may be called more than once.
func (s *Server) GracefulStop(ctx context.Context) error {
	asking, cancel := context.WithTimeout(ctx, withdrawTime)
	err := s.host.withdraw(asking)
	cancel()
	s.mu.Lock()
	// Without the daemon's answer calls that come are refused. With it those that come have begun here before, and
	// nobody else has them.
	s.stopping, s.refusing = true, err != nil
	s.settleLocked()
	s.mu.Unlock()
	select {
	case <-s.idle:
	case <-ctx.Done():
		return ctx.Err()
	}
	// Messages lie in this process until their readers have room for them, and a status behind them. A
	// server that is closed loses what nobody asks for.
	if err := s.host.fetched(ctx); err != nil && !errors.Is(err, server.ErrClosed) {
		return err
	}
	return nil
}

// settleLocked notes that nothing runs, after stopping.
func (s *Server) settleLocked() {
	if s.stopping && s.running == 0 {
		s.rest.Do(func() { close(s.idle) })
	}
}

// withdrawTime is how long the daemon may take to have calls go elsewhere.
const withdrawTime = 5 * time.Second

// method is a method of a service, of any kind.
type method struct {
	desc grpc.StreamDesc
	full string // "/service/method"
	impl any
}

func (s *Server) register(desc *grpc.ServiceDesc, impl any) error {
	if impl != nil {
		want, have := reflect.TypeOf(desc.HandlerType).Elem(), reflect.TypeOf(impl)
		if !have.Implements(want) {
			return fmt.Errorf("%v is not a %v", have, want)
		}
	}
	if err := checkName("service", desc.ServiceName); err != nil {
		return fmt.Errorf("%w: %w", server.ErrInvalid, err)
	}
	methods, info := s.methods(desc, impl)
	for _, m := range methods {
		if err := checkName("method", m.desc.StreamName); err != nil {
			return fmt.Errorf("%w: %w", server.ErrInvalid, err)
		}
	}
	s.mu.Lock()
	_, have := s.services[desc.ServiceName]
	if !have {
		s.services[desc.ServiceName] = info
	}
	s.mu.Unlock()
	if have {
		return fmt.Errorf("%w: registered before", server.ErrInvalid)
	}
	for _, m := range methods {
		if err := s.host.handle(desc.ServiceName, m.desc.StreamName, func(in incoming) error { return s.run(m, in) }); err != nil {
			return err
		}
	}
	return nil
}

func (s *Server) methods(desc *grpc.ServiceDesc, impl any) ([]*method, grpc.ServiceInfo) {
	var all []*method
	info := grpc.ServiceInfo{Metadata: desc.Metadata}
	add := func(d grpc.StreamDesc) {
		all = append(all, &method{desc: d, full: "/" + desc.ServiceName + "/" + d.StreamName, impl: impl})
		info.Methods = append(info.Methods, grpc.MethodInfo{Name: d.StreamName, IsClientStream: d.ClientStreams, IsServerStream: d.ServerStreams})
	}
	for _, d := range desc.Methods {
		add(grpc.StreamDesc{StreamName: d.MethodName, Handler: s.unaryHandler(d.Handler)})
	}
	for _, d := range desc.Streams {
		add(d)
	}
	return all, info
}

// unaryHandler makes a unary method one that receives a message and sends one.
func (s *Server) unaryHandler(h grpc.MethodHandler) grpc.StreamHandler {
	return func(impl any, stream grpc.ServerStream) error {
		reply, err := h(impl, stream.Context(), stream.RecvMsg, s.unary)
		if err != nil {
			return err
		}
		return stream.SendMsg(reply)
	}
}
