package client_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/rdmad/rdmad/client"
)

func ExampleWaitMode() {
	socket, stop := demo()
	defer stop()
	ctx := context.Background()
	conn, err := client.Attach(ctx, socket, client.WaitMode(client.Busy))
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	answer, err := conn.Call(ctx, "b/demo/greet", []byte("whoever polls"))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s\n", answer)
	// Output:
	// hello, whoever polls
}

func ExampleAdaptive() {
	socket, stop := demo()
	defer stop()
	ctx := context.Background()
	conn, err := client.Attach(ctx, socket, client.WaitMode(client.Adaptive(50*time.Microsecond)))
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	answer, err := conn.Call(ctx, "b/demo/greet", []byte("whoever has patience"))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s\n", answer)
	// Output:
	// hello, whoever has patience
}
