package grpcx

import (
	"fmt"

	"google.golang.org/grpc"

	"github.com/rdmad/rdmad/client"
)

// DialOption changes how a Conn calls; see Dial and NewClient.
type DialOption func(*dialOptions)

type dialOptions struct {
	node    string
	unary   []grpc.UnaryClientInterceptor
	streams []grpc.StreamClientInterceptor
	calls   []grpc.CallOption
	attach  []client.Option
}

func readDialOptions(opts []DialOption) (o dialOptions, err error) {
	for _, f := range opts {
		f(&o)
	}
	if o.node == "" {
		return o, nil
	}
	if err := checkName("node", o.node); err != nil {
		return o, fmt.Errorf("grpcx: %w: %w", client.ErrInvalid, err)
	}
	return o, nil
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

// AttachOptions are the options of the attachments that a Conn of Dial makes. NewClient, which is given one, refuses them.
func AttachOptions(options ...client.Option) DialOption {
	return func(o *dialOptions) { o.attach = append(o.attach, options...) }
}
