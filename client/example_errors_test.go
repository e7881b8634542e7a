package client_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/rdmad/rdmad/client"
)

func ExampleRemoteError() {
	socket, stop := demo()
	defer stop()
	ctx := context.Background()
	conn, err := client.Attach(ctx, socket)
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	_, err = conn.Call(ctx, "b/demo/refuse", nil)
	var remote *client.RemoteError
	if errors.As(err, &remote) {
		fmt.Println(remote.Target, "says:", remote.Text)
	}
	fmt.Println(errors.Is(err, client.ErrRemote))
	// Output:
	// b/demo/refuse says: not today
	// true
}

func ExampleTooLargeError() {
	socket, stop := demo()
	defer stop()
	ctx := context.Background()
	conn, err := client.Attach(ctx, socket)
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	upper, err := conn.Method(ctx, "b/demo/upper")
	if err != nil {
		log.Fatal(err)
	}
	_, err = upper.With(client.Direct()).Call(ctx, make([]byte, 100<<20))
	var large *client.TooLargeError
	if errors.As(err, &large) {
		fmt.Println(large.What, "of", large.Size, "bytes, at most", large.Limit)
	}
	fmt.Println(errors.Is(err, client.ErrTooLarge))
	// Output:
	// request of 104857600 bytes, at most 2125696
	// true
}

func ExampleDeadlineError() {
	socket, stop := demo()
	defer stop()
	ctx := context.Background()
	conn, err := client.Attach(ctx, socket)
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	short, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
	defer cancel()
	_, err = conn.Call(short, "b/demo/slow", nil)
	var late *client.DeadlineError
	if errors.As(err, &late) {
		// late.Sent says whether it may have been executed.
		fmt.Println("too late:", late.Target)
	}
	fmt.Println(errors.Is(err, client.ErrDeadline), errors.Is(err, context.DeadlineExceeded))
	// Output:
	// too late: b/demo/slow
	// true true
}

func ExampleRemoteError_Error() {
	err := &client.RemoteError{Target: "b/demo/refuse", Text: "not today"}
	fmt.Println(err)
	// Output:
	// b/demo/refuse: not today
}

func ExampleTooLargeError_Error() {
	err := &client.TooLargeError{Target: "b/demo/upper", What: "request", Size: 5000, Limit: 960}
	fmt.Println(err)
	// Output:
	// b/demo/upper: request of 5000 bytes, at most 960
}

func ExampleDeadlineError_Error() {
	err := &client.DeadlineError{Target: "b/demo/slow", Cause: context.DeadlineExceeded}
	fmt.Println(err)
	// Output:
	// b/demo/slow: context deadline exceeded; the request was not executed
}

func ExampleDeadlineError_Is() {
	var err error = &client.DeadlineError{Target: "b/demo/slow", Sent: true, Cause: context.Canceled}
	fmt.Println(errors.Is(err, client.ErrMaybeExecuted), errors.Is(err, client.ErrNotExecuted))
	// Output:
	// true false
}

func ExampleDeadlineError_Unwrap() {
	var err error = &client.DeadlineError{Target: "b/demo/slow", Cause: context.Canceled}
	fmt.Println(errors.Is(err, context.Canceled))
	// Output:
	// true
}

func ExampleRemoteError_Is() {
	var err error = &client.RemoteError{Target: "b/demo/refuse", Text: "not today"}
	fmt.Println(errors.Is(err, client.ErrRemote))
	// Output:
	// true
}

func ExampleTooLargeError_Is() {
	var err error = &client.TooLargeError{Target: "b/demo/upper", What: "answer", Limit: 960}
	fmt.Println(errors.Is(err, client.ErrTooLarge))
	// Output:
	// true
}
