package server_test

import (
	"context"
	"fmt"
	"log"

	"github.com/rdmad/rdmad/client"
	"github.com/rdmad/rdmad/server"
)

// nameKey is the key of a name in a context.
type nameKey struct{}

// named is what a wrapper of handlers does: it makes what goes with a request part of the
// context that the handler sees.
func named(h server.Handler) server.Handler {
	return func(c *server.Call) error {
		c.SetContext(context.WithValue(c.Context(), nameKey{}, string(c.Carried())))
		return h(c)
	}
}

// carry calls demo/call and begins the stream demo/stream, both with a name, and prints
// what they say.
func carry(call server.Handler, stream server.StreamHandler) {
	socket, stop := node()
	defer stop()
	ctx := context.Background()
	srv, err := server.Attach(ctx, socket)
	if err != nil {
		log.Fatal(err)
	}
	defer srv.Close()
	if err := srv.Handle("demo", "call", call); err != nil {
		log.Fatal(err)
	}
	if err := srv.HandleStream("demo", "stream", stream); err != nil {
		log.Fatal(err)
	}
	go func() { _ = srv.Serve(ctx) }()
	conn, err := client.Attach(ctx, socket)
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	for _, name := range []string{"call", "stream"} {
		m, err := conn.Method(ctx, "demo/"+name)
		if err != nil {
			log.Fatal(err)
		}
		m = m.With(client.Carry([]byte("Ada")))
		var answer []byte
		if name == "call" {
			answer, err = m.Call(ctx, []byte("good morning"))
		} else {
			var s *client.Stream
			if s, err = m.Stream(ctx); err == nil {
				answer, err = s.Recv(ctx)
				_ = s.Close()
			}
		}
		fmt.Printf("%s: %s %v\n", name, answer, err)
	}
}

// greet is a handler that uses the context.
func greet(c *server.Call) error {
	return c.Reply(fmt.Appendf(nil, "%s, %v", c.Request(), c.Context().Value(nameKey{})))
}

// greetStream is the same for a stream.
func greetStream(s *server.Stream) error {
	s.SetContext(context.WithValue(s.Context(), nameKey{}, string(s.Carried())))
	return s.Send(fmt.Appendf(nil, "welcome, %v", s.Context().Value(nameKey{})))
}

func ExampleCall_Carried() {
	carry(named(greet), greetStream)
	// Output:
	// call: good morning, Ada <nil>
	// stream: welcome, Ada <nil>
}

func ExampleCall_SetContext() {
	carry(named(greet), greetStream)
	// Output:
	// call: good morning, Ada <nil>
	// stream: welcome, Ada <nil>
}

func ExampleStream_Carried() {
	carry(named(greet), greetStream)
	// Output:
	// call: good morning, Ada <nil>
	// stream: welcome, Ada <nil>
}

func ExampleStream_SetContext() {
	carry(named(greet), greetStream)
	// Output:
	// call: good morning, Ada <nil>
	// stream: welcome, Ada <nil>
}
