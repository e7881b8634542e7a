package client_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/rdmad/rdmad/client"
)

func ExampleMethod_GoInto() {
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
	answer := make([]byte, 0, 64) // used again for each answer
	for _, word := range []string{"one", "two"} {
		future, err := m.GoInto(ctx, []byte(word), answer)
		if err != nil {
			log.Fatal(err)
		}
		if answer, err = future.Wait(ctx); err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%s\n", answer)
		future.Release()
	}
	// Output:
	// ONE
	// TWO
}

func ExampleFuture_Wait() {
	socket, stop := demo()
	defer stop()
	ctx := context.Background()
	conn, err := client.Attach(ctx, socket)
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	m, err := conn.Method(ctx, "b/demo/slow")
	if err != nil {
		log.Fatal(err)
	}
	future, err := m.Go(ctx, nil)
	if err != nil {
		log.Fatal(err)
	}
	short, cancel := context.WithTimeout(ctx, time.Millisecond)
	defer cancel()
	_, err = future.Wait(short)
	fmt.Println(errors.Is(err, client.ErrDeadline))
	answer, err := future.Wait(ctx) // the future has gone on
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s\n", answer)
	// Output:
	// true
	// at last
}

func ExampleFuture_Done() {
	socket, stop := demo()
	defer stop()
	ctx := context.Background()
	conn, err := client.Attach(ctx, socket)
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	m, err := conn.Method(ctx, "b/demo/slow")
	if err != nil {
		log.Fatal(err)
	}
	future, err := m.Go(ctx, nil)
	if err != nil {
		log.Fatal(err)
	}
	select {
	case <-future.Done():
		answer, err, _ := future.Result()
		fmt.Printf("%s %v\n", answer, err)
	case <-time.After(time.Minute):
		fmt.Println("too slow")
	}
	// Output:
	// at last <nil>
}

func ExampleFuture_Result() {
	socket, stop := demo()
	defer stop()
	ctx := context.Background()
	conn, err := client.Attach(ctx, socket)
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	m, err := conn.Method(ctx, "b/demo/slow")
	if err != nil {
		log.Fatal(err)
	}
	future, err := m.Go(ctx, nil)
	if err != nil {
		log.Fatal(err)
	}
	_, _, ok := future.Result()
	fmt.Println(ok)
	if _, err := future.Wait(ctx); err != nil {
		log.Fatal(err)
	}
	answer, err, ok := future.Result()
	fmt.Printf("%s %v %v\n", answer, err, ok)
	// Output:
	// false
	// at last <nil> true
}

func ExampleFuture_Cancel() {
	socket, stop := demo()
	defer stop()
	ctx := context.Background()
	conn, err := client.Attach(ctx, socket)
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	m, err := conn.Method(ctx, "b/demo/slow")
	if err != nil {
		log.Fatal(err)
	}
	future, err := m.Go(ctx, nil)
	if err != nil {
		log.Fatal(err)
	}
	taken := future.Cancel() // true only if it has not been sent yet
	_, err = future.Wait(ctx)
	// What was not taken back may still be dropped by the peer before its handler
	// starts (ErrNotExecuted, too), or have the outcome of any other call.
	fmt.Println(!taken || errors.Is(err, client.ErrNotExecuted))
	// Output:
	// true
}

func ExampleFuture_Release() {
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
	for range 3 {
		future, err := m.Go(ctx, []byte("again"))
		if err != nil {
			log.Fatal(err)
		}
		answer, err := future.Wait(ctx)
		if err != nil {
			log.Fatal(err)
		}
		future.Release() // not to be used any more; the answer stays
		fmt.Printf("%s\n", answer)
	}
	// Output:
	// hello, again
	// hello, again
	// hello, again
}
