package grpcx

import "google.golang.org/grpc"

// DialOption changes how a Conn calls; see NewClient.
type DialOption func(*dialOptions)

type dialOptions struct {
	node    string
	unary   []grpc.UnaryClientInterceptor
	streams []grpc.StreamClientInterceptor
	calls   []grpc.CallOption
}

// Node makes all calls go to the named node. Without it a call goes to whatever
// node serves the method, this one first.
func Node(name string) DialOption { return func(o *dialOptions) { o.node = name } }

// WithChainUnaryInterceptor adds interceptors for unary calls. The first one is the
// outermost. The *grpc.ClientConn that they are given has the node as its target, and
// cannot be called.
func WithChainUnaryInterceptor(interceptors ...grpc.UnaryClientInterceptor) DialOption {
	return func(o *dialOptions) { o.unary = append(o.unary, interceptors...) }
}

// WithChainStreamInterceptor adds interceptors for calls that are not unary. The
// first one is the outermost. The *grpc.ClientConn that they are given has the node
// as its target, and cannot be called.
func WithChainStreamInterceptor(interceptors ...grpc.StreamClientInterceptor) DialOption {
	return func(o *dialOptions) { o.streams = append(o.streams, interceptors...) }
}

// WithDefaultCallOptions adds options for all calls; those of a call come after them.
func WithDefaultCallOptions(options ...grpc.CallOption) DialOption {
	return func(o *dialOptions) { o.calls = append(o.calls, options...) }
}
