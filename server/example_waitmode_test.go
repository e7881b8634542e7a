package server_test

import (
	"context"
	"log"
	"time"

	"github.com/rdmad/rdmad/server"
)

// serveMode serves demo/greet with a way to wait, calls it and prints the answer.
func serveMode(mode server.Mode) {
	socket, stop := node()
	defer stop()
	ctx := context.Background()
	srv, err := server.Attach(ctx, socket, server.WaitMode(mode))
	if err != nil {
		log.Fatal(err)
	}
	defer srv.Close()
	err = srv.Handle("demo", "greet", func(c *server.Call) error {
		return c.Reply([]byte("hello, " + string(c.Request())))
	})
	if err != nil {
		log.Fatal(err)
	}
	go func() { _ = srv.Serve(ctx) }()
	call(socket, "demo/greet", "caller")
}

func ExampleWaitMode() {
	serveMode(server.Busy)
	// Output:
	// answer: hello, caller
}

func ExampleAdaptive() {
	serveMode(server.Adaptive(50 * time.Microsecond))
	// Output:
	// answer: hello, caller
}
