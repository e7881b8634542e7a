// Command greeter is a gRPC service over rdmad, and its client.
//
//	greeter serve          # answers until SIGTERM
//	greeter call b world   # calls the service of node b
//
// Both go on when the daemon of their node is started again.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"

	"google.golang.org/grpc"

	"github.com/rdmad/rdmad/grpcx"
	pb "github.com/rdmad/rdmad/grpcx/internal/greeter" // yours: what protoc-gen-go and protoc-gen-go-grpc have made
	"github.com/rdmad/rdmad/server"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var err error
	switch args := os.Args[1:]; {
	case len(args) == 1 && args[0] == "serve":
		err = serve(ctx, "")
	case len(args) == 3 && args[0] == "call":
		err = call(ctx, "", args[1], args[2])
	default:
		err = errors.New("usage: greeter serve | call NODE NAME")
	}
	if err != nil {
		log.Fatal(err)
	}
}

// call greets name on a node.
func call(ctx context.Context, socket, node, name string) error {
	conn, err := grpcx.Dial(socket, grpcx.Node(node)) // without Node: whatever node serves the method, this one first
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	// The service may not be there yet, and this node's daemon neither.
	reply, err := pb.NewGreeterClient(conn).SayHello(ctx, &pb.HelloRequest{Name: name}, grpc.WaitForReady(true))
	if err != nil {
		return err
	}
	fmt.Println(reply.GetMessage())
	return nil
}

// greeter is the service.
type greeter struct{ pb.UnimplementedGreeterServer }

// SayHello greets one.
func (greeter) SayHello(_ context.Context, r *pb.HelloRequest) (*pb.HelloReply, error) {
	return &pb.HelloReply{Message: "hello, " + r.GetName()}, nil
}

// serve answers calls until ctx ends. When the daemon goes it attaches to the next one.
func serve(ctx context.Context, socket string) error {
	for {
		err := serveAttached(ctx, socket)
		switch {
		case ctx.Err() != nil:
			return nil
		case !errors.Is(err, server.ErrClosed) && !errors.Is(err, server.ErrNotRunning):
			return err
		}
		log.Print(err)
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
		}
	}
}

// serveAttached answers calls until the daemon goes, or ctx ends and those that run have ended.
func serveAttached(ctx context.Context, socket string) error {
	rdma, err := server.Attach(ctx, socket)
	if err != nil {
		return err
	}
	defer rdma.Close()
	srv := grpcx.NewServer(rdma)
	pb.RegisterGreeterServer(srv, greeter{})
	serving, end := context.WithCancel(context.Background())
	defer end()
	defer context.AfterFunc(ctx, func() {
		patience, enough := context.WithTimeout(serving, 10*time.Second)
		defer enough()
		if err := srv.GracefulStop(patience); err != nil {
			log.Print(err)
		}
		end()
	})()
	return srv.Serve(serving)
}
