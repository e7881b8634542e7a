package grpcx

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/rdmad/rdmad/client"
)

// Both ends must agree on how many messages there are.
func TestCardinality(t *testing.T) {
	both := &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}
	each(t, func(t *testing.T, k stack) {
		s := echoSize()
		s.duplex = func(stream testgrpc.TestService_FullDuplexCallServer) error {
			for range 2 {
				if err := stream.Send(&testgrpc.StreamingOutputCallResponse{}); err != nil {
					return err
				}
			}
			return nil
		}
		s.output = func(*testgrpc.StreamingOutputCallRequest, testgrpc.TestService_StreamingOutputCallServer) error {
			return nil
		}
		s.input = func(testgrpc.TestService_StreamingInputCallServer) error { return nil }
		cc := k.start(t, stackOptions{register: s.register})
		const service = "/grpc.testing.TestService/"

		for _, messages := range []int{0, 2} {
			stream, err := cc.NewStream(limit(t), both, service+"UnaryCall")
			if err != nil {
				t.Fatal(err)
			}
			for range messages {
				if err := stream.SendMsg(&testgrpc.SimpleRequest{}); err != nil && err != io.EOF {
					t.Error(err)
				}
			}
			if err := stream.CloseSend(); err != nil {
				t.Error(err)
			}
			want(t, stream.RecvMsg(&testgrpc.SimpleResponse{}), codes.Internal, "cardinality violation: received")
		}
		// What the call is for does not matter then: no message is none.
		for _, d := range []*grpc.StreamDesc{both, {ServerStreams: true}} {
			stream, err := cc.NewStream(limit(t), d, service+"StreamingOutputCall")
			if err != nil {
				t.Fatal(err)
			}
			if err := stream.CloseSend(); err != nil {
				t.Error(err)
			}
			want(t, stream.RecvMsg(&testgrpc.StreamingOutputCallResponse{}), codes.Internal, "cardinality violation: received no request")
		}
		err := cc.Invoke(limit(t), service+"FullDuplexCall", &testgrpc.SimpleRequest{}, &testgrpc.SimpleResponse{})
		want(t, err, codes.Internal, "cardinality violation: expected <EOF>")
		err = cc.Invoke(limit(t), service+"StreamingOutputCall", &testgrpc.SimpleRequest{}, &testgrpc.SimpleResponse{})
		want(t, err, codes.Internal, "cardinality violation: received no response")
		_, err = testgrpc.NewTestServiceClient(cc).StreamingInputCall(limit(t))
		if err != nil {
			t.Error(err)
		}
	})
}

// How many frames calls take: what they cost.
func TestFrames(t *testing.T) {
	s := echoSize()
	plain := s.unary
	s.unary = func(ctx context.Context, r *testgrpc.SimpleRequest) (*testgrpc.SimpleResponse, error) {
		if err := grpc.SendHeader(ctx, metadata.Pairs("a", "b")); err != nil {
			t.Error(err)
		}
		return plain(ctx, r)
	}
	s.output = func(_ *testgrpc.StreamingOutputCallRequest, stream testgrpc.TestService_StreamingOutputCallServer) error {
		return errors.Join(stream.Send(&testgrpc.StreamingOutputCallResponse{}), stream.Send(&testgrpc.StreamingOutputCallResponse{}))
	}
	n, conn := fake(t, stackOptions{register: s.register})
	c := testgrpc.NewTestServiceClient(conn)
	if _, err := c.UnaryCall(limit(t), &testgrpc.SimpleRequest{}); err != nil {
		t.Fatal(err)
	}
	if n.sent != 1 || n.answered != 1 {
		t.Errorf("unary: %d frames there, %d back", n.sent, n.answered)
	}
	stream, err := c.StreamingOutputCall(limit(t), &testgrpc.StreamingOutputCallRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := stream.Recv(); err != nil {
			t.Error(err)
		}
	}
	if _, err := stream.Recv(); err != io.EOF {
		t.Error(err)
	}
	if n.sent != 2 || n.answered != 4 {
		t.Errorf("and a server stream: %d frames there, %d back", n.sent, n.answered)
	}
}

