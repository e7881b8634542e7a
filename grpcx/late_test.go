package grpcx

import (
	"context"
	"io"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"
)

// A call that has its status ends, also if the stream behind it does not: the handler's process was stopped, or the
// link to it is lost, between the two.
func TestStatusWithoutEndOfStream(t *testing.T) {
	for what, st := range map[string]*status.Status{"answer": nil, "error": status.New(codes.NotFound, "no such page")} {
		for _, kind := range []*grpc.StreamDesc{unaryDesc, {ServerStreams: true}} {
			t.Run(what, func(t *testing.T) {
				n := &endless{status: st, closed: make(chan struct{})}
				conn, err := newConn(n, dialOptions{})
				if err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()
				var got error
				if kind == unaryDesc {
					got = conn.Invoke(ctx, "/s/m", &testgrpc.Empty{}, &testgrpc.Empty{})
				} else {
					s, err := conn.NewStream(ctx, kind, "/s/m")
					if err != nil {
						t.Fatal(err)
					}
					if err := s.SendMsg(&testgrpc.Empty{}); err != nil {
						t.Error(err)
					}
					for got == nil {
						got = s.RecvMsg(&testgrpc.Empty{})
					}
					if got == io.EOF {
						got = nil
					}
				}
				if status.Code(got) != st.Code() || ctx.Err() != nil {
					t.Errorf("%v; context: %v", got, ctx.Err())
				}
				select {
				case <-n.closed:
				default:
					t.Error("the stream was not given up")
				}
			})
		}
	}
}

// endless is a stream that has a status and no end, and who opens it.
type endless struct {
	status *status.Status
	had    bool
	once   sync.Once
	closed chan struct{}
}

func (n *endless) node() string                                                   { return "a" }
func (n *endless) target() string                                                 { return "" }
func (n *endless) absent(context.Context, string, string, time.Time) absence      { return noNode }
func (n *endless) Send(context.Context, []byte) error                             { return nil }
func (n *endless) CloseSend(context.Context) error                                { return nil }
func (n *endless) Close() error                                                   { n.once.Do(func() { close(n.closed) }); return nil }
func (n *endless) open(context.Context, string, string, []byte) (outgoing, error) { return n, nil }

func (n *endless) Recv(ctx context.Context) ([]byte, error) {
	if n.had {
		select {
		case <-n.closed:
			return nil, errFakeOver
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	n.had = true
	flags := byte(flagHead | flagStatus)
	if n.status == nil {
		flags |= flagMessage
	}
	h, e := head{node: "b"}, ending{status: n.status}
	b, err := appendBlock([]byte{flags}, h.append)
	if err != nil {
		return nil, err
	}
	return appendBlock(b, e.append)
}
