package client_test

import (
	"context"
	"fmt"
	"log"

	"github.com/rdmad/rdmad/client"
)

func ExampleMethod_CallFunc() {
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
	// The answer is counted where it has arrived; nothing of it is kept.
	vowels := 0
	err = m.CallFunc(ctx, []byte("in place"), func(answer []byte) error {
		for _, ch := range answer {
			switch ch {
			case 'A', 'E', 'I', 'O', 'U':
				vowels++
			}
		}
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(vowels, "vowels")
	// Output:
	// 3 vowels
}
