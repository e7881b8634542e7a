package system

import (
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/mem"

	"github.com/rdmad/rdmad/internal/bench/content"
)

// gRPC: unary calls of grpc-go. Messages are bytes, not protocol buffers, so nothing is spent
// on encoding them. Each client process has one connection, and a goroutine for each request
// that it has outstanding.

const (
	grpcService = "bench"
	// grpcMessage is the largest message, grpcWindow how much of a call and grpcWindows how
	// much of a connection may be under way.
	grpcMessage = maxPage + 1024
	grpcWindow  = 4 << 20
	grpcWindows = 16 << 20
)

func grpcSystem(name, network string) *System {
	dial := func(_ context.Context, address string, n Need) (Session, error) { return dialGRPC(network, address, n) }
	return oneService(name, network, dial, func(ctx context.Context, address string) error { return serveGRPC(ctx, network, address) })
}

// message is a message of a call: bytes is room to decode it into, or else it is kept as it came.
type message struct {
	bytes []byte
	wire  mem.BufferSlice
}

// rawCodec takes messages as they are.
type rawCodec struct{}

// Name implements encoding.CodecV2.
func (rawCodec) Name() string { return "raw" }

// Marshal implements encoding.CodecV2.
func (rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	m, ok := v.(*message)
	if !ok {
		return nil, fmt.Errorf("a message is a %T", v)
	}
	return m.wire, nil
}

// Unmarshal implements encoding.CodecV2.
func (rawCodec) Unmarshal(data mem.BufferSlice, v any) error {
	m, ok := v.(*message)
	if !ok {
		return fmt.Errorf("a message is a %T", v)
	}
	n := data.Len()
	if m.bytes == nil {
		data.Ref()
		m.wire = data
		return nil
	}
	if n > cap(m.bytes) {
		m.bytes = make([]byte, n)
	}
	m.bytes = m.bytes[:n]
	data.CopyTo(m.bytes)
	return nil
}

// grpcSession is a Caller.
type grpcSession struct {
	conn   *grpc.ClientConn
	method string
}

func dialGRPC(network, address string, n Need) (*grpcSession, error) {
	target := "passthrough:///" + address
	if network == "unix" {
		target = "unix://" + address
	}
	conn, err := grpc.NewClient(target,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithInitialWindowSize(grpcWindow), grpc.WithInitialConnWindowSize(grpcWindows),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(rawCodec{}), grpc.MaxCallRecvMsgSize(grpcMessage), grpc.MaxCallSendMsgSize(grpcMessage)))
	if err != nil {
		return nil, err
	}
	return &grpcSession{conn: conn, method: "/" + grpcService + "/" + n.Op.String()}, nil
}

// Call implements Caller.
func (s *grpcSession) Call(req, room []byte) ([]byte, error) {
	if room == nil {
		room = []byte{}
	}
	answer := message{bytes: room}
	err := s.conn.Invoke(context.Background(), s.method, &message{wire: mem.BufferSlice{mem.SliceBuffer(req)}}, &answer)
	return answer.bytes, err
}

// Close implements Session.
func (s *grpcSession) Close() error { return s.conn.Close() }

func serveGRPC(ctx context.Context, network, address string) error {
	l, err := net.Listen(network, address)
	if err != nil {
		return err
	}
	s := grpc.NewServer(
		grpc.ForceServerCodecV2(rawCodec{}),
		grpc.InitialWindowSize(grpcWindow), grpc.InitialConnWindowSize(grpcWindows),
		grpc.MaxRecvMsgSize(grpcMessage), grpc.MaxSendMsgSize(grpcMessage))
	s.RegisterService(&grpc.ServiceDesc{ServiceName: grpcService, HandlerType: (*any)(nil), Methods: []grpc.MethodDesc{
		{MethodName: Echo.String(), Handler: grpcEcho},
		{MethodName: Page.String(), Handler: grpcPage},
	}}, nil)
	defer context.AfterFunc(ctx, s.Stop)()
	if err := s.Serve(l); err != nil && ctx.Err() == nil {
		return err
	}
	return nil
}

// grpcEcho sends the buffers back that the request came in.
func grpcEcho(_ any, _ context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
	m := new(message)
	return m, decode(m)
}

// grpcPages are the pages that are sent, by size: what lies between their stamps is shared by all answers.
var grpcPages sync.Map

// grpcPage sends a page of the service's memory, without a copy of its own, as systems with a sheet do. The transport
// may still be writing an answer when the next is made, so each has stamps of its own.
func grpcPage(_ any, _ context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
	req := message{bytes: make([]byte, 0, pageRequestSize)}
	if err := decode(&req); err != nil {
		return nil, err
	}
	size, stamp, err := parsePage(req.bytes)
	if err != nil {
		return nil, err
	}
	if size < 2*content.StampSize {
		p := make([]byte, size)
		content.Fill(p, stamp)
		return &message{wire: mem.BufferSlice{mem.SliceBuffer(p)}}, nil
	}
	page, ok := grpcPages.Load(size)
	if !ok {
		p := make([]byte, size)
		content.Fill(p, 0)
		page, _ = grpcPages.LoadOrStore(size, p)
	}
	middle := page.([]byte)[content.StampSize : size-content.StampSize]
	ends := binary.LittleEndian.AppendUint64(make([]byte, 0, content.StampSize), stamp)
	return &message{wire: mem.BufferSlice{mem.SliceBuffer(ends), mem.SliceBuffer(middle), mem.SliceBuffer(ends)}}, nil
}
