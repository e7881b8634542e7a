package client_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/rdmad/rdmad/client"
)

func ExampleIdempotent() {
	socket, stop := demo()
	defer stop()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	conn, err := client.Attach(ctx, socket)
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	m, err := conn.Method(ctx, "demo/upper") // on any node
	if err != nil {
		log.Fatal(err)
	}
	// To make letters capital twice does no harm.
	m = m.With(client.Idempotent())
	answer, err := m.Call(ctx, []byte("whatever happens to b"))
	fmt.Printf("%s %v\n", answer, err)
	// What cannot be sent again is refused.
	_, err = m.Reserve(ctx, 10)
	fmt.Println(errors.Is(err, client.ErrInvalid))
	// Output:
	// WHATEVER HAPPENS TO B <nil>
	// true
}
