package server_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/rdmad/rdmad/client"
	"github.com/rdmad/rdmad/internal/daemontest"
	"github.com/rdmad/rdmad/server"
)

// A service from beginning to end.
func Example() {
	socket, stop := node()
	defer stop()
	ctx, cancel := context.WithCancel(context.Background())

	srv, err := server.Attach(ctx, socket)
	if err != nil {
		log.Fatal(err)
	}
	defer srv.Close()
	err = srv.Handle("greeter", "greet", func(c *server.Call) error {
		return c.Reply(fmt.Appendf(nil, "hello, %s", c.Request()))
	})
	if err != nil {
		log.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- srv.Serve(ctx) }()

	call(socket, "greeter/greet", "world")
	cancel()
	fmt.Println("served:", <-done)
	// Output:
	// answer: hello, world
	// served: <nil>
}

func ExampleAttach() {
	socket, stop := node()
	defer stop()
	// An empty socket means $RDMAD_SOCKET or /run/rdmad/rdmad.sock.
	srv, err := server.Attach(context.Background(), socket)
	if err != nil {
		log.Fatal(err)
	}
	defer srv.Close()
	fmt.Println("attached to node", srv.Node())
	// Output:
	// attached to node a
}

func ExampleAttach_notRunning() {
	_, err := server.Attach(context.Background(), "/tmp/nobody-listens-here.sock")
	fmt.Println(errors.Is(err, server.ErrNotRunning))
	// Output:
	// true
}

func ExampleName() {
	socket, stop := node()
	defer stop()
	srv, err := server.Attach(context.Background(), socket, server.Name("indexer"))
	if err != nil {
		log.Fatal(err)
	}
	defer srv.Close()
	fmt.Println("\"rdmad status\" lists this process as indexer")
	// Output:
	// "rdmad status" lists this process as indexer
}

func ExampleWorkers() {
	socket, stop := node()
	defer stop()
	ctx := context.Background()
	// Up to 16 handlers at once, for handlers that wait for disks or others.
	srv, err := server.Attach(ctx, socket, server.Workers(16))
	if err != nil {
		log.Fatal(err)
	}
	defer srv.Close()
	if err := srv.Handle("demo", "method", func(c *server.Call) error { return c.Reply([]byte("ok")) }); err != nil {
		log.Fatal(err)
	}
	go func() { _ = srv.Serve(ctx) }()
	call(socket, "demo/method", "")
	// Output:
	// answer: ok
}

func ExampleServer_Handle() {
	socket, stop := node()
	defer stop()
	ctx := context.Background()
	srv, err := server.Attach(ctx, socket)
	if err != nil {
		log.Fatal(err)
	}
	defer srv.Close()
	go func() { _ = srv.Serve(ctx) }()
	for _, name := range []string{"ping", "pong"} {
		if err := srv.Handle("game", name, func(c *server.Call) error { return c.Reply([]byte(name)) }); err != nil {
			log.Fatal(err)
		}
	}
	call(socket, "game/ping", "")
	call(socket, "game/pong", "")
	err = srv.Handle("game", "not a name", nil)
	fmt.Println(errors.Is(err, server.ErrInvalid))
	// Output:
	// answer: ping
	// answer: pong
	// true
}

func ExampleServer_Serve() {
	socket, stop := node()
	defer stop()
	srv, err := server.Attach(context.Background(), socket)
	if err != nil {
		log.Fatal(err)
	}
	defer srv.Close()
	ctx, cancel := context.WithCancel(context.Background())
	cancel() // for example on SIGTERM; see signal.NotifyContext
	fmt.Println(srv.Serve(ctx))
	// Output:
	// <nil>
}

