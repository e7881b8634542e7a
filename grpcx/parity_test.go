package grpcx

import (
	"context"
	"errors"
	"io"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// scripted is a test service whose methods a test writes.
type scripted struct {
	testgrpc.UnimplementedTestServiceServer
	unary  func(context.Context, *testgrpc.SimpleRequest) (*testgrpc.SimpleResponse, error)
	input  func(testgrpc.TestService_StreamingInputCallServer) error
	output func(*testgrpc.StreamingOutputCallRequest, testgrpc.TestService_StreamingOutputCallServer) error
	duplex func(testgrpc.TestService_FullDuplexCallServer) error
}

func (s *scripted) UnaryCall(ctx context.Context, r *testgrpc.SimpleRequest) (*testgrpc.SimpleResponse, error) {
	return s.unary(ctx, r)
}

func (s *scripted) StreamingInputCall(stream testgrpc.TestService_StreamingInputCallServer) error {
	return s.input(stream)
}

func (s *scripted) StreamingOutputCall(r *testgrpc.StreamingOutputCallRequest, stream testgrpc.TestService_StreamingOutputCallServer) error {
	return s.output(r, stream)
}

func (s *scripted) FullDuplexCall(stream testgrpc.TestService_FullDuplexCallServer) error {
	return s.duplex(stream)
}

// client serves it and returns a client.
func (s *scripted) client(t *testing.T, k stack, o stackOptions) testgrpc.TestServiceClient {
	o.register = func(r grpc.ServiceRegistrar) { testgrpc.RegisterTestServiceServer(r, s) }
	return testgrpc.NewTestServiceClient(k.start(t, o))
}

func (s *scripted) register(r grpc.ServiceRegistrar) { testgrpc.RegisterTestServiceServer(r, s) }

func payload(n int) *testgrpc.Payload { return &testgrpc.Payload{Body: make([]byte, n)} }

// want fails the test unless err has the code and its message the text.
func want(t *testing.T, err error, code codes.Code, text string) {
	t.Helper()
	if st, ok := status.FromError(err); !ok || st.Code() != code || !strings.Contains(st.Message(), text) {
		t.Errorf("%v, want %v with %q", err, code, text)
	}
}

func TestMetadata(t *testing.T) {
	sent := metadata.MD{"k": {"one", "two", ""}, "raw-bin": {"\x00\xff", ""}, "mixed.key_1": {"printable ~"}}
	check := func(t *testing.T, where string, md metadata.MD) {
		t.Helper()
		for k, v := range sent {
			if !reflect.DeepEqual(md[k], v) {
				t.Errorf("%s: %s is %q", where, k, md[k])
			}
		}
	}
	each(t, func(t *testing.T, k stack) {
		s := &scripted{
			unary: func(ctx context.Context, _ *testgrpc.SimpleRequest) (*testgrpc.SimpleResponse, error) {
				md, _ := metadata.FromIncomingContext(ctx)
				check(t, "request", md)
				err := errors.Join(grpc.SetHeader(ctx, metadata.MD{"k": sent["k"]}), grpc.SetHeader(ctx, nil),
					grpc.SendHeader(ctx, metadata.MD{"raw-bin": sent["raw-bin"], "mixed.key_1": sent["mixed.key_1"]}),
					grpc.SetTrailer(ctx, metadata.MD{"k": sent["k"][:2]}))
				if err != nil {
					t.Error(err)
				}
				if grpc.SetHeader(ctx, metadata.Pairs("late", "1")) == nil || grpc.SendHeader(ctx, nil) == nil {
					t.Error("a header can be set after it was sent")
				}
				_ = grpc.SetTrailer(ctx, metadata.MD{"k": sent["k"][2:], "raw-bin": sent["raw-bin"], "mixed.key_1": sent["mixed.key_1"]})
				return &testgrpc.SimpleResponse{}, nil
			},
			duplex: func(stream testgrpc.TestService_FullDuplexCallServer) error {
				md, _ := metadata.FromIncomingContext(stream.Context())
				check(t, "stream", md)
				if err := stream.SetHeader(sent); err != nil {
					t.Error(err)
				}
				stream.SetTrailer(sent)
				if _, err := stream.Recv(); err != io.EOF {
					t.Error(err)
				}
				return status.Error(codes.Aborted, "with metadata")
			},
		}
		c := s.client(t, k, stackOptions{})
		ctx := metadata.NewOutgoingContext(limit(t), sent)
		ctx = metadata.AppendToOutgoingContext(ctx, "Grpc-Status", "7", "content-type", "mine")
		var header, trailer metadata.MD
		if _, err := c.UnaryCall(ctx, &testgrpc.SimpleRequest{}, grpc.Header(&header), grpc.Trailer(&trailer)); err != nil {
			t.Fatal(err)
		}
		check(t, "header", header)
		check(t, "trailer", trailer)
		stream, err := c.FullDuplexCall(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if err := stream.CloseSend(); err != nil {
			t.Error(err)
		}
		_, err = stream.Recv()
		want(t, err, codes.Aborted, "with metadata")
		header, err = stream.Header()
		if err != nil {
			t.Error(err)
		}
		check(t, "header of a stream", header)
		check(t, "trailer of a stream", stream.Trailer())

		bad := metadata.NewOutgoingContext(limit(t), metadata.MD{"k": {"not\nprintable"}})
		_, err = c.UnaryCall(bad, &testgrpc.SimpleRequest{})
		want(t, err, codes.Internal, "non-printable")
		_, err = c.UnaryCall(metadata.NewOutgoingContext(limit(t), metadata.MD{"k k": {""}}), &testgrpc.SimpleRequest{})
		want(t, err, codes.Internal, "illegal characters")
	})
}

// A trailer, and what grpc.SetHeader sets, may have values that a stream's SetHeader refuses; what cannot be
// sent at all makes the call fail.
func TestMetadataOfAnyText(t *testing.T) {
	each(t, func(t *testing.T, k stack) {
		texts := []metadata.MD{metadata.Pairs("k", "gr\u00fc\u00dfe\t\xff", "k", "plain"), metadata.Pairs("k", "a line\nand another")}
		s := &scripted{unary: func(ctx context.Context, r *testgrpc.SimpleRequest) (*testgrpc.SimpleResponse, error) {
			md := texts[r.ResponseSize]
			if err := grpc.SetHeader(ctx, md); err != nil {
				t.Error(err)
			}
			return &testgrpc.SimpleResponse{Username: "me"}, grpc.SetTrailer(ctx, md)
		}}
		c := s.client(t, k, stackOptions{})
		var head, got metadata.MD
		answer, err := c.UnaryCall(limit(t), &testgrpc.SimpleRequest{}, grpc.Header(&head), grpc.Trailer(&got))
		if err != nil || answer.Username != "me" || !reflect.DeepEqual(got["k"], texts[0]["k"]) || !reflect.DeepEqual(head["k"], texts[0]["k"]) {
			t.Errorf("%v, %v, with the header %q and the trailer %q", answer, err, head, got)
		}
		_, err = c.UnaryCall(limit(t), &testgrpc.SimpleRequest{ResponseSize: 1})
		want(t, err, codes.Internal, "")
		_, err = c.UnaryCall(metadata.AppendToOutgoingContext(limit(t), "k", "gr\u00fc\u00dfe"), &testgrpc.SimpleRequest{})
		want(t, err, codes.Internal, "non-printable")
	})
}

// Header returns when the header is there, though another goroutine waits for a message that comes
// after what is sent then.
func TestHeaderBesideRecv(t *testing.T) {
	each(t, func(t *testing.T, k stack) {
		s := echoSize()
		s.duplex = func(stream testgrpc.TestService_FullDuplexCallServer) error {
			if err := stream.SendHeader(nil); err != nil {
				return err
			}
			if _, err := stream.Recv(); err != nil {
				return err
			}
			return stream.Send(&testgrpc.StreamingOutputCallResponse{})
		}
		stream, err := s.client(t, k, stackOptions{}).FullDuplexCall(limit(t), grpc.WaitForReady(true))
		if err != nil {
			t.Fatal(err)
		}
		received := make(chan error, 1)
		go func() {
			_, err := stream.Recv()
			received <- err
		}()
		if s, ok := stream.(*grpc.GenericClientStream[testgrpc.StreamingOutputCallRequest, testgrpc.StreamingOutputCallResponse]); ok {
			if s, ok := s.ClientStream.(*clientStream); ok {
				for n := 0; n < 1_000_000 && s.recvMu.TryLock(); n++ { // until Recv has it
					s.recvMu.Unlock()
					runtime.Gosched()
				}
			}
		}
		if _, err := stream.Header(); err != nil {
			t.Error(err)
		}
		if err := stream.Send(&testgrpc.StreamingOutputCallRequest{}); err != nil {
			t.Error("send:", err)
		}
		if err := <-received; err != nil {
			t.Error("receive:", err)
		}
	})
}

func TestStatus(t *testing.T) {
	detailed, err := status.New(codes.FailedPrecondition, "☺").WithDetails(&testgrpc.SimpleRequest{ResponseSize: 7}, payload(3))
	if err != nil {
		t.Fatal(err)
	}
	tests := map[string]error{
		"details":  detailed.Err(),
		"plain":    errors.New("no status"),
		"context":  context.DeadlineExceeded,
		"unknown":  status.Error(codes.Code(99), "a code of the future"),
		"no text":  status.Error(codes.DataLoss, ""),
		"wrapped":  errors.Join(errors.New("outer"), status.Error(codes.NotFound, "inner")),
		"not utf8": status.Error(codes.OutOfRange, "a\xffb"),
	}
	each(t, func(t *testing.T, k stack) {
		s := &scripted{
			unary: func(_ context.Context, r *testgrpc.SimpleRequest) (*testgrpc.SimpleResponse, error) {
				return nil, tests[r.ResponseStatus.Message]
			},
			output: func(r *testgrpc.StreamingOutputCallRequest, stream testgrpc.TestService_StreamingOutputCallServer) error {
				if err := stream.Send(&testgrpc.StreamingOutputCallResponse{}); err != nil {
					t.Error(err)
				}
				return tests[r.ResponseStatus.Message]
			},
		}
		c := s.client(t, k, stackOptions{})
		for name, cause := range tests {
			expect := handlerStatus(cause).Proto()
			expect.Message = strings.ToValidUTF8(expect.Message, "\uFFFD")
			_, err := c.UnaryCall(limit(t), &testgrpc.SimpleRequest{ResponseStatus: &testgrpc.EchoStatus{Message: name}})
			if got := status.Convert(err).Proto(); !proto.Equal(got, expect) {
				t.Errorf("%s: %v, want %v", name, got, expect)
			}
			stream, err := c.StreamingOutputCall(limit(t), &testgrpc.StreamingOutputCallRequest{ResponseStatus: &testgrpc.EchoStatus{Message: name}})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := stream.Recv(); err != nil {
				t.Error(err)
			}
			_, err = stream.Recv()
			if got := status.Convert(err).Proto(); !proto.Equal(got, expect) {
				t.Errorf("%s: %v, want %v", name, got, expect)
			}
		}
	})
}

func TestDeadline(t *testing.T) {
	each(t, func(t *testing.T, k stack) {
		// Of its own each: a handler may begin after its caller has given up.
		ended, streamEnded := make(chan error, 64), make(chan error, 64)
		deadline := make(chan time.Time, 64)
		s := &scripted{
			unary: func(ctx context.Context, _ *testgrpc.SimpleRequest) (*testgrpc.SimpleResponse, error) {
				d, _ := ctx.Deadline()
				deadline <- d
				<-ctx.Done()
				ended <- ctx.Err()
				return nil, ctx.Err()
			},
			duplex: func(stream testgrpc.TestService_FullDuplexCallServer) error {
				_, err := stream.Recv()
				streamEnded <- err
				return err
			},
		}
		c := s.client(t, k, stackOptions{})
		// Over TCP the deadline is later by the time that the request takes, and rdmad
		// knows the other node's clock to within half a round trip.
		inTime(t, "a handler that begins before the deadline", func(ctx context.Context) bool {
			here, _ := ctx.Deadline()
			slack := max(50*time.Millisecond, time.Until(here)/4)
			_, err := c.UnaryCall(ctx, &testgrpc.SimpleRequest{})
			want(t, err, codes.DeadlineExceeded, "")
			for len(deadline) > 0 {
				if d := (<-deadline).Sub(here); d >= -slack && d <= slack {
					<-ended
					return true
				}
				<-ended
			}
			return false
		})
		inTime(t, "a stream that is open before its deadline", func(ctx context.Context) bool {
			stream, err := c.FullDuplexCall(ctx)
			if err != nil {
				want(t, err, codes.DeadlineExceeded, "")
				return false
			}
			_, err = stream.Recv()
			want(t, err, codes.DeadlineExceeded, "")
			select {
			case err := <-streamEnded:
				if status.Code(err) != codes.DeadlineExceeded && status.Code(err) != codes.Canceled {
					t.Error(err)
				}
				return true
			case <-time.After(5 * time.Second): // its handler was not entered any more
				return false
			}
		})
		over, cancel := context.WithDeadline(context.Background(), time.Now())
		defer cancel()
		_, err := c.UnaryCall(over, &testgrpc.SimpleRequest{})
		want(t, err, codes.DeadlineExceeded, "")
	})
}

// inTime calls f with contexts that end later and later until it returns true: what it
// wants to happen before the deadline takes its time on a busy machine.
func inTime(t *testing.T, what string, f func(context.Context) bool) {
	t.Helper()
	for d := 100 * time.Millisecond; d < 2*time.Minute; d *= 2 {
		ctx, cancel := context.WithTimeout(context.Background(), d)
		ok := f(ctx)
		cancel()
		if ok {
			return
		}
	}
	t.Fatalf("%s: never in time", what)
}

func TestCancel(t *testing.T) {
	each(t, func(t *testing.T, k stack) {
		begun, ended := make(chan struct{}, 1), make(chan error, 1)
		s := &scripted{
			unary: func(ctx context.Context, _ *testgrpc.SimpleRequest) (*testgrpc.SimpleResponse, error) {
				begun <- struct{}{}
				<-ctx.Done()
				ended <- ctx.Err()
				return nil, ctx.Err()
			},
			duplex: func(stream testgrpc.TestService_FullDuplexCallServer) error {
				begun <- struct{}{}
				_, err := stream.Recv()
				ended <- err
				return err
			},
		}
		c := s.client(t, k, stackOptions{})
		ctx, cancel := context.WithCancel(context.Background())
		go func() {
			<-begun
			cancel()
		}()
		_, err := c.UnaryCall(ctx, &testgrpc.SimpleRequest{})
		want(t, err, codes.Canceled, "context canceled")
		if err := <-ended; err != context.Canceled {
			t.Error(err)
		}

		// A caller that only ends its context gives the call up, too.
		ctx, cancel = context.WithCancel(context.Background())
		finished := make(chan error, 1)
		stream, err := c.FullDuplexCall(ctx, grpc.OnFinish(func(err error) { finished <- err }))
		if err != nil {
			t.Fatal(err)
		}
		<-begun
		cancel()
		want(t, <-ended, codes.Canceled, "")
		want(t, <-finished, codes.Canceled, "context canceled")
		_, err = stream.Recv()
		want(t, err, codes.Canceled, "context canceled")
		if err := stream.Send(&testgrpc.StreamingOutputCallRequest{}); err == nil {
			t.Error("a message was sent after the end")
		}
	})
}

// The handler sees who called, by which method, and the caller who answered.
func TestContext(t *testing.T) {
	each(t, func(t *testing.T, k stack) {
		s := &scripted{
			unary: func(ctx context.Context, _ *testgrpc.SimpleRequest) (*testgrpc.SimpleResponse, error) {
				if m, ok := grpc.Method(ctx); !ok || m != "/grpc.testing.TestService/UnaryCall" {
					t.Error(m)
				}
				if p, ok := peer.FromContext(ctx); !ok || p.Addr.String() == "" || p.LocalAddr.String() == "" {
					t.Error(p)
				}
				return &testgrpc.SimpleResponse{}, nil
			},
			duplex: func(stream testgrpc.TestService_FullDuplexCallServer) error {
				if m, ok := grpc.MethodFromServerStream(stream); !ok || m != "/grpc.testing.TestService/FullDuplexCall" {
					t.Error(m)
				}
				return stream.SendHeader(nil)
			},
		}
		c := s.client(t, k, stackOptions{})
		var p peer.Peer
		var finished []error
		_, err := c.UnaryCall(limit(t), &testgrpc.SimpleRequest{}, grpc.Peer(&p), grpc.StaticMethod(), grpc.WaitForReady(true),
			grpc.OnFinish(func(err error) { finished = append(finished, err) }), grpc.UseCompressor("identity"))
		if err != nil || p.Addr == nil || p.Addr.String() == "" {
			t.Error(err, p)
		}
		if len(finished) != 1 || finished[0] != nil {
			t.Error(finished)
		}
		stream, err := c.FullDuplexCall(limit(t))
		if err != nil {
			t.Fatal(err)
		}
		if md, err := stream.Header(); md == nil || err != nil {
			t.Error(md, err)
		}
		if p, ok := peer.FromContext(stream.Context()); !ok || p.Addr.String() == "" {
			t.Error(p)
		}
		if _, err := stream.Recv(); err != io.EOF {
			t.Error(err)
		}
	})
}

func TestSizes(t *testing.T) {
	each(t, func(t *testing.T, k stack) {
		s := &scripted{
			unary: func(_ context.Context, r *testgrpc.SimpleRequest) (*testgrpc.SimpleResponse, error) {
				return &testgrpc.SimpleResponse{Payload: payload(int(r.ResponseSize))}, nil
			},
			input: func(stream testgrpc.TestService_StreamingInputCallServer) error {
				_, err := stream.Recv()
				return err
			},
		}
		c := s.client(t, k, stackOptions{maxRecv: 1 << 20})
		_, err := c.UnaryCall(limit(t), &testgrpc.SimpleRequest{Payload: payload(1 << 20)})
		want(t, err, codes.ResourceExhausted, "received message larger than max")
		_, err = c.UnaryCall(limit(t), &testgrpc.SimpleRequest{ResponseSize: 4 << 20})
		want(t, err, codes.ResourceExhausted, "received message larger than max")
		r, err := c.UnaryCall(limit(t), &testgrpc.SimpleRequest{ResponseSize: 4 << 20}, grpc.MaxCallRecvMsgSize(5<<20))
		if err != nil || len(r.Payload.Body) != 4<<20 {
			t.Error(err)
		}
		_, err = c.UnaryCall(limit(t), &testgrpc.SimpleRequest{Payload: payload(100)}, grpc.MaxCallSendMsgSize(100))
		want(t, err, codes.ResourceExhausted, "trying to send message larger than max")
		stream, err := c.StreamingInputCall(limit(t))
		if err != nil {
			t.Fatal(err)
		}
		if err := stream.Send(&testgrpc.StreamingInputCallRequest{Payload: payload(1 << 20)}); err != nil && err != io.EOF {
			t.Error(err)
		}
		_, err = stream.CloseAndRecv()
		want(t, err, codes.ResourceExhausted, "received message larger than max")
	})
}
