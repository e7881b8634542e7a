package grpcx_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/rdmad/rdmad/client"
	"github.com/rdmad/rdmad/grpcx"
	"github.com/rdmad/rdmad/grpcx/internal/greeter"
	"github.com/rdmad/rdmad/server"
)

// A service on one node and a caller on another, from beginning to end.
func Example() {
	socketA, socketB, stop := nodes()
	defer stop()
	ctx, cancel := context.WithCancel(context.Background())

	// The service's process.
	servers, err := server.Attach(ctx, socketB)
	if err != nil {
		log.Fatal(err)
	}
	defer servers.Close()
	srv := grpcx.NewServer(servers)
	greeter.RegisterGreeterServer(srv, polite{})
	done := make(chan error, 1)
	go func() { done <- srv.Serve(ctx) }()

	// The caller's process.
	clients, err := client.Attach(ctx, socketA)
	if err != nil {
		log.Fatal(err)
	}
	defer clients.Close()
	conn, err := grpcx.NewClient(clients, grpcx.Node("b"))
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	reply, err := greeter.NewGreeterClient(conn).SayHello(ctx, &greeter.HelloRequest{Name: "world"}, grpc.WaitForReady(true))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(reply.GetMessage())

	cancel()
	fmt.Println("served:", <-done)
	// Output:
	// hello, world
	// served: <nil>
}

func ExampleNewClient() {
	socket, stop := served()
	defer stop()
	rdma, err := client.Attach(context.Background(), socket)
	if err != nil {
		log.Fatal(err)
	}
	defer rdma.Close()
	// Without Node a call goes to whatever node serves the method.
	conn, err := grpcx.NewClient(rdma)
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	greet(conn, "anybody")

	_, err = grpcx.NewClient(rdma, grpcx.Node("not a name"))
	fmt.Println(errors.Is(err, client.ErrInvalid))
	// Output:
	// hello, anybody
	// true
}

// The daemon of the caller's node ends and is started again, as by an operator; a Conn of Dial goes on.
func ExampleDial() {
	socket, restart, stop := servedAgain()
	defer stop()
	conn, err := grpcx.Dial(socket, grpcx.Node("b"))
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	greet(conn, "first") // which waits until the service is there
	restart()
	greet(conn, "second")
	// Output:
	// hello, first
	// hello, second
}

func ExampleAttachOptions() {
	socket, stop := served()
	defer stop()
	// The name is what "rdmad workers" shows.
	conn, err := grpcx.Dial(socket, grpcx.AttachOptions(client.Name("greeter-client")))
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	greet(conn, "anybody")
	// Output:
	// hello, anybody
}

func ExampleNode() {
	conn, stop := dialled(nil, grpcx.Node("b"))
	defer stop()
	greet(conn, "b")
	// Output:
	// hello, b
}

// Generated code calls Invoke; it can be called with any method's name.
func ExampleConn_Invoke() {
	conn, stop := dialled(nil)
	defer stop()
	var reply greeter.HelloReply
	err := conn.Invoke(context.Background(), "/rdmad.examples.greeter.Greeter/SayHello", &greeter.HelloRequest{Name: "you"}, &reply, grpc.WaitForReady(true))
	fmt.Println(reply.GetMessage(), err)
	err = conn.Invoke(context.Background(), "/rdmad.examples.greeter.Greeter/SayBye", &greeter.HelloRequest{}, &reply)
	fmt.Println(status.Code(err), errors.Is(err, client.ErrNoService))
	// Output:
	// hello, you <nil>
	// Unimplemented true
}

// Generated code calls NewStream.
func ExampleConn_NewStream() {
	conn, stop := dialled(nil)
	defer stop()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	chat, err := greeter.NewGreeterClient(conn).Chat(ctx, grpc.WaitForReady(true))
	if err != nil {
		log.Fatal(err)
	}
	for _, name := range []string{"one", "two"} {
		if err := chat.Send(&greeter.HelloRequest{Name: name}); err != nil {
			log.Fatal(err)
		}
		reply, err := chat.Recv()
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(reply.GetMessage())
	}
	if err := chat.CloseSend(); err != nil {
		log.Fatal(err)
	}
	_, err = chat.Recv()
	fmt.Println(err == io.EOF)
	// Output:
	// hello, one
	// hello, two
	// true
}

func ExampleConn_Close() {
	conn, stop := dialled(nil)
	defer stop()
	fmt.Println(conn.Close())
	_, err := greeter.NewGreeterClient(conn).SayHello(context.Background(), &greeter.HelloRequest{})
	fmt.Println(status.Code(err))
	// Output:
	// <nil>
	// Canceled
}

