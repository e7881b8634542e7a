package grpcx

import (
	"context"
	"errors"
	"io"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
)

// smallMessages are limits of a server that a payload of largePayload bytes is beyond.
var smallMessages = stackOptions{maxRecv: 1000, maxSend: 1000}

const largePayload = 2000

// garbage sends what no codec of protocol buffers can read.
type garbage struct{ encoding.CodecV2 }

func (garbage) Marshal(any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer{0xff}}, nil
}

// upload sends two messages, a small one and one of n bytes, and returns how the call ends.
func upload(t *testing.T, c testgrpc.TestServiceClient, n int, opts ...grpc.CallOption) error {
	t.Helper()
	stream, err := c.StreamingInputCall(limit(t), opts...)
	if err != nil {
		t.Fatal(err)
	}
	for _, size := range []int{1, n} {
		// The call may end before the second.
		if err := stream.Send(&testgrpc.StreamingInputCallRequest{Payload: payload(size)}); err != nil && err != io.EOF {
			t.Error(err)
		}
	}
	_, err = stream.CloseAndRecv()
	return err
}

// takeAll receives until an error, which it returns, and sums sizes up.
func takeAll(stream testgrpc.TestService_StreamingInputCallServer) (sum int32, err error) {
	for {
		r, err := stream.Recv()
		if err != nil {
			return sum, err
		}
		sum += int32(len(r.GetPayload().GetBody()))
	}
}

// A message that a handler could not receive ends the call, whatever the handler makes of the error.
func TestHandlerIgnoresFailedRecv(t *testing.T) {
	outcomes := map[string]func(testgrpc.TestService_StreamingInputCallServer, int32) error{
		"answer": func(stream testgrpc.TestService_StreamingInputCallServer, sum int32) error {
			return stream.SendAndClose(&testgrpc.StreamingInputCallResponse{AggregatedPayloadSize: sum})
		},
		"nil": func(stream testgrpc.TestService_StreamingInputCallServer, sum int32) error {
			_ = stream.SendAndClose(&testgrpc.StreamingInputCallResponse{AggregatedPayloadSize: sum})
			return nil
		},
		"error": func(testgrpc.TestService_StreamingInputCallServer, int32) error { return errors.New("x") },
	}
	for name, outcome := range outcomes {
		t.Run(name, func(t *testing.T) {
			each(t, func(t *testing.T, k stack) {
				s := &scripted{input: func(stream testgrpc.TestService_StreamingInputCallServer) error {
					sum, _ := takeAll(stream)
					return outcome(stream, sum)
				}}
				c := s.client(t, k, smallMessages)
				want(t, upload(t, c, largePayload), codes.ResourceExhausted, "received message larger than max")
				err := upload(t, c, 1, grpc.ForceCodecV2(garbage{encoding.GetCodecV2("proto")}))
				want(t, err, codes.Internal, "failed to unmarshal")
			})
		})
	}
}

// An answer that was given before does not hide a message that could not be received.
func TestHandlerAnswersBeforeFailedRecv(t *testing.T) {
	each(t, func(t *testing.T, k stack) {
		s := &scripted{input: func(stream testgrpc.TestService_StreamingInputCallServer) error {
			err := stream.SendAndClose(&testgrpc.StreamingInputCallResponse{})
			_, _ = takeAll(stream)
			return err
		}}
		err := upload(t, s.client(t, k, smallMessages), largePayload)
		want(t, err, codes.ResourceExhausted, "received message larger than max")
	})
}

// A message that a handler could not send ends the call: no later one is received in its place.
func TestHandlerIgnoresFailedSend(t *testing.T) {
	for name, outcome := range map[string]error{"nil": nil, "error": errors.New("x")} {
		t.Run(name, func(t *testing.T) {
			each(t, func(t *testing.T, k stack) {
				s := &scripted{output: func(_ *testgrpc.StreamingOutputCallRequest, stream testgrpc.TestService_StreamingOutputCallServer) error {
					for _, n := range []int{1, largePayload, 2} {
						err := stream.Send(&testgrpc.StreamingOutputCallResponse{Payload: payload(n)})
						if (n == 1) != (err == nil) {
							t.Errorf("%d bytes: %v", n, err)
						}
					}
					return outcome
				}}
				stream, err := s.client(t, k, smallMessages).StreamingOutputCall(limit(t), &testgrpc.StreamingOutputCallRequest{})
				if err != nil {
					t.Fatal(err)
				}
				if r, err := stream.Recv(); err != nil || len(r.GetPayload().GetBody()) != 1 {
					t.Errorf("the message before: %v, %v", r, err)
				}
				_, err = stream.Recv()
				want(t, err, codes.ResourceExhausted, "trying to send message larger than max")
			})
		})
	}
}

// A second answer of a call that has one ends the call.
func TestHandlerAnswersTwice(t *testing.T) {
	each(t, func(t *testing.T, k stack) {
		s := &scripted{input: func(stream testgrpc.TestService_StreamingInputCallServer) error {
			_, _ = takeAll(stream)
			for range 2 {
				_ = stream.SendAndClose(&testgrpc.StreamingInputCallResponse{})
			}
			return nil
		}}
		want(t, upload(t, s.client(t, k, stackOptions{}), 1), codes.Internal, "")
	})
}

