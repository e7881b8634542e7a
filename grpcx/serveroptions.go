package grpcx

import (
	"math"

	"google.golang.org/grpc"
)

// ServerOption changes how a Server serves; see NewServer.
type ServerOption func(*serverOptions)

type serverOptions struct {
	unary   []grpc.UnaryServerInterceptor
	streams []grpc.StreamServerInterceptor
	maxRecv int
	maxSend int
	calls   int
}

func defaultServerOptions() serverOptions {
	return serverOptions{maxRecv: defaultMaxRecv, maxSend: math.MaxInt32, calls: DefaultMaxConcurrentStreams}
}

// DefaultMaxConcurrentStreams is how many calls a Server runs at once if nothing else
// is said.
const DefaultMaxConcurrentStreams = 1000

// ChainUnaryInterceptor adds interceptors for unary calls. The first one is the
// outermost.
func ChainUnaryInterceptor(interceptors ...grpc.UnaryServerInterceptor) ServerOption {
	return func(o *serverOptions) { o.unary = append(o.unary, interceptors...) }
}

// ChainStreamInterceptor adds interceptors for calls that are not unary. The first
// one is the outermost.
func ChainStreamInterceptor(interceptors ...grpc.StreamServerInterceptor) ServerOption {
	return func(o *serverOptions) { o.streams = append(o.streams, interceptors...) }
}

// MaxRecvMsgSize sets the largest message in bytes that handlers receive; the default
// is 4 MiB. A larger one ends the call with codes.ResourceExhausted.
func MaxRecvMsgSize(n int) ServerOption { return func(o *serverOptions) { o.maxRecv = n } }

// MaxSendMsgSize sets the largest message in bytes that handlers send; the default is
// math.MaxInt32, but rdmad's streams take no more than 1 GiB.
func MaxSendMsgSize(n int) ServerOption { return func(o *serverOptions) { o.maxSend = n } }

// MaxConcurrentStreams sets how many calls, unary ones included, run at once in all
// of the Server; the default is DefaultMaxConcurrentStreams. One too many ends with
// codes.ResourceExhausted: its handler was not called.
func MaxConcurrentStreams(n int) ServerOption {
	return func(o *serverOptions) { o.calls = max(n, 1) }
}
