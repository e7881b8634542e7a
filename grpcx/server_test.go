package grpcx

import (
	"context"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/rdmad/rdmad/internal/daemontest"
	"github.com/rdmad/rdmad/server"
)

// fakeServer serves with options of this package only.
func fakeServer(t *testing.T, s *scripted, opts ...ServerOption) (*Server, testgrpc.TestServiceClient) {
	n, conn := fake(t, stackOptions{register: func(grpc.ServiceRegistrar) {}})
	srv := newServer(n, func(context.Context) error { return errors.New("served") }, opts)
	s.register(srv)
	if err := srv.Err(); err != nil {
		t.Fatal(err)
	}
	return srv, testgrpc.NewTestServiceClient(conn)
}

// waiter has calls that wait until they are told to end.
func waiter() (s *scripted, entered, leave chan struct{}) {
	s, entered, leave = echoSize(), make(chan struct{}, 10), make(chan struct{})
	s.duplex = func(testgrpc.TestService_FullDuplexCallServer) error {
		entered <- struct{}{}
		<-leave
		return nil
	}
	return s, entered, leave
}

func TestMaxConcurrentStreams(t *testing.T) {
	s, entered, leave := waiter()
	_, c := fakeServer(t, s, MaxConcurrentStreams(2))
	var streams []testgrpc.TestService_FullDuplexCallClient
	for range 2 {
		stream, err := c.FullDuplexCall(limit(t))
		if err != nil {
			t.Fatal(err)
		}
		<-entered
		streams = append(streams, stream)
	}
	_, err := c.UnaryCall(limit(t), &testgrpc.SimpleRequest{})
	want(t, err, codes.ResourceExhausted, "runs 2 calls already")
	close(leave)
	for _, stream := range streams {
		if _, err := stream.Recv(); err != io.EOF {
			t.Error(err)
		}
	}
	// Calls have left when their status was sent, or a moment later.
	daemontest.Eventually(t, "there is room for another call", func() error {
		_, err := c.UnaryCall(limit(t), &testgrpc.SimpleRequest{})
		return err
	})
}

func TestGracefulStop(t *testing.T) {
	s, entered, leave := waiter()
	srv, c := fakeServer(t, s)
	stream, err := c.FullDuplexCall(limit(t))
	if err != nil {
		t.Fatal(err)
	}
	<-entered
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	if err := srv.GracefulStop(ended); err != context.Canceled {
		t.Error(err)
	}
	_, err = c.UnaryCall(limit(t), &testgrpc.SimpleRequest{})
	want(t, err, codes.Unavailable, "stopping")
	stopped := make(chan error)
	go func() { stopped <- srv.GracefulStop(limit(t)) }()
	select {
	case <-stopped:
		t.Error("stopped although a call runs")
	default:
	}
	close(leave)
	if err := <-stopped; err != nil {
		t.Error(err)
	}
	if _, err := stream.Recv(); err != io.EOF {
		t.Error(err)
	}
	idle := newServer(newFakeNet(t.Context()), nil, nil)
	if err := errors.Join(srv.GracefulStop(limit(t)), idle.GracefulStop(limit(t))); err != nil {
		t.Error(err)
	}
}

// A call that had begun when other processes took over has nobody else: it is done, and not refused.
func TestCallBesideGracefulStop(t *testing.T) {
	srv, c := fakeServer(t, echoSize())
	srv.host.(*fakeNet).withdrawn = true
	for range 2 {
		if err := srv.GracefulStop(limit(t)); err != nil {
			t.Fatal(err)
		}
		if _, err := c.UnaryCall(limit(t), &testgrpc.SimpleRequest{}); err != nil {
			t.Error(err)
		}
	}
}