func ExampleWithChainUnaryInterceptor() {
	timed := func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, next grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		err := next(ctx, method, req, reply, cc, opts...)
		fmt.Println(method, status.Code(err))
		return err
	}
	conn, stop := dialled(nil, grpcx.WithChainUnaryInterceptor(timed))
	defer stop()
	greet(conn, "interceptor")
	// Output:
	// /rdmad.examples.greeter.Greeter/SayHello OK
	// hello, interceptor
}

func ExampleWithChainStreamInterceptor() {
	logged := func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, next grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
		fmt.Println("begins:", method)
		return next(ctx, desc, cc, method, opts...)
	}
	conn, stop := dialled(nil, grpcx.WithChainStreamInterceptor(logged))
	defer stop()
	all, err := greeter.NewGreeterClient(conn).GreetAll(context.Background(), grpc.WaitForReady(true))
	if err != nil {
		log.Fatal(err)
	}
	for _, name := range []string{"you", "you", "you"} {
		if err := all.Send(&greeter.HelloRequest{Name: name}); err != nil {
			log.Fatal(err)
		}
	}
	reply, err := all.CloseAndRecv()
	fmt.Println(reply.GetMessage(), err)
	// Output:
	// begins: /rdmad.examples.greeter.Greeter/GreetAll
	// hello, you and you and you <nil>
}

func ExampleWithDefaultCallOptions() {
	conn, stop := dialled(nil, grpcx.WithDefaultCallOptions(grpc.WaitForReady(true), grpc.MaxCallRecvMsgSize(20)))
	defer stop()
	_, err := greeter.NewGreeterClient(conn).SayHello(context.Background(), &greeter.HelloRequest{Name: strings.Repeat("x", 20)})
	fmt.Println(status.Code(err))
	// Output:
	// ResourceExhausted
}

func ExampleNewServer() {
	_, socket, stop := nodes()
	defer stop()
	rdma, err := server.Attach(context.Background(), socket)
	if err != nil {
		log.Fatal(err)
	}
	defer rdma.Close()
	srv := grpcx.NewServer(rdma, grpcx.MaxRecvMsgSize(64<<20))
	greeter.RegisterGreeterServer(srv, polite{})
	fmt.Println(srv.Err())
	// Output:
	// <nil>
}

// RegisterService is what generated code calls. What goes wrong in it Err and Serve tell.
func ExampleServer_RegisterService() {
	_, socket, stop := nodes()
	defer stop()
	rdma, err := server.Attach(context.Background(), socket)
	if err != nil {
		log.Fatal(err)
	}
	defer rdma.Close()
	srv := grpcx.NewServer(rdma)
	srv.RegisterService(&greeter.Greeter_ServiceDesc, polite{})
	srv.RegisterService(&greeter.Greeter_ServiceDesc, polite{})
	fmt.Println(srv.Serve(context.Background()))
	// Output:
	// grpcx: service rdmad.examples.greeter.Greeter: invalid request: registered before
}

func ExampleServer_Err() {
	_, socket, stop := nodes()
	defer stop()
	rdma, err := server.Attach(context.Background(), socket)
	if err != nil {
		log.Fatal(err)
	}
	defer rdma.Close()
	srv := grpcx.NewServer(rdma)
	desc := greeter.Greeter_ServiceDesc
	desc.ServiceName = "not a name"
	srv.RegisterService(&desc, polite{})
	fmt.Println(errors.Is(srv.Err(), server.ErrInvalid))
	// Output:
	// true
}

func ExampleServer_Serve() {
	_, socket, stop := nodes()
	defer stop()
	rdma, err := server.Attach(context.Background(), socket)
	if err != nil {
		log.Fatal(err)
	}
	defer rdma.Close()
	srv := grpcx.NewServer(rdma)
	greeter.RegisterGreeterServer(srv, polite{})
	ctx, cancel := context.WithCancel(context.Background())
	cancel() // for example on SIGTERM; see signal.NotifyContext
	fmt.Println(srv.Serve(ctx))
	// Output:
	// <nil>
}

