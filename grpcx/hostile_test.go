package grpcx

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"

	"google.golang.org/grpc"
)

// frameOf makes a frame of a head, a status and a message, those that are not nil.
func frameOf(t testing.TB, flags byte, h *head, e *ending, message []byte) []byte {
	t.Helper()
	b := []byte{flags}
	var err error
	if h != nil {
		b[0] |= flagHead
		if b, err = appendBlock(b, h.append); err != nil {
			t.Fatal(err)
		}
	}
	if e != nil {
		b[0] |= flagStatus
		if b, err = appendBlock(b, e.append); err != nil {
			t.Fatal(err)
		}
	}
	if message != nil {
		b[0] |= flagMessage
	}
	return append(b, message...)
}

// hostile are frames that no correct peer sends, at the beginning of a stream.
func hostile(t testing.TB) map[string][]byte {
	good := frameOf(t, 0, &head{node: "a", md: metadata.Pairs("k", "v")}, nil, nil)
	return map[string][]byte{
		"empty":             {},
		"no flags":          {0},
		"unknown flag":      {0x80 | flagMessage},
		"no head":           {flagMessage},
		"no length":         {flagHead, 1, 0},
		"long block":        {flagHead, 0xff, 0xff, 0xff, 0xff},
		"block of nothing":  {flagHead, 0, 0, 0, 0},
		"more than a block": append(good[:len(good):len(good)], 1),
		"short metadata":    append([]byte{flagHead, byte(len(good) - 6), 0, 0, 0}, good[5:len(good)-1]...),
		"reserved key":      rawHead("te", "x"),
		"capital key":       rawHead("K", "x"),
		"control value":     rawHead("k", "\n"),
		"no key":            rawHead("", "x"),
		"many values":       block(flagHead, []byte{0, 0, 0xff, 0x7f}),
		"endless number":    block(flagHead, []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}),
	}
}

func block(flags byte, content []byte) []byte {
	return append([]byte{flags, byte(len(content)), 0, 0, 0}, content...)
}

func rawHead(k, v string) []byte {
	return block(flagHead, appendText(appendText([]byte{0, 0, 1}, k), v))
}

// Whatever the other end sends, a call ends with a status.
func TestHostileCaller(t *testing.T) {
	frames := hostile(t)
	frames["status"] = frameOf(t, 0, &head{}, &ending{}, nil)
	for name, bad := range frames {
		t.Run(name, func(t *testing.T) {
			n, conn := fake(t, stackOptions{register: echoSize().register})
			n.onSend = func([]byte) []byte { return bad }
			_, err := testgrpc.NewTestServiceClient(conn).UnaryCall(limit(t), &testgrpc.SimpleRequest{})
			want(t, err, codes.Internal, "malformed frame")
		})
	}
	t.Run("second head", func(t *testing.T) {
		n, conn := fake(t, stackOptions{register: registerInterop})
		n.onSend = func([]byte) []byte { return frameOf(t, 0, &head{}, nil, []byte{}) }
		stream, err := testgrpc.NewTestServiceClient(conn).StreamingInputCall(limit(t))
		if err != nil {
			t.Fatal(err)
		}
		_ = stream.Send(&testgrpc.StreamingInputCallRequest{})
		_, err = stream.CloseAndRecv()
		want(t, err, codes.Internal, "malformed frame")
	})
	t.Run("nothing", func(t *testing.T) {
		n, _ := fake(t, stackOptions{register: registerInterop})
		s, err := n.stream(limit(t), "grpc.testing.TestService/StreamingInputCall")
		if err != nil {
			t.Fatal(err)
		}
		if err := s.CloseSend(limit(t)); err != nil {
			t.Error(err)
		}
		b, err := s.Recv(limit(t))
		if err != nil {
			t.Fatal(err)
		}
		f, err := parseFrame(b)
		if err != nil {
			t.Fatal(err)
		}
		e, err := parseEnding(f.status)
		if err != nil {
			t.Fatal(err)
		}
		want(t, e.status.Err(), codes.Internal, "ended too early")
	})
}