// What handlers have sent and slow readers have no room for is waited for, too: a server that is closed loses it.
func TestGracefulStopBesideSlowReader(t *testing.T) {
	a, b := daemontest.Pair(t, "")
	const messages, size = 3, 150 << 10 // more than the reader's window, and less than with the handler's
	returned := make(chan struct{})
	s := &scripted{output: func(_ *testgrpc.StreamingOutputCallRequest, stream testgrpc.TestService_StreamingOutputCallServer) error {
		defer close(returned)
		for range messages {
			if err := stream.Send(&testgrpc.StreamingOutputCallResponse{Payload: payload(size)}); err != nil {
				return err
			}
		}
		return nil
	}}
	srv := serveOn(t, b, s.register)
	c := testgrpc.NewTestServiceClient(dialFrom(t, a, dialOptions{node: "b"}))
	stream, err := c.StreamingOutputCall(limit(t), &testgrpc.StreamingOutputCallRequest{}, grpc.WaitForReady(true))
	if err != nil {
		t.Fatal(err)
	}
	<-returned
	hasty, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if err := srv.GracefulStop(hasty); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("stopped while a reader has not received everything: %v", err)
	}
	stopped := make(chan error)
	go func() { stopped <- srv.GracefulStop(limit(t)) }()
	for range messages {
		if r, err := stream.Recv(); err != nil || len(r.Payload.Body) != size {
			t.Fatal(err)
		}
	}
	if _, err := stream.Recv(); err != io.EOF {
		t.Error(err)
	}
	if err := <-stopped; err != nil {
		t.Error(err)
	}
}

// What handlers make of the end of their contexts when the server is closed is not what callers see.
func TestClosedWhileHandlersRun(t *testing.T) {
	for _, returned := range []error{status.Error(codes.Internal, "the database is closed"), errors.New("no more"), context.Canceled} {
		n, conn := fake(t, stackOptions{register: func(grpc.ServiceRegistrar) {}})
		entered := make(chan struct{})
		s := &scripted{duplex: func(stream testgrpc.TestService_FullDuplexCallServer) error {
			close(entered)
			<-stream.Context().Done()
			return returned
		}}
		s.register(newServer(n, nil, nil))
		stream, err := testgrpc.NewTestServiceClient(conn).FullDuplexCall(limit(t))
		if err != nil {
			t.Fatal(err)
		}
		<-entered
		n.close()
		_, err = stream.Recv()
		want(t, err, codes.Unavailable, stoppedText)
	}
}

