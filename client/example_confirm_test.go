package client_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/rdmad/rdmad/client"
)

func ExampleMethod_PostConfirmed() {
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
	posted, err := m.PostConfirmed(ctx, []byte("it has begun"))
	if err != nil {
		log.Fatal(err)
	}
	defer posted.Release()
	// The handler runs meanwhile.
	if _, err := posted.Wait(ctx); err != nil {
		log.Fatal(err)
	}
	fmt.Println("a: it is logged")
	// Output:
	// b: it has begun
	// a: it is logged
}

func ExampleConn_PostConfirmed() {
	socket, stop := demo()
	defer stop()
	ctx := context.Background()
	conn, err := client.Attach(ctx, socket)
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	posted, err := conn.PostConfirmed(ctx, "b/demo/refuse", []byte("please"))
	if err != nil {
		log.Fatal(err)
	}
	_, err = posted.Wait(ctx)
	var remote *client.RemoteError
	if errors.As(err, &remote) {
		fmt.Println("executed, and refused:", remote.Text)
	}
	// Output:
	// executed, and refused: not today
}

func ExampleMethod_PostTo() {
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
	q := conn.NewQueue()
	for i := range uint64(100) {
		if err := m.PostTo(ctx, q, []byte("word"), i); err != nil {
			log.Fatal(err)
		}
	}
	done := 0
	for i, r := range q.All(ctx) {
		if r.Err != nil {
			log.Fatalf("message %d: %v", i, r.Err)
		}
		done++
	}
	fmt.Println(done, "messages are done")
	// Output:
	// 100 messages are done
}