// A service that goes on with the next daemon when its own has gone.
func ExampleServer_Serve_again() {
	nodes, err := daemontest.Start("")
	if err != nil {
		log.Fatal(err)
	}
	defer nodes.Stop()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	registered := make(chan string)
	serve := func() error { // until the daemon goes, or ctx ends
		srv, err := server.Attach(ctx, nodes.A.Socket)
		if err != nil {
			return err
		}
		defer srv.Close()
		err = srv.Handle("greeter", "greet", func(c *server.Call) error {
			return c.Reply(fmt.Appendf(nil, "hello, %s", c.Request()))
		})
		if err != nil {
			return err
		}
		registered <- "registered"
		return srv.Serve(ctx)
	}
	done := make(chan error, 1)
	go func() {
		err := serve()
		for errors.Is(err, server.ErrClosed) || errors.Is(err, server.ErrNotRunning) {
			<-time.After(100 * time.Millisecond) // before the next attempt
			err = serve()
		}
		done <- err
	}()

	fmt.Println(<-registered)
	call(nodes.A.Socket, "greeter/greet", "world")
	if err := nodes.A.Restart(); err != nil {
		log.Fatal(err)
	}
	fmt.Println(<-registered)
	call(nodes.A.Socket, "greeter/greet", "world again")
	cancel()
	fmt.Println("served:", <-done)
	// Output:
	// registered
	// answer: hello, world
	// registered
	// answer: hello, world again
	// served: <nil>
}

func ExampleServer_Close() {
	socket, stop := node()
	defer stop()
	srv, err := server.Attach(context.Background(), socket)
	if err != nil {
		log.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- srv.Serve(context.Background()) }()
	fmt.Println(srv.Close())
	err = <-done
	fmt.Println(errors.Is(err, server.ErrClosed) || errors.Is(err, server.ErrInvalid)) // or Close came first
	// Output:
	// <nil>
	// true
}

func ExampleServer_Node() {
	socket, stop := node()
	defer stop()
	srv, err := server.Attach(context.Background(), socket)
	if err != nil {
		log.Fatal(err)
	}
	defer srv.Close()
	fmt.Println(srv.Node())
	// Output:
	// a
}

func ExampleServer_Withdraw() {
	socket, stop := node()
	defer stop()
	ctx := context.Background()
	offer := func(name string) *server.Server {
		srv, err := server.Attach(ctx, socket)
		if err == nil {
			err = srv.Handle("demo", "who", func(c *server.Call) error { return c.Reply([]byte(name)) })
		}
		if err != nil {
			log.Fatal(err)
		}
		go func() { _ = srv.Serve(ctx) }()
		return srv
	}
	// In a program each has its own process.
	before := offer("the old release")
	after := offer("the new release")
	defer after.Close()
	if err := before.Withdraw(ctx); err != nil {
		log.Fatal(err)
	}
	call(socket, "demo/who", "")
	// What it had begun with has ended then.
	fmt.Println("closed:", before.Close())
	// Output:
	// answer: the new release
	// closed: <nil>
}

func ExampleServer_Fetched() {
	socket, stop := node()
	defer stop()
	ctx := context.Background()
	srv, err := server.Attach(ctx, socket)
	if err != nil {
		log.Fatal(err)
	}
	if err := srv.HandleStream("demo", "page", func(s *server.Stream) error {
		return s.Send(make([]byte, 400<<10)) // more than callers have room for
	}); err != nil {
		log.Fatal(err)
	}
	go func() { _ = srv.Serve(ctx) }()
	conn, err := client.Attach(ctx, socket)
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	s, err := conn.Stream(ctx, "demo/page")
	if err != nil {
		log.Fatal(err)
	}
	if err := srv.Withdraw(ctx); err != nil {
		log.Fatal(err)
	}
	fetched := make(chan error, 1)
	go func() { fetched <- srv.Fetched(ctx) }()
	for {
		page, err := s.Recv(ctx)
		if err != nil {
			fmt.Println("end:", err)
			break
		}
		fmt.Println("received:", len(page))
	}
	// Its callers have everything: the process may end.
	fmt.Println("fetched:", <-fetched)
	if err := srv.Close(); err != nil {
		log.Fatal(err)
	}
	// Output:
	// received: 409600
	// end: EOF
	// fetched: <nil>
}