func ExampleServer_GetServiceInfo() {
	_, socket, stop := nodes()
	defer stop()
	rdma, err := server.Attach(context.Background(), socket)
	if err != nil {
		log.Fatal(err)
	}
	defer rdma.Close()
	srv := grpcx.NewServer(rdma)
	greeter.RegisterGreeterServer(srv, polite{})
	for _, m := range srv.GetServiceInfo()["rdmad.examples.greeter.Greeter"].Methods {
		fmt.Println(m.Name, m.IsClientStream, m.IsServerStream)
	}
	// Output:
	// SayHello false false
	// SayHellos false true
	// GreetAll true false
	// Chat true true
}

func ExampleServer_GracefulStop() {
	_, socket, stop := nodes()
	defer stop()
	ctx, cancel := context.WithCancel(context.Background())
	rdma, err := server.Attach(ctx, socket)
	if err != nil {
		log.Fatal(err)
	}
	defer rdma.Close()
	srv := grpcx.NewServer(rdma)
	greeter.RegisterGreeterServer(srv, polite{})
	done := make(chan error, 1)
	go func() { done <- srv.Serve(ctx) }()

	// Calls that run have 10 seconds to end; new ones are refused.
	patience, end := context.WithTimeout(ctx, 10*time.Second)
	defer end()
	fmt.Println(srv.GracefulStop(patience))
	cancel()
	fmt.Println(<-done)
	// Output:
	// <nil>
	// <nil>
}

func ExampleChainUnaryInterceptor() {
	who := func(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
		p, _ := peer.FromContext(ctx)
		fmt.Println("called from node", p.Addr)
		return next(ctx, req)
	}
	conn, stop := dialled([]grpcx.ServerOption{grpcx.ChainUnaryInterceptor(who)})
	defer stop()
	greet(conn, "caller")
	// Output:
	// called from node a
	// hello, caller
}

func ExampleChainStreamInterceptor() {
	closed := func(any, grpc.ServerStream, *grpc.StreamServerInfo, grpc.StreamHandler) error {
		return status.Error(codes.PermissionDenied, "no chats today")
	}
	conn, stop := dialled([]grpcx.ServerOption{grpcx.ChainStreamInterceptor(closed)})
	defer stop()
	chat, err := greeter.NewGreeterClient(conn).Chat(context.Background(), grpc.WaitForReady(true))
	if err != nil {
		log.Fatal(err)
	}
	_, err = chat.Recv()
	fmt.Println(err)
	// Output:
	// rpc error: code = PermissionDenied desc = no chats today
}

func ExampleMaxRecvMsgSize() {
	conn, stop := dialled([]grpcx.ServerOption{grpcx.MaxRecvMsgSize(10)})
	defer stop()
	greet(conn, strings.Repeat("x", 10))
	// Output:
	// rpc error: code = ResourceExhausted desc = grpc: received message larger than max (12 vs. 10)
}

func ExampleMaxSendMsgSize() {
	conn, stop := dialled([]grpcx.ServerOption{grpcx.MaxSendMsgSize(10)})
	defer stop()
	greet(conn, "somebody")
	// Output:
	// rpc error: code = ResourceExhausted desc = trying to send message larger than max (17 vs. 10)
}

func ExampleMaxConcurrentStreams() {
	conn, stop := dialled([]grpcx.ServerOption{grpcx.MaxConcurrentStreams(1)})
	defer stop()
	chat, err := greeter.NewGreeterClient(conn).Chat(context.Background(), grpc.WaitForReady(true))
	if err != nil {
		log.Fatal(err)
	}
	if err := chat.Send(&greeter.HelloRequest{Name: "first"}); err != nil {
		log.Fatal(err)
	}
	if _, err := chat.Recv(); err != nil {
		log.Fatal(err)
	}
	greet(conn, "second")
	if err := chat.CloseSend(); err != nil {
		log.Fatal(err)
	}
	_, err = chat.Recv()
	fmt.Println(err)
	// Output:
	// rpc error: code = ResourceExhausted desc = grpcx: the server runs 1 calls already
	// EOF
}

func ExampleAddr() {
	conn, stop := dialled(nil)
	defer stop()
	var p peer.Peer
	_, err := greeter.NewGreeterClient(conn).SayHello(context.Background(), &greeter.HelloRequest{}, grpc.WaitForReady(true), grpc.Peer(&p))
	fmt.Println(p.Addr.Network(), p.Addr, err)
	// Output:
	// rdmad b <nil>
}

func ExampleAddr_String() {
	fmt.Println(grpcx.Addr{Node: "a"})
	// Output:
	// a
}

func ExampleAddr_Network() {
	fmt.Println(grpcx.Addr{Node: "a"}.Network())
	// Output:
	// rdmad
}