// An answer that cannot be sent for its size ends the call with a status that says so, the first message of
// a stream and the answer of a unary call as well.
func TestAnswerBeyondAllLimits(t *testing.T) {
	n, conn := fake(t, stackOptions{register: func(grpc.ServiceRegistrar) {}})
	n.answerError = func(msg []byte) error {
		if len(msg) > 1000 { // instead of 1 GiB
			return fmt.Errorf("server: %w: %d bytes", server.ErrTooLarge, len(msg))
		}
		return nil
	}
	s := &scripted{
		unary: func(context.Context, *testgrpc.SimpleRequest) (*testgrpc.SimpleResponse, error) {
			return &testgrpc.SimpleResponse{Payload: payload(2000)}, nil
		},
		output: func(_ *testgrpc.StreamingOutputCallRequest, stream testgrpc.TestService_StreamingOutputCallServer) error {
			return stream.Send(&testgrpc.StreamingOutputCallResponse{Payload: payload(2000)})
		},
	}
	s.register(newServer(n, nil, nil))
	c := testgrpc.NewTestServiceClient(conn)
	_, err := c.UnaryCall(limit(t), &testgrpc.SimpleRequest{})
	want(t, err, codes.ResourceExhausted, "message too large")
	stream, err := c.StreamingOutputCall(limit(t), &testgrpc.StreamingOutputCallRequest{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = stream.Recv()
	want(t, err, codes.ResourceExhausted, "message too large")
}

func TestRegister(t *testing.T) {
	n := newFakeNet(t.Context())
	srv := newServer(n, func(context.Context) error { return nil }, nil)
	desc := testgrpc.TestService_ServiceDesc
	srv.RegisterService(&desc, echoSize())
	if err := srv.Err(); err != nil || len(n.handlers) != 8 {
		t.Fatal(err, len(n.handlers))
	}
	if err := srv.Serve(t.Context()); err != nil {
		t.Error(err)
	}
	info := srv.GetServiceInfo()["grpc.testing.TestService"]
	if len(info.Methods) != 8 || !reflect.DeepEqual(info.Metadata, desc.Metadata) {
		t.Error(info)
	}
	for _, m := range info.Methods {
		if m.Name == "FullDuplexCall" && (!m.IsClientStream || !m.IsServerStream) || m.Name == "UnaryCall" && (m.IsClientStream || m.IsServerStream) {
			t.Error(m)
		}
	}

	long, odd := desc, desc
	long.ServiceName = strings.Repeat("s", 64)
	odd.ServiceName = "odd"
	odd.Methods = []grpc.MethodDesc{{MethodName: "no name"}}
	for text, register := range map[string]func(*Server){
		"registered before": func(s *Server) { s.RegisterService(&desc, echoSize()) },
		"is not a":          func(s *Server) { s.RegisterService(&desc, 7) },
		"1 to 63 bytes":     func(s *Server) { s.RegisterService(&long, echoSize()) },
		"only letters":      func(s *Server) { s.RegisterService(&odd, echoSize()) },
	} {
		srv := newServer(newFakeNet(t.Context()), func(context.Context) error { return nil }, nil)
		srv.RegisterService(&desc, nil)
		register(srv)
		err := srv.Serve(t.Context())
		if err == nil || !strings.Contains(err.Error(), text) || srv.Err() == nil {
			t.Errorf("%v, want %q", err, text)
		}
		if text != "is not a" && !errors.Is(err, server.ErrInvalid) {
			t.Error(err)
		}
	}
}

// A handler that goes on sending after its end gets an error, and harms nobody.
func TestLateSends(t *testing.T) {
	var kept testgrpc.TestService_FullDuplexCallServer
	s := &scripted{duplex: func(stream testgrpc.TestService_FullDuplexCallServer) error {
		kept = stream
		return nil
	}}
	_, c := fakeServer(t, s)
	stream, err := c.FullDuplexCall(limit(t))
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := stream.Recv(); err != io.EOF {
			t.Error(err)
		}
	}
	want(t, kept.Send(&testgrpc.StreamingOutputCallResponse{}), codes.Internal, "has ended")
	want(t, kept.SendHeader(nil), codes.Internal, "")
}

// A handler can send while it receives.
func TestBothWays(t *testing.T) {
	const messages = 200
	each(t, func(t *testing.T, k stack) {
		s := &scripted{duplex: func(stream testgrpc.TestService_FullDuplexCallServer) error {
			sent := make(chan error)
			go func() {
				var err error
				for i := 0; i < messages && err == nil; i++ {
					err = stream.Send(&testgrpc.StreamingOutputCallResponse{Payload: payload(i)})
				}
				sent <- err
			}()
			for i := range messages {
				if r, err := stream.Recv(); err != nil || len(r.Payload.Body) != i {
					t.Error(i, err)
					break
				}
			}
			return <-sent
		}}
		stream, err := s.client(t, k, stackOptions{}).FullDuplexCall(limit(t))
		if err != nil {
			t.Fatal(err)
		}
		received := make(chan struct{})
		go func() {
			defer close(received)
			for i := range messages {
				if r, err := stream.Recv(); err != nil || len(r.Payload.Body) != i {
					t.Error(i, err)
					return
				}
			}
			if _, err := stream.Recv(); err != io.EOF {
				t.Error(err)
			}
		}()
		for i := range messages {
			if err := stream.Send(&testgrpc.StreamingOutputCallRequest{Payload: payload(i)}); err != nil {
				t.Error(err)
			}
		}
		<-received
	})
}

// A refusal reaches the caller however much of its message is not sent when it comes.
func TestRefusalOfLargeMessage(t *testing.T) {
	a, b := daemontest.Pair(t, "")
	s, entered, leave := waiter()
	srv := serveOn(t, b, s.register, MaxConcurrentStreams(1))
	c := testgrpc.NewTestServiceClient(dialFrom(t, a, dialOptions{node: "b"}))
	stream, err := c.FullDuplexCall(limit(t), grpc.WaitForReady(true))
	if err != nil {
		t.Fatal(err)
	}
	<-entered
	sizes := []int{100, 200 << 10, 1 << 20}
	for _, n := range sizes {
		_, err = c.UnaryCall(limit(t), &testgrpc.SimpleRequest{Payload: payload(n)})
		want(t, err, codes.ResourceExhausted, "runs 1 calls already")
	}
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	if err := srv.GracefulStop(ended); err != context.Canceled {
		t.Error(err)
	}
	for _, n := range sizes {
		_, err = c.UnaryCall(limit(t), &testgrpc.SimpleRequest{Payload: payload(n)})
		want(t, err, codes.Unavailable, "")
	}
	close(leave)
	if _, err := stream.Recv(); err != io.EOF {
		t.Error(err)
	}
}

// A message for which the handler's process has no room is refused, and nobody has cancelled anything.
func TestNoRoomForLargeMessage(t *testing.T) {
	a, b := daemontest.Pair(t, "")
	rdma, err := server.Attach(t.Context(), b.Socket, server.LargeMessages(1<<20))
	if err != nil {
		t.Fatal(err)
	}
	srv := NewServer(rdma)
	s := echoSize()
	seen := make(chan error, 1)
	s.input = func(stream testgrpc.TestService_StreamingInputCallServer) error {
		for {
			if _, err := stream.Recv(); err != nil {
				seen <- err
				return err
			}
		}
	}
	s.register(srv)
	served := make(chan error, 1)
	go func() { served <- srv.Serve(context.Background()) }()
	defer func() {
		if err := rdma.Close(); err != nil {
			t.Error(err)
		}
		<-served
	}()
	c := testgrpc.NewTestServiceClient(dialFrom(t, a, dialOptions{node: "b"}))
	_, err = c.UnaryCall(limit(t), &testgrpc.SimpleRequest{Payload: payload(2 << 20)})
	want(t, err, codes.ResourceExhausted, "")
	stream, err := c.StreamingInputCall(limit(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range []int{10, 2 << 20} {
		// The second may be refused before all of it is sent.
		if err := stream.Send(&testgrpc.StreamingInputCallRequest{Payload: payload(n)}); err != nil && err != io.EOF {
			t.Error(err)
		}
	}
	want(t, <-seen, codes.ResourceExhausted, "")
	_, err = stream.CloseAndRecv()
	want(t, err, codes.ResourceExhausted, "")
}

// While one of two processes stops, the other one answers.
func TestGracefulStopBesideAnother(t *testing.T) {
	a, b := daemontest.Pair(t, "")
	slow, entered, leave := waiter()
	one := serveOn(t, b, slow.register)
	c := testgrpc.NewTestServiceClient(dialFrom(t, a, dialOptions{node: "b"}))
	stream, err := c.FullDuplexCall(limit(t), grpc.WaitForReady(true))
	if err != nil {
		t.Fatal(err)
	}
	<-entered
	serveOn(t, b, echoSize().register)
	const callers, calls = 4, 100
	outcomes := make(chan error, callers*calls)
	for range callers {
		go func() {
			for range calls {
				_, err := c.UnaryCall(limit(t), &testgrpc.SimpleRequest{})
				outcomes <- err
			}
		}()
	}
	<-outcomes // they are under way
	stopped := make(chan error, 1)
	go func() { stopped <- one.GracefulStop(limit(t)) }()
	for range callers*calls - 1 {
		if err := <-outcomes; err != nil {
			t.Errorf("although another process serves it: %v", err)
		}
	}
	close(leave)
	if _, err := stream.Recv(); err != io.EOF {
		t.Error(err)
	}
	if err := <-stopped; err != nil {
		t.Error(err)
	}
}

// A call without its only answer has failed, also for OnFinish when the caller has asked for the header first.
func TestHeaderBeforeNoAnswer(t *testing.T) {
	s := &scripted{input: func(st testgrpc.TestService_StreamingInputCallServer) error {
		return st.SetHeader(metadata.Pairs("k", "v"))
	}}
	_, c := fakeServer(t, s)
	var ends []error
	stream, err := c.StreamingInputCall(limit(t), grpc.OnFinish(func(err error) { ends = append(ends, err) }))
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.CloseSend(); err != nil {
		t.Error(err)
	}
	if h, err := stream.Header(); err != nil || len(h["k"]) != 1 {
		t.Errorf("%v, %v", h, err)
	}
	err = stream.RecvMsg(new(testgrpc.StreamingInputCallResponse))
	want(t, err, codes.Internal, "cardinality")
	if len(ends) != 1 || status.Code(ends[0]) != codes.Internal {
		t.Errorf("OnFinish: %v", ends)
	}
}
