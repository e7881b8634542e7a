package client_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/rdmad/rdmad/client"
)

func ExampleOrdered() {
	socket, stop := demo()
	defer stop()
	ctx := context.Background()
	conn, err := client.Attach(ctx, socket)
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	m, err := conn.Method(ctx, "b/demo/log")
	if err != nil {
		log.Fatal(err)
	}
	const account = 4711
	m = m.With(client.Ordered(account))
	for _, event := range []string{"opened", "paid in", "closed"} {
		if err := m.Post(ctx, []byte(event)); err != nil {
			log.Fatal(err)
		}
	}
	// Answered after the handlers of all of them have returned.
	if _, err := m.Call(ctx, []byte("balanced")); err != nil {
		log.Fatal(err)
	}
	// Output:
	// b: opened
	// b: paid in
	// b: closed
	// b: balanced
}

func ExampleWithin() {
	socket, stop := demo()
	defer stop()
	ctx := context.Background()
	conn, err := client.Attach(ctx, socket)
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	m, err := conn.Method(ctx, "b/demo/greet")
	if err != nil {
		log.Fatal(err)
	}
	m = m.With(client.Ordered(1), client.Within(1000)) // the method declares answers of up to 960 bytes
	answer, err := m.Call(ctx, []byte("world"))
	if err != nil {
		log.Fatal(err)
	}
	_, err = m.Call(ctx, make([]byte, 1001))
	fmt.Printf("%s, %v\n", answer, errors.Is(err, client.ErrTooLarge))
	// Output:
	// hello, world, true
}

func ExamplePinLane() {
	socket, stop := demo()
	defer stop()
	ctx := context.Background()
	conn, err := client.Attach(ctx, socket)
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	greet, err := conn.Method(ctx, "b/demo/greet")
	if err != nil {
		log.Fatal(err)
	}
	for _, tenant := range []struct {
		id   uint64
		name string
	}{{1, "red"}, {2, "blue"}} {
		// All requests of a tenant use the same lane.
		answer, err := greet.With(client.PinLane(tenant.id)).Call(ctx, []byte(tenant.name))
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%s\n", answer)
	}
	// Output:
	// hello, red
	// hello, blue
}
