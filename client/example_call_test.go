package client_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"strings"

	"github.com/rdmad/rdmad/client"
)

func ExampleMethod_Call() {
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
	answer, err := m.Call(ctx, []byte("method"))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s\n", answer)
	// Output:
	// hello, method
}

func ExampleMethod_CallInto() {
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
	// With room for the answer a call allocates nothing.
	buf := make([]byte, 64)
	for _, word := range []string{"again", "and again"} {
		answer, err := m.CallInto(ctx, []byte(word), buf)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%s\n", answer)
	}
	// Output:
	// AGAIN
	// AND AGAIN
}

func ExampleMethod_Go() {
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
	var futures []*client.Future
	for _, word := range []string{"many", "at", "once"} {
		f, err := m.Go(ctx, []byte(word))
		if err != nil {
			log.Fatal(err)
		}
		futures = append(futures, f)
	}
	for _, f := range futures {
		answer, err := f.Wait(ctx)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%s\n", answer)
	}
	// Output:
	// MANY
	// AT
	// ONCE
}

func ExampleMethod_Post() {
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
	m = m.With(client.Ordered(1)) // else the call may be executed first
	if err := m.Post(ctx, []byte("posted")); err != nil {
		log.Fatal(err)
	}
	if _, err := m.Call(ctx, []byte("called")); err != nil {
		log.Fatal(err)
	}
	// Output:
	// b: posted
	// b: called
}

func ExampleMethod_Reserve() {
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
	// The request is written where it is sent from, without a copy.
	r, err := m.Reserve(ctx, 5)
	if err != nil {
		log.Fatal(err)
	}
	copy(r.Bytes(), "slots")
	future, err := r.Commit()
	if err != nil {
		log.Fatal(err)
	}
	answer, err := future.Wait(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s\n", answer)
	// Output:
	// SLOTS
}

func ExampleMethod_With() {
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
	impatient := m.With(client.NoWait(), client.AnswerSize(128))
	answer, err := impatient.Call(ctx, []byte("variant"))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s\n", answer)
	// Output:
	// VARIANT
}

func ExampleRequest_Bytes() {
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
	r, err := m.Reserve(ctx, 8)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(len(r.Bytes()))
	r.Abort() // it is not needed after all
	// Output:
	// 8
}

func ExampleRequest_Commit() {
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
	r, err := m.Reserve(ctx, 3)
	if err != nil {
		log.Fatal(err)
	}
	copy(r.Bytes(), "you")
	future, err := r.Commit()
	if err != nil {
		log.Fatal(err)
	}
	answer, err := future.Wait(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s\n", answer)
	_, err = r.Commit()
	fmt.Println(errors.Is(err, client.ErrInvalid))
	// Output:
	// hello, you
	// true
}

func ExampleRequest_Abort() {
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
	r, err := m.Reserve(ctx, 100)
	if err != nil {
		log.Fatal(err)
	}
	defer r.Abort() // does nothing after Commit
	fmt.Println("changed my mind")
	// Output:
	// changed my mind
}

func ExampleAnswerSize() {
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
	long := strings.Repeat("x", 2000)
	_, err = m.Call(ctx, []byte(long[:900])) // the method declares up to 960 bytes
	if err != nil {
		log.Fatal(err)
	}
	answer, err := m.With(client.AnswerSize(2100)).Call(ctx, []byte(long))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(len(answer))
	// Output:
	// 2007
}

func ExampleNoWait() {
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
	m = m.With(client.NoWait())
	for n := 0; ; n++ {
		if _, err := m.Go(ctx, make([]byte, 4000)); err != nil {
			fmt.Println(errors.Is(err, client.ErrBackpressure), n > 100)
			return
		}
	}
	// Output:
	// true true
}
