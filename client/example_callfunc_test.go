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

// inPlace calls demo/greet and lets f read the answer where it has arrived.
func inPlace(f func(answer client.Answer)) {
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
	r, err := m.Reserve(ctx, len("world"))
	if err != nil {
		log.Fatal(err)
	}
	copy(r.Bytes(), "world")
	answer, err := r.CallInPlace(ctx)
	if err != nil {
		log.Fatal(err)
	}
	f(answer)
}

func ExampleMethod_CallInPlace() {
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
	answer, err := m.CallInPlace(ctx, []byte("world"))
	if err != nil {
		log.Fatal(err)
	}
	defer answer.Release()
	fmt.Printf("%s\n", answer.Bytes())
	// Output:
	// hello, world
}

func ExampleRequest_CallInPlace() {
	inPlace(func(answer client.Answer) { // neither request nor answer was copied
		defer answer.Release()
		fmt.Printf("%s\n", answer.Bytes())
	})
	// Output:
	// hello, world
}

func ExampleAnswer_Bytes() {
	inPlace(func(answer client.Answer) {
		defer answer.Release()
		fmt.Println(len(answer.Bytes()))
	})
	// Output:
	// 12
}

func ExampleAnswer_Release() {
	inPlace(func(answer client.Answer) {
		answer.Release()
		answer.Release() // does nothing
		fmt.Println(answer.Bytes() == nil)
	})
	// Output:
	// true
}

// pending asks demo/greet for two answers that are left where they arrive.
func pending(f func(first, second client.Pending)) {
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
	first, err := m.GoInPlace(ctx, []byte("world"))
	if err != nil {
		log.Fatal(err)
	}
	second, err := m.GoInPlace(ctx, []byte("moon"))
	if err != nil {
		log.Fatal(err)
	}
	f(first, second)
}

func ExampleMethod_GoInPlace() {
	pending(func(first, second client.Pending) { // both are under way
		for _, p := range []client.Pending{first, second} {
			answer, err := p.Wait(context.Background())
			if err != nil {
				log.Fatal(err)
			}
			fmt.Printf("%s\n", answer.Bytes())
			answer.Release()
		}
	})
	// Output:
	// hello, world
	// hello, moon
}

func ExamplePending_Wait() {
	pending(func(first, second client.Pending) {
		answer, err := second.Wait(context.Background())
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%s\n", answer.Bytes())
		answer.Release()
		// Nobody needs the first any more: its slots are freed when its answer comes, or at once if it is there.
		over, cancel := context.WithCancel(context.Background())
		cancel()
		if answer, err := first.Wait(over); err == nil {
			answer.Release()
		}
	})
	// Output:
	// hello, moon
}

func ExamplePending_Ready() {
	pending(func(first, second client.Pending) {
		for _, p := range []client.Pending{second, first} {
			answer, err := p.Wait(context.Background())
			if err != nil {
				log.Fatal(err)
			}
			answer.Release()
		}
		fmt.Println(first.Ready(), second.Ready()) // an answer that was waited for is ready no more
	})
	// Output:
	// false false
}
