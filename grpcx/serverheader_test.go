package grpcx

import (
	"encoding/json"
	"io"
	"runtime"
	"testing"

	"google.golang.org/grpc"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
)

// slowMessage takes until go to be encoded.
type slowMessage struct{ begun, goOn chan struct{} }

func (m slowMessage) MarshalJSON() ([]byte, error) {
	close(m.begun)
	<-m.goOn
	return json.Marshal(&testgrpc.StreamingOutputCallResponse{})
}

// The header that one goroutine of a handler sends goes with the message that another one is about to send, if that is first.
func TestSendHeaderBesideSendMsg(t *testing.T) {
	each(t, func(t *testing.T, k stack) {
		s := &scripted{duplex: func(stream testgrpc.TestService_FullDuplexCallServer) error {
			m := slowMessage{make(chan struct{}), make(chan struct{})}
			sent := make(chan error, 2)
			go func() { sent <- stream.SendMsg(m) }()
			<-m.begun
			go func() { sent <- stream.SendHeader(metadata.Pairs("a", "b")) }()
			for stream.SetHeader(metadata.MD{"late": nil}) == nil { // until SendHeader has begun
				runtime.Gosched()
			}
			close(m.goOn)
			for range cap(sent) {
				if err := <-sent; err != nil {
					t.Error(err)
				}
			}
			return nil
		}}
		stream, err := testgrpc.NewTestServiceClient(k.start(t, stackOptions{register: s.register})).FullDuplexCall(limit(t), grpc.CallContentSubtype("json-test"))
		if err != nil {
			t.Fatal(err)
		}
		header, err := stream.Header()
		if err != nil || len(header["a"]) != 1 {
			t.Errorf("header %v, %v", header, err)
		}
		if _, err := stream.Recv(); err != nil {
			t.Error(err)
		}
		if _, err := stream.Recv(); err != io.EOF {
			t.Error(err)
		}
	})
}
