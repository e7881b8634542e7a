package client_test

import (
	"context"
	"fmt"
	"log"

	"github.com/rdmad/rdmad/client"
)

func ExampleCarry() {
	socket, stop := demo()
	defer stop()
	ctx := context.Background()
	conn, err := client.Attach(ctx, socket)
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	m, err := conn.Method(ctx, "b/demo/upper")
	if err != nil {
		log.Fatal(err)
	}
	// The handler sees the request without it. See server.Call.Carried for the other end.
	answer, err := m.With(client.Carry([]byte("request 17 of order 4711"))).Call(ctx, []byte("hello"))
	fmt.Printf("%s %v\n", answer, err)
	// Output:
	// HELLO <nil>
}