// The errors of rdmad as statuses, from wherever they come.
func TestErrors(t *testing.T) {
	tests := []struct {
		cause error
		code  codes.Code
	}{
		{client.ErrNotExecuted, codes.Unavailable},
		{client.ErrMaybeExecuted, codes.Unavailable},
		{client.ErrClosed, codes.Unavailable},
		{client.ErrBackpressure, codes.ResourceExhausted},
		{client.ErrLimit, codes.ResourceExhausted},
		{&client.TooLargeError{Size: 2, Limit: 1}, codes.ResourceExhausted},
		{&client.RemoteError{Text: "panicked"}, codes.Unknown},
		{&client.RemoteError{Text: "grpcx: status 4: context deadline exceeded"}, codes.DeadlineExceeded},
		{&client.RemoteError{Text: "grpcx: status 14: "}, codes.Unavailable},
		{&client.RemoteError{Text: "grpcx: status 0: "}, codes.Unknown},
		{&client.RemoteError{Text: "grpcx: status -1: "}, codes.Unknown},
		{&client.RemoteError{Text: "grpcx: status 14"}, codes.Unknown},
		{&client.DeadlineError{Cause: context.DeadlineExceeded}, codes.DeadlineExceeded},
		{context.Canceled, codes.Canceled},
		{client.ErrInvalid, codes.Unimplemented},
		{errors.New("something else"), codes.Unknown},
	}
	for _, test := range tests {
		t.Run(test.cause.Error(), func(t *testing.T) {
			n, conn := fake(t, stackOptions{register: echoSize().register})
			c := testgrpc.NewTestServiceClient(conn)
			call := func() error {
				_, err := c.UnaryCall(limit(t), &testgrpc.SimpleRequest{})
				if test.code != codes.DeadlineExceeded && test.code != codes.Canceled && !errors.Is(err, test.cause) {
					t.Errorf("%v is not %v", err, test.cause)
				}
				return err
			}
			n.openError = func(string) error { return fmt.Errorf("wrapped: %w", test.cause) }
			want(t, call(), test.code, "")
			n.openError = nil
			n.recvError = func() error { return test.cause }
			want(t, call(), test.code, "")
		})
	}
}

func TestSendErrors(t *testing.T) {
	s := echoSize()
	s.duplex = func(stream testgrpc.TestService_FullDuplexCallServer) error {
		_, err := stream.Recv()
		return err
	}
	s.output = func(*testgrpc.StreamingOutputCallRequest, testgrpc.TestService_StreamingOutputCallServer) error {
		return nil
	}
	n, conn := fake(t, stackOptions{register: s.register})
	c := testgrpc.NewTestServiceClient(conn)
	n.sendError = func([]byte) error { return &client.TooLargeError{Size: 2, Limit: 1} }
	_, err := c.UnaryCall(limit(t), &testgrpc.SimpleRequest{})
	want(t, err, codes.ResourceExhausted, "")
	n.sendError = nil
	stream, err := c.FullDuplexCall(limit(t))
	if err != nil {
		t.Fatal(err)
	}
	// Another error of Send only says that the stream has ended; Recv says how.
	n.sendError = func([]byte) error { return errFakeOver }
	n.recvError = func() error { return client.ErrMaybeExecuted }
	if err := stream.Send(&testgrpc.StreamingOutputCallRequest{}); err != io.EOF {
		t.Error(err)
	}
	_, err = stream.Recv()
	want(t, err, codes.Unavailable, "")

	// What is received before the first message is sent waits for that.
	n.sendError, n.recvError = nil, nil
	output, err := conn.NewStream(limit(t), &grpc.StreamDesc{ServerStreams: true}, "/grpc.testing.TestService/StreamingOutputCall")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error)
	go func() { done <- output.RecvMsg(&testgrpc.StreamingOutputCallResponse{}) }()
	if err := output.SendMsg(&testgrpc.StreamingOutputCallRequest{}); err != nil {
		t.Error(err)
	}
	if err := <-done; err != io.EOF {
		t.Error(err)
	}
	output, err = conn.NewStream(limit(t), &grpc.StreamDesc{ServerStreams: true}, "/grpc.testing.TestService/StreamingOutputCall", grpc.MaxCallSendMsgSize(1))
	if err != nil {
		t.Fatal(err)
	}
	want(t, output.SendMsg(&testgrpc.StreamingOutputCallRequest{Payload: payload(7)}), codes.ResourceExhausted, "")
	want(t, output.RecvMsg(&testgrpc.StreamingOutputCallResponse{}), codes.ResourceExhausted, "")
	ended, cancel := context.WithCancel(context.Background())
	output, err = conn.NewStream(ended, &grpc.StreamDesc{ServerStreams: true}, "/grpc.testing.TestService/StreamingOutputCall")
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	want(t, output.RecvMsg(&testgrpc.StreamingOutputCallResponse{}), codes.Canceled, "")
	_ = output.CloseSend()
	want(t, output.SendMsg(&testgrpc.StreamingOutputCallRequest{}), codes.Internal, "after CloseSend")
}