// The call ends while the handler still waits for the goroutine that receives, and the handler's context ends with it:
// the caller, who waits for the end, would send nothing that could wake that goroutine.
func TestFailedSendBesideRecv(t *testing.T) {
	each(t, func(t *testing.T, k stack) {
		contexts := make(chan error, 1)
		s := &scripted{duplex: func(stream testgrpc.TestService_FullDuplexCallServer) error {
			received := make(chan error)
			go func() {
				_, err := stream.Recv()
				received <- err
			}()
			_ = stream.Send(&testgrpc.StreamingOutputCallResponse{Payload: payload(largePayload)})
			if err := <-received; err == nil || err == io.EOF {
				t.Errorf("received nothing, and no error: %v", err)
			}
			<-stream.Context().Done()
			contexts <- stream.Context().Err()
			return nil
		}}
		stream, err := s.client(t, k, smallMessages).FullDuplexCall(limit(t))
		if err != nil {
			t.Fatal(err)
		}
		_, err = stream.Recv()
		want(t, err, codes.ResourceExhausted, "trying to send message larger than max")
		if err := <-contexts; err != context.Canceled {
			t.Errorf("the context of the handler: %v", err)
		}
	})
}

// A message that cannot be received is an error at once, also while another goroutine of the handler sends what the caller does not
// read yet; the call ends with it when the caller does.
func TestFailedRecvBesideSend(t *testing.T) {
	each(t, func(t *testing.T, k stack) {
		failed := make(chan struct{})
		var messages atomic.Int64
		s := &scripted{duplex: func(stream testgrpc.TestService_FullDuplexCallServer) error {
			sent := make(chan struct{})
			go func() {
				defer close(sent)
				for stream.Send(&testgrpc.StreamingOutputCallResponse{Payload: payload(500)}) == nil {
					messages.Add(1)
				}
			}()
			for {
				if _, err := stream.Recv(); err != nil {
					break
				}
			}
			close(failed)
			<-sent
			return nil
		}}
		stream, err := s.client(t, k, smallMessages).FullDuplexCall(limit(t))
		if err != nil {
			t.Fatal(err)
		}
		// Until the handler has no more room to send, or seems to: where it only stands still the test shows less.
		for last := int64(-1); last != messages.Load() || last == 0; time.Sleep(100 * time.Millisecond) {
			last = messages.Load()
		}
		if err := stream.Send(&testgrpc.StreamingOutputCallRequest{Payload: payload(largePayload)}); err != nil {
			t.Fatal(err)
		}
		select {
		case <-failed:
		case <-stream.Context().Done():
			t.Error("the handler has not heard that it cannot receive, and nothing that it sends is read")
		}
		for err == nil {
			_, err = stream.Recv()
		}
		want(t, err, codes.ResourceExhausted, "received message larger than max")
	})
}

// A call that has failed does not wait for a caller who does not read: what another goroutine of the handler still sends ends, and the
// caller has the status behind what was sent before.
func TestFailureEndsBlockedSend(t *testing.T) {
	refusal := status.New(codes.DataLoss, "no more")
	for name, c := range map[string]struct {
		// fail has the call fail; over says that the sender has ended.
		fail func(stream testgrpc.TestService_FullDuplexCallServer, over <-chan struct{}) error
		want codes.Code
		text string
	}{
		"returned": {func(testgrpc.TestService_FullDuplexCallServer, <-chan struct{}) error { return refusal.Err() }, codes.DataLoss, "no more"},
		"received": {func(stream testgrpc.TestService_FullDuplexCallServer, over <-chan struct{}) error {
			_, err := stream.Recv()
			for err == nil {
				_, err = stream.Recv()
			}
			<-over
			return err
		}, codes.ResourceExhausted, "received message larger than max"},
		"received and forgotten": {func(stream testgrpc.TestService_FullDuplexCallServer, _ <-chan struct{}) error {
			var err error
			for err == nil {
				_, err = stream.Recv()
			}
			return nil
		}, codes.ResourceExhausted, "received message larger than max"},
	} {
		t.Run(name, func(t *testing.T) {
			each(t, func(t *testing.T, k stack) {
				over := make(chan struct{})
				blocked := make(chan struct{})
				s := &scripted{duplex: func(stream testgrpc.TestService_FullDuplexCallServer) error {
					go sendWithoutEnd(stream, over, blocked)
					<-blocked
					return c.fail(stream, over)
				}}
				stream, err := s.client(t, k, smallMessages).FullDuplexCall(limit(t))
				if err != nil {
					t.Fatal(err)
				}
				<-blocked
				if err := stream.Send(&testgrpc.StreamingOutputCallRequest{Payload: payload(largePayload)}); err != nil && err != io.EOF {
					t.Error(err)
				}
				select {
				case <-over:
				case <-time.After(10 * time.Second):
					t.Error("the sender waits for a caller whose call has failed")
				}
				for err == nil {
					_, err = stream.Recv()
				}
				want(t, err, c.want, c.text)
			})
		})
	}
}

// sendWithoutEnd sends until an error, and says when it is over and, before, when nothing is taken any more.
func sendWithoutEnd(stream testgrpc.TestService_FullDuplexCallServer, over, blocked chan<- struct{}) {
	defer close(over)
	sent := make(chan struct{}, 1)
	go func() {
		defer close(blocked)
		for {
			select {
			case <-sent:
			case <-time.After(300 * time.Millisecond):
				return
			}
		}
	}()
	for stream.Send(&testgrpc.StreamingOutputCallResponse{Payload: payload(500)}) == nil {
		select {
		case sent <- struct{}{}:
		default:
		}
	}
}
