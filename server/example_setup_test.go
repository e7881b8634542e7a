package server_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/rdmad/rdmad/client"
	"github.com/rdmad/rdmad/internal/daemontest"
	"github.com/rdmad/rdmad/server"
)

// node starts a node and returns its socket, which a program finds in the
// environment or in the default place.
func node() (socket string, stop func()) {
	nodes, err := daemontest.Start("")
	if err != nil {
		log.Fatal(err)
	}
	return nodes.A.Socket, func() {
		if err := nodes.Stop(); err != nil {
			log.Fatal(err)
		}
	}
}

// try serves demo/method with h, calls it once and prints what the caller gets.
func try(h server.Handler, request string, opts ...server.MethodOption) {
	socket, stop := node()
	defer stop()
	ctx := context.Background()
	srv, err := server.Attach(ctx, socket)
	if err != nil {
		log.Fatal(err)
	}
	defer srv.Close()
	if err := srv.Handle("demo", "method", h, opts...); err != nil {
		log.Fatal(err)
	}
	go func() { _ = srv.Serve(ctx) }()
	call(socket, "demo/method", request)
}

// call prints what a caller gets.
func call(socket, target, request string) {
	ctx := context.Background()
	conn, err := client.Attach(ctx, socket)
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	answer, err := conn.Call(ctx, target, []byte(request))
	var remote *client.RemoteError
	switch {
	case errors.As(err, &remote):
		fmt.Println("error:", remote.Text)
	case errors.Is(err, client.ErrTooLarge):
		fmt.Println("error: answer too large")
	case err != nil:
		fmt.Println("error:", err)
	default:
		fmt.Printf("answer: %s\n", answer)
	}
}