// What was not executed is tried once more; what may have been is not.
func TestRetry(t *testing.T) {
	for _, test := range []struct {
		name     string
		failures int
		cause    error
		attempts int
		code     codes.Code
		wait     bool
	}{
		{"once", 1, client.ErrNotExecuted, 2, codes.OK, false},
		{"twice", 2, client.ErrNotExecuted, 2, codes.Unavailable, false},
		{"maybe", 1, client.ErrMaybeExecuted, 1, codes.Unavailable, false},
		{"maybe, waiting for ready", 1, client.ErrMaybeExecuted, 1, codes.Unavailable, true},
	} {
		for _, at := range []string{"open", "receive"} {
			t.Run(test.name+" "+at, func(t *testing.T) {
				n, conn := fake(t, stackOptions{register: echoSize().register})
				attempts, failed := 0, 0
				fail := func(here bool) error {
					if here && failed < test.failures {
						failed++
						return test.cause
					}
					return nil
				}
				n.openError = func(string) error {
					attempts++
					return fail(at == "open")
				}
				n.recvError = func() error { return fail(at == "receive") }
				finished := 0
				_, err := testgrpc.NewTestServiceClient(conn).UnaryCall(limit(t), &testgrpc.SimpleRequest{}, grpc.WaitForReady(test.wait), grpc.OnFinish(func(error) { finished++ }))
				if status.Code(err) != test.code || attempts != test.attempts || finished != 1 {
					t.Errorf("%v after %d attempts, finished %d times", err, attempts, finished)
				}
			})
		}
	}
}

func TestAbsence(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	n := newFakeNet(ctx)
	conn, err := newConn(n, dialOptions{})
	if err != nil {
		t.Fatal(err)
	}
	c := testgrpc.NewTestServiceClient(conn)
	call := func(opts ...grpc.CallOption) error {
		_, err := c.UnaryCall(limit(t), &testgrpc.SimpleRequest{}, opts...)
		return err
	}
	want(t, call(), codes.Unavailable, "no such service")
	h := func(incoming) error { return nil }
	_ = n.handle("other", "m", h)
	want(t, call(), codes.Unimplemented, "unknown service grpc.testing.TestService")
	_ = n.handle("grpc.testing.TestService", "EmptyCall", h)
	want(t, call(), codes.Unimplemented, "unknown method UnaryCall for service grpc.testing.TestService")
	want(t, call(grpc.WaitForReady(true)), codes.Unimplemented, "unknown method")

	// A method that is there, and no way to it, is not unknown.
	_ = n.handle("grpc.testing.TestService", "UnaryCall", h)
	n.openError = func(string) error { return fmt.Errorf("%w: no lane", client.ErrNoService) }
	want(t, call(), codes.Unavailable, "no lane")
	n.openError = nil
	delete(n.handlers, "grpc.testing.TestService/UnaryCall")

	// A service that was there and is gone may come back.
	conn.seen.add("grpc.testing.TestService", "UnaryCall")
	delete(n.handlers, "grpc.testing.TestService/EmptyCall")
	want(t, call(), codes.Unavailable, "no such service")

	// WaitForReady waits for it.
	short, stop := context.WithTimeout(ctx, 30*time.Millisecond)
	defer stop()
	_, err = c.UnaryCall(short, &testgrpc.SimpleRequest{}, grpc.WaitForReady(true))
	want(t, err, codes.DeadlineExceeded, "")
	looked := make(chan struct{}, 1000)
	n.openError = func(string) error { looked <- struct{}{}; return nil }
	done := make(chan error)
	go func() { done <- call(grpc.WaitForReady(true)) }()
	<-looked
	srv := newServer(n, nil, nil)
	echoSize().register(srv)
	if err := <-done; err != nil {
		t.Error(err)
	}
	if err := n.quiet(); err != nil {
		t.Error(err)
	}
}