func TestHostileHandler(t *testing.T) {
	frames := hostile(t)
	frames["last"] = frameOf(t, flagLast, &head{}, nil, []byte{})
	frames["status without end"] = block(flagStatus, []byte{0})
	frames["damaged status"] = append(frameOf(t, 0, &head{}, nil, nil), 4, 0, 0, 0, 2, 0xff, 0xff, 0)
	frames["damaged status"][0] |= flagStatus
	for name, bad := range frames {
		t.Run(name, func(t *testing.T) {
			n, conn := fake(t, stackOptions{register: echoSize().register})
			n.onAnswer = func([]byte) []byte { return bad }
			_, err := testgrpc.NewTestServiceClient(conn).UnaryCall(limit(t), &testgrpc.SimpleRequest{})
			want(t, err, codes.Internal, "malformed frame")
		})
	}
	t.Run("no status", func(t *testing.T) {
		n, conn := fake(t, stackOptions{register: echoSize().register})
		n.handlers["grpc.testing.TestService/UnaryCall"] = func(incoming) error { return nil }
		_, err := testgrpc.NewTestServiceClient(conn).UnaryCall(limit(t), &testgrpc.SimpleRequest{})
		want(t, err, codes.Internal, "without a status")
	})
	t.Run("no message", func(t *testing.T) {
		n, conn := fake(t, stackOptions{register: echoSize().register})
		n.onAnswer = func([]byte) []byte { return frameOf(t, 0, &head{}, &ending{}, []byte("no protobuf")) }
		_, err := testgrpc.NewTestServiceClient(conn).UnaryCall(limit(t), &testgrpc.SimpleRequest{})
		want(t, err, codes.Internal, "failed to unmarshal")
	})
}

// Metadata that is too large ends the call at whoever wanted to send it.
func TestLargeMetadata(t *testing.T) {
	big := metadata.Pairs("k", strings.Repeat("x", maxBlock))
	many := metadata.MD{}
	for i := range maxValues + 1 {
		many.Append("k", fmt.Sprint(i))
	}
	for name, md := range map[string]metadata.MD{"big": big, "many": many} {
		t.Run(name, func(t *testing.T) {
			header, trailer := metadata.MD(nil), metadata.MD(nil)
			s := &scripted{duplex: func(stream testgrpc.TestService_FullDuplexCallServer) error {
				stream.SetTrailer(trailer)
				return stream.SetHeader(header)
			}}
			_, conn := fake(t, stackOptions{register: s.register})
			c := testgrpc.NewTestServiceClient(conn)
			_, err := c.FullDuplexCall(metadata.NewOutgoingContext(limit(t), md))
			want(t, err, codes.Internal, "of metadata")
			for i := range 2 {
				header, trailer = md, nil
				if i == 1 {
					header, trailer = nil, md
				}
				stream, err := c.FullDuplexCall(limit(t))
				if err != nil {
					t.Fatal(err)
				}
				_, err = stream.Recv()
				want(t, err, codes.Internal, "of metadata")
			}
		})
	}
}

func fuzzSeeds(f *testing.F) {
	for _, b := range hostile(f) {
		f.Add(b)
	}
	f.Add(frameOf(f, flagLast, &head{node: "a", codec: "json", md: metadata.Pairs("k", "v", "k-bin", "\x00")}, nil, []byte("message")))
	f.Add(frameOf(f, 0, &head{node: "b"}, &ending{status: handlerStatus(grpc.ErrServerStopped), trailer: metadata.Pairs("k", "v")}, nil))
}

// A frame that parses is the same after it is made again, and none makes the parsers
// panic or take more than a block allows.
func FuzzFrame(f *testing.F) {
	fuzzSeeds(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := parseFrame(b)
		if err != nil {
			return
		}
		var h *head
		var e *ending
		if p.has(flagHead) {
			parsed, err := parseHead(p.head)
			if err != nil {
				return
			}
			if len(parsed.node) > maxName || len(parsed.codec) > maxName || parsed.md == nil {
				t.Errorf("%+v", parsed)
			}
			h = &parsed
		}
		if p.has(flagStatus) {
			parsed, err := parseEnding(p.status)
			if err != nil {
				return
			}
			if parsed.status != nil && parsed.status.Code() == codes.OK {
				t.Error("a failure that is OK")
			}
			e = &parsed
		}
		var message []byte
		if p.has(flagMessage) {
			message = append([]byte{}, p.message...)
		}
		again, err := parseFrame(frameOf(t, p.flags&flagLast, h, e, message))
		if err != nil || again.flags != p.flags || string(again.message) != string(p.message) {
			t.Errorf("%v became %v: %v", p, again, err)
		}
	})
}

// FuzzAnswer gives a caller arbitrary frames.
func FuzzAnswer(f *testing.F) {
	fuzzSeeds(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		s := &clientStream{headed: make(chan struct{})}
		for range 2 {
			_, _, _ = s.take(b)
		}
	})
}
