package grpcx

import (
	"context"
	"fmt"
	"io"
	"reflect"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// journal records what interceptors do, in order.
type journal struct {
	mu    sync.Mutex
	lines []string
}

func (j *journal) add(format string, args ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines = append(j.lines, fmt.Sprintf(format, args...))
}

func (j *journal) take() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	lines := j.lines
	j.lines = nil
	return lines
}

func (j *journal) options() stackOptions {
	var o stackOptions
	for i := range 3 {
		o.unaryClient = append(o.unaryClient, func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, next grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			j.add("client %d %s %v", i, method, cc != nil && cc.Target() != "")
			ctx = metadata.AppendToOutgoingContext(ctx, "by", fmt.Sprint(i))
			err := next(ctx, method, req, reply, cc, opts...)
			j.add("client %d %v", i, status.Code(err))
			return err
		})
		o.streamClient = append(o.streamClient, func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, next grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
			j.add("client %d %s %v", i, method, desc.ClientStreams)
			return next(metadata.AppendToOutgoingContext(ctx, "by", fmt.Sprint(i)), desc, cc, method, opts...)
		})
		o.unaryServer = append(o.unaryServer, func(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
			j.add("server %d %s", i, info.FullMethod)
			resp, err := next(ctx, req)
			j.add("server %d %v", i, status.Code(err))
			if i == 1 && err == nil {
				err = status.Error(codes.PermissionDenied, "by an interceptor")
			}
			return resp, err
		})
		o.streamServer = append(o.streamServer, func(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
			j.add("server %d %s %v %v", i, info.FullMethod, info.IsClientStream, info.IsServerStream)
			err := next(srv, ss)
			j.add("server %d %v", i, status.Code(err))
			return err
		})
	}
	return o
}

func TestInterceptors(t *testing.T) {
	each(t, func(t *testing.T, k stack) {
		j := new(journal)
		s := &scripted{
			unary: func(ctx context.Context, _ *testgrpc.SimpleRequest) (*testgrpc.SimpleResponse, error) {
				md, _ := metadata.FromIncomingContext(ctx)
				j.add("handler %q", md["by"])
				return &testgrpc.SimpleResponse{}, nil
			},
			duplex: func(stream testgrpc.TestService_FullDuplexCallServer) error {
				md, _ := metadata.FromIncomingContext(stream.Context())
				j.add("handler %q", md["by"])
				return nil
			},
		}
		c := s.client(t, k, j.options())
		_, err := c.UnaryCall(limit(t), &testgrpc.SimpleRequest{})
		want(t, err, codes.PermissionDenied, "by an interceptor")
		const unary, duplex = "/grpc.testing.TestService/UnaryCall", "/grpc.testing.TestService/FullDuplexCall"
		expect := []string{"client 0 " + unary + " true", "client 1 " + unary + " true", "client 2 " + unary + " true",
			"server 0 " + unary, "server 1 " + unary, "server 2 " + unary, `handler ["0" "1" "2"]`,
			"server 2 OK", "server 1 OK", "server 0 PermissionDenied",
			"client 2 PermissionDenied", "client 1 PermissionDenied", "client 0 PermissionDenied"}
		if got := j.take(); !reflect.DeepEqual(got, expect) {
			t.Errorf("%q, want %q", got, expect)
		}

		stream, err := c.FullDuplexCall(limit(t))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := stream.Recv(); err != io.EOF {
			t.Error(err)
		}
		expect = []string{"client 0 " + duplex + " true", "client 1 " + duplex + " true", "client 2 " + duplex + " true",
			"server 0 " + duplex + " true true", "server 1 " + duplex + " true true", "server 2 " + duplex + " true true",
			`handler ["0" "1" "2"]`, "server 2 OK", "server 1 OK", "server 0 OK"}
		if got := j.take(); !reflect.DeepEqual(got, expect) {
			t.Errorf("%q, want %q", got, expect)
		}
	})
}

// The connection that interceptors see has a name and cannot be called.
func TestShownConnection(t *testing.T) {
	var shown *grpc.ClientConn
	o := dialOptions{node: "b"}
	WithChainUnaryInterceptor(func(ctx context.Context, _ string, _, _ any, cc *grpc.ClientConn, _ grpc.UnaryInvoker, _ ...grpc.CallOption) error {
		shown = cc
		return cc.Invoke(ctx, "/s/m", &testgrpc.Empty{}, &testgrpc.Empty{})
	})(&o)
	c, err := newConn(newFakeNet(t.Context()), o)
	if err != nil {
		t.Fatal(err)
	}
	err = c.Invoke(limit(t), "/s/m", &testgrpc.Empty{}, &testgrpc.Empty{})
	want(t, err, codes.Unavailable, "call the invoker")
	if shown.Target() != "passthrough:///b" {
		t.Error(shown.Target())
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}