// A call that has waited for a service gives its process the time to register all methods, too. The time is that of a bubble:
// what the machine does between two looks does not count.
func TestWaitedForService(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newFakeNet(t.Context())
		conn, err := newConn(n, dialOptions{})
		if err != nil {
			t.Fatal(err)
		}
		all := newFakeNet(t.Context())
		echoSize().register(newServer(all, nil, nil))
		begin, looks := time.Now(), 0
		n.openError = func(target string) error {
			if time.Since(begin) < 2*registering {
				return nil
			}
			n.handlers["grpc.testing.TestService/EmptyCall"] = all.handlers["grpc.testing.TestService/EmptyCall"]
			if looks++; looks == 3 {
				n.handlers[target] = all.handlers[target]
			}
			return nil
		}
		if _, err := testgrpc.NewTestServiceClient(conn).UnaryCall(limit(t), &testgrpc.SimpleRequest{}, grpc.WaitForReady(true)); err != nil {
			t.Errorf("%v after %d looks at a service that has not all its methods", err, looks)
		}
		if err := n.quiet(); err != nil {
			t.Error(err)
		}
	})
}

// Calls keep nothing for each other that has to do with time: a program may make some in bubbles of testing/synctest, and others not.
func TestCallsInBubbles(t *testing.T) {
	call := func(t *testing.T) {
		n, conn := fake(t, stackOptions{register: echoSize().register})
		if _, err := testgrpc.NewTestServiceClient(conn).UnaryCall(limit(t), &testgrpc.SimpleRequest{}); err != nil {
			t.Error(err)
		}
		if err := n.quiet(); err != nil {
			t.Error(err)
		}
	}
	for range 5 {
		synctest.Test(t, call)
		call(t)
	}
}

func TestNames(t *testing.T) {
	_, conn := fake(t, stackOptions{register: echoSize().register})
	for method, text := range map[string]string{
		"s/m":                                "malformed method name",
		"/s":                                 "malformed method name",
		"":                                   "malformed method name",
		"/a/b/m":                             "only letters",
		"//m":                                "1 to 63 bytes",
		"/s/":                                "1 to 63 bytes",
		"/" + strings.Repeat("s", 64) + "/m": "1 to 63 bytes",
	} {
		err := conn.Invoke(limit(t), method, &testgrpc.Empty{}, &testgrpc.Empty{})
		want(t, err, codes.Unimplemented, text)
	}
	if err := conn.Close(); err != nil {
		t.Error(err)
	}
	err := conn.Invoke(limit(t), "/s/m", &testgrpc.Empty{}, &testgrpc.Empty{})
	want(t, err, codes.Canceled, "closed")
}

// Who receives hears why the stream could not be begun as soon as that is certain, and not only when who
// has sent the first message has ended the call.
func TestReceiverOfUnopenedStream(t *testing.T) {
	n, conn := fake(t, stackOptions{register: func(grpc.ServiceRegistrar) {}})
	n.openError = func(string) error { return fmt.Errorf("%w: no", client.ErrLimit) }
	desc := &grpc.StreamDesc{StreamName: "UnaryCall", ServerStreams: true}
	stream, err := conn.NewStream(limit(t), desc, "/grpc.testing.TestService/UnaryCall")
	if err != nil {
		t.Fatal(err)
	}
	want(t, stream.(*clientStream).open(nil), codes.ResourceExhausted, "no") // as SendMsg does first
	want(t, stream.RecvMsg(&testgrpc.SimpleResponse{}), codes.ResourceExhausted, "no")
}
