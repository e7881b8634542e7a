package grpcx_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"strings"

	"google.golang.org/grpc"

	"github.com/rdmad/rdmad/client"
	"github.com/rdmad/rdmad/grpcx"
	"github.com/rdmad/rdmad/grpcx/internal/greeter"
	"github.com/rdmad/rdmad/internal/daemontest"
	"github.com/rdmad/rdmad/server"
)

// polite is a Greeter as anybody would write it for gRPC.
type polite struct {
	greeter.UnimplementedGreeterServer
}

func (polite) SayHello(_ context.Context, r *greeter.HelloRequest) (*greeter.HelloReply, error) {
	return &greeter.HelloReply{Message: "hello, " + r.GetName()}, nil
}

func (polite) GreetAll(stream grpc.ClientStreamingServer[greeter.HelloRequest, greeter.HelloReply]) error {
	var names []string
	for {
		r, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return stream.SendAndClose(&greeter.HelloReply{Message: "hello, " + strings.Join(names, " and ")})
		}
		if err != nil {
			return err
		}
		names = append(names, r.GetName())
	}
}

func (polite) Chat(stream grpc.BidiStreamingServer[greeter.HelloRequest, greeter.HelloReply]) error {
	for {
		r, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := stream.Send(&greeter.HelloReply{Message: "hello, " + r.GetName()}); err != nil {
			return err
		}
	}
}

// nodes starts two nodes. A program finds its node's socket in the environment or in
// the default place, and attaches with an empty one.
func nodes() (socketA, socketB string, stop func()) {
	n := startNodes()
	return n.A.Socket, n.B.Socket, func() { must(n.Stop()) }
}

func startNodes() *daemontest.Nodes {
	n, err := daemontest.Start("")
	must(err)
	return n
}

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// served starts two nodes and serves Greeter on node b.
func served(opts ...grpcx.ServerOption) (socketA string, stop func()) {
	socketA, _, stop = servedAgain(opts...)
	return socketA, stop
}

// servedAgain is served, with what restarts the daemon of node a.
func servedAgain(opts ...grpcx.ServerOption) (socketA string, restart, stop func()) {
	n := startNodes()
	rdma, err := server.Attach(context.Background(), n.B.Socket)
	must(err)
	srv := grpcx.NewServer(rdma, opts...)
	greeter.RegisterGreeterServer(srv, polite{})
	done := make(chan error, 1)
	go func() { done <- srv.Serve(context.Background()) }()
	return n.A.Socket, func() { must(n.A.Restart()) }, func() {
		_ = rdma.Close()
		<-done
		must(n.Stop())
	}
}

// dialled is served with a connection from node a.
func dialled(server []grpcx.ServerOption, opts ...grpcx.DialOption) (conn *grpcx.Conn, stop func()) {
	socket, stopServing := served(server...)
	rdma, err := client.Attach(context.Background(), socket)
	if err != nil {
		log.Fatal(err)
	}
	conn, err = grpcx.NewClient(rdma, append(opts, grpcx.Node("b"))...)
	if err != nil {
		log.Fatal(err)
	}
	return conn, func() {
		_ = conn.Close()
		_ = rdma.Close()
		stopServing()
	}
}

// greet calls once, as soon as the service is there, and prints what comes back.
func greet(conn grpc.ClientConnInterface, name string) {
	reply, err := greeter.NewGreeterClient(conn).SayHello(context.Background(), &greeter.HelloRequest{Name: name}, grpc.WaitForReady(true))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(reply.GetMessage())
}
