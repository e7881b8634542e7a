package client_test

import (
	"context"
	"fmt"
	"log"

	"github.com/rdmad/rdmad/client"
)

func ExampleMethod_CallBatch() {
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
	results, err := m.With(client.Direct()).CallBatch(ctx, [][]byte{[]byte("all"), make([]byte, 64<<20), []byte("in order")})
	if err != nil {
		log.Fatal(err) // nothing was sent
	}
	for i, r := range results {
		if r.Err != nil {
			fmt.Println(i, r.Err)
			continue
		}
		fmt.Printf("%d %s\n", i, r.Answer)
	}
	// Output:
	// 0 ALL
	// 1 b/demo/upper: request of 67108864 bytes, at most 2125696 (see [[class]] in the daemon's configuration)
	// 2 IN ORDER
}
