package client_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/rdmad/rdmad/client"
)

// upper calls demo/upper with n letters and options, and prints how many come back.
func upper(n int, opts ...client.CallOption) {
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
	answer, err := m.With(opts...).Call(ctx, make([]byte, n))
	fmt.Println(len(answer), errors.Is(err, client.ErrTooLarge))
}

func Example_largeMessages() {
	upper(10_000_000)
	// Output:
	// 10000000 false
}

func ExampleDirect() {
	upper(10_000_000, client.Direct()) // no run of slots holds it
	// Output:
	// 0 true
}

func ExampleSplit() {
	upper(10_000, client.Split()) // by way of a region
	// Output:
	// 10000 false
}

func ExampleRendezvous() {
	upper(10_000_000, client.Rendezvous(64<<20)) // in slots, part by part
	// Output:
	// 10000000 false
}
