package grpcx

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/interop"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"
)

// stack is a way to run gRPC: what the suites run over.
type stack struct {
	name string
	// start serves what register registers and returns a connection to it.
	start func(t *testing.T, o stackOptions) grpc.ClientConnInterface
}

// stackOptions are options that both grpc-go and this package have.
type stackOptions struct {
	register func(grpc.ServiceRegistrar)

	unaryServer  []grpc.UnaryServerInterceptor
	streamServer []grpc.StreamServerInterceptor
	unaryClient  []grpc.UnaryClientInterceptor
	streamClient []grpc.StreamClientInterceptor
	maxRecv      int // of the server, as maxSend
	maxSend      int
}

// stacks are plain grpc-go, which shows that the suites expect the right things, this
// package on streams in memory, and this package on two nodes.
var stacks = []stack{{"grpc-go", startTCP}, {"memory", startFake}, {"rdmad", startNodes}}

func each(t *testing.T, f func(t *testing.T, s stack)) {
	for _, s := range stacks {
		t.Run(s.name, func(t *testing.T) { f(t, s) })
	}
}

func startTCP(t *testing.T, o stackOptions) grpc.ClientConnInterface {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	opts := []grpc.ServerOption{grpc.ChainUnaryInterceptor(o.unaryServer...), grpc.ChainStreamInterceptor(o.streamServer...)}
	if o.maxRecv > 0 {
		opts = append(opts, grpc.MaxRecvMsgSize(o.maxRecv))
	}
	if o.maxSend > 0 {
		opts = append(opts, grpc.MaxSendMsgSize(o.maxSend))
	}
	srv := grpc.NewServer(opts...)
	o.register(srv)
	done := make(chan error, 1)
	go func() { done <- srv.Serve(l) }()
	t.Cleanup(func() {
		srv.Stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	cc, err := grpc.NewClient(l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithChainUnaryInterceptor(o.unaryClient...), grpc.WithChainStreamInterceptor(o.streamClient...))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cc.Close() })
	return cc
}

func (o *stackOptions) server() []ServerOption {
	opts := []ServerOption{ChainUnaryInterceptor(o.unaryServer...), ChainStreamInterceptor(o.streamServer...)}
	if o.maxRecv > 0 {
		opts = append(opts, MaxRecvMsgSize(o.maxRecv))
	}
	if o.maxSend > 0 {
		opts = append(opts, MaxSendMsgSize(o.maxSend))
	}
	return opts
}

func (o *stackOptions) dial() dialOptions {
	var d dialOptions
	WithChainUnaryInterceptor(o.unaryClient...)(&d)
	WithChainStreamInterceptor(o.streamClient...)(&d)
	return d
}

func startFake(t *testing.T, o stackOptions) grpc.ClientConnInterface {
	_, cc := fake(t, o)
	return cc
}

// fake serves over streams in memory.
func fake(t *testing.T, o stackOptions) (*fakeNet, *Conn) {
	ctx, cancel := context.WithCancel(context.Background())
	n := newFakeNet(ctx)
	n.close = cancel
	srv := newServer(n, nil, o.server())
	o.register(srv)
	if err := srv.Err(); err != nil {
		t.Fatal(err)
	}
	cc, err := newConn(n, o.dial())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		// Handlers end because of what the test did, not because of the clean-up.
		if err := n.quiet(); err != nil {
			t.Error(err)
		}
		cancel()
		_ = cc.Close()
	})
	return n, cc
}

func registerInterop(r grpc.ServiceRegistrar) {
	testgrpc.RegisterTestServiceServer(r, interop.NewTestServer())
}

// limit is a context that ends before a test that hangs would be noticed otherwise.
func limit(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// The interop tests of grpc-go, unchanged.
func TestInterop(t *testing.T) {
	type run = func(context.Context, testgrpc.TestServiceClient, ...grpc.CallOption)
	tests := []struct {
		name string
		run  run
	}{
		{"EmptyUnary", interop.DoEmptyUnaryCall},
		{"LargeUnary", interop.DoLargeUnaryCall},
		{"ClientStreaming", interop.DoClientStreaming},
		{"ServerStreaming", interop.DoServerStreaming},
		{"PingPong", interop.DoPingPong},
		{"EmptyStream", interop.DoEmptyStream},
		{"TimeoutOnSleepingServer", interop.DoTimeoutOnSleepingServer},
		{"CancelAfterBegin", interop.DoCancelAfterBegin},
		{"CancelAfterFirstResponse", interop.DoCancelAfterFirstResponse},
		{"CustomMetadata", interop.DoCustomMetadata},
		{"StatusCodeAndMessage", interop.DoStatusCodeAndMessage},
		{"SpecialStatusMessage", interop.DoSpecialStatusMessage},
	}
	each(t, func(t *testing.T, s stack) {
		cc := s.start(t, stackOptions{register: registerInterop})
		for _, test := range tests {
			t.Run(test.name, func(t *testing.T) {
				failsHere(t, func() { test.run(limit(t), testgrpc.NewTestServiceClient(cc)) })
			})
		}
		t.Run("UnimplementedService", func(t *testing.T) {
			failsHere(t, func() { interop.DoUnimplementedService(limit(t), testgrpc.NewUnimplementedServiceClient(cc)) })
		})
		// Of interop.DoUnimplementedMethod, which wants a *grpc.ClientConn.
		t.Run("UnimplementedMethod", func(t *testing.T) {
			err := cc.Invoke(limit(t), "/grpc.testing.TestService/UnimplementedCall", nil, nil)
			if status.Code(err) != codes.Unimplemented {
				t.Fatal(err)
			}
			// This one the service declares, and does not implement.
			_, err = testgrpc.NewTestServiceClient(cc).UnimplementedCall(limit(t), nil)
			if status.Code(err) != codes.Unimplemented {
				t.Fatal(err)
			}
		})
	})
}

// Many calls at once, of which some are given up.
func TestAtOnce(t *testing.T) {
	each(t, func(t *testing.T, k stack) {
		c := testgrpc.NewTestServiceClient(k.start(t, stackOptions{register: registerInterop}))
		failures := make(chan any, 6)
		var wg sync.WaitGroup
		for range cap(failures) {
			wg.Go(func() {
				defer func() {
					if p := recover(); p != nil {
						failures <- p
					}
				}()
				for range 10 {
					interop.DoCancelAfterFirstResponse(limit(t), c)
					interop.DoLargeUnaryCall(limit(t), c)
					interop.DoPingPong(limit(t), c)
				}
			})
		}
		wg.Wait()
		close(failures)
		for p := range failures {
			t.Error(p)
		}
	})
}
