package client_test

import (
	"context"
	"fmt"
	"log"

	"github.com/rdmad/rdmad/client"
)

func ExampleMethod_GoTo() {
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
	words := []string{"in", "any", "order"}
	answers := make([]string, len(words))
	q := conn.NewQueue()
	for i, word := range words {
		if err := m.GoTo(ctx, q, []byte(word), uint64(i)); err != nil {
			log.Fatal(err)
		}
	}
	for i, r := range q.All(ctx) {
		if r.Err != nil {
			log.Fatal(r.Err)
		}
		answers[i] = string(r.Answer)
	}
	fmt.Println(answers)
	// Output:
	// [IN ANY ORDER]
}

func ExampleQueue_All() {
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
	// Ten requests are under way until a hundred have been sent.
	q := conn.NewQueue()
	sent, bytes := uint64(0), 0
	send := func() {
		if err := m.GoTo(ctx, q, []byte("word"), sent); err != nil {
			log.Fatal(err)
		}
		sent++
	}
	for q.Len() < 10 {
		send()
	}
	for _, r := range q.All(ctx) {
		if r.Err != nil {
			log.Fatal(r.Err)
		}
		if bytes += len(r.Answer); sent < 100 {
			send()
		}
	}
	fmt.Println(bytes, "bytes")
	// Output:
	// 400 bytes
}

func ExampleConn_Completions() {
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
	if err := m.GoTo(ctx, conn.Queue(), []byte("word"), 1); err != nil {
		log.Fatal(err)
	}
	for tag, r := range conn.Completions(ctx) {
		fmt.Printf("%d %s %v\n", tag, r.Answer, r.Err)
	}
	// Output:
	// 1 WORD <nil>
}

func ExampleConn_Queue() {
	socket, stop := demo()
	defer stop()
	conn, err := client.Attach(context.Background(), socket)
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	fmt.Println(conn.Queue().Len())
	// Output:
	// 0
}

func ExampleConn_NewQueue() {
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
	if err := m.GoTo(ctx, q, []byte("word"), 7); err != nil {
		log.Fatal(err)
	}
	fmt.Println(q.Len(), "under way")
	for tag, r := range q.All(ctx) {
		fmt.Println(tag, string(r.Answer))
	}
	fmt.Println(q.Len(), "under way")
	// Output:
	// 1 under way
	// 7 WORD
	// 0 under way
}

func ExampleQueue_Len() {
	socket, stop := demo()
	defer stop()
	conn, err := client.Attach(context.Background(), socket)
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	fmt.Println(conn.NewQueue().Len())
	// Output:
	// 0
}
