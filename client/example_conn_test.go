package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"strings"
	"time"

	"github.com/rdmad/rdmad/client"
	"github.com/rdmad/rdmad/internal/daemontest"
)

func ExampleAttach() {
	socket, stop := demo()
	defer stop()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	// An empty socket means $RDMAD_SOCKET or /run/rdmad/rdmad.sock.
	conn, err := client.Attach(ctx, socket)
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	fmt.Println("attached to node", conn.Node())
	// Output:
	// attached to node a
}

func ExampleAttach_notRunning() {
	_, err := client.Attach(context.Background(), "/tmp/nobody-listens-here.sock")
	fmt.Println(errors.Is(err, client.ErrNotRunning))
	// Output:
	// true
}

func ExampleName() {
	socket, stop := demo()
	defer stop()
	ctx := context.Background()
	conn, err := client.Attach(ctx, socket, client.Name("importer"))
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	status, err := conn.Status(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(strings.Contains(string(status), "importer"))
	// Output:
	// true
}

func ExampleConn_Call() {
	socket, stop := demo()
	defer stop()
	ctx := context.Background()
	conn, err := client.Attach(ctx, socket)
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	answer, err := conn.Call(ctx, "b/demo/greet", []byte("world"))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s\n", answer)
	// Without a node: whichever serves it, this one first.
	answer, err = conn.Call(ctx, "demo/upper", []byte("any node"))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s\n", answer)
	// Output:
	// hello, world
	// ANY NODE
}

func ExampleConn_Go() {
	socket, stop := demo()
	defer stop()
	ctx := context.Background()
	conn, err := client.Attach(ctx, socket)
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	future, err := conn.Go(ctx, "b/demo/greet", []byte("future"))
	if err != nil {
		log.Fatal(err)
	}
	// ... do something else ...
	answer, err := future.Wait(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s\n", answer)
	// Output:
	// hello, future
}

func ExampleConn_Post() {
	socket, stop := demo()
	defer stop()
	ctx := context.Background()
	conn, err := client.Attach(ctx, socket)
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	if err := conn.Post(ctx, "b/demo/log", []byte("one way")); err != nil {
		log.Fatal(err)
	}
	// Nothing comes back: see PostConfirmed, and Ordered for messages that are to be executed one after the other.
	<-logged // by the handler, which is in this process here

	// Output:
	// b: one way
}

func ExampleConn_Method() {
	socket, stop := demo()
	defer stop()
	ctx := context.Background()
	conn, err := client.Attach(ctx, socket)
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	// Looked up once, a target is quicker to call.
	m, err := conn.Method(ctx, "b/demo/upper")
	if err != nil {
		log.Fatal(err)
	}
	for _, word := range []string{"one", "two"} {
		answer, err := m.Call(ctx, []byte(word))
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%s\n", answer)
	}
	_, err = conn.Method(ctx, "b/demo/unknown")
	fmt.Println(errors.Is(err, client.ErrNoService))
	// Output:
	// ONE
	// TWO
	// true
}

func ExampleConn_Status() {
	socket, stop := demo()
	defer stop()
	ctx := context.Background()
	conn, err := client.Attach(ctx, socket)
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	raw, err := conn.Status(ctx)
	if err != nil {
		log.Fatal(err)
	}
	var status struct {
		Node  string
		Peers []struct{ Name, State string }
	}
	if err := json.Unmarshal(raw, &status); err != nil {
		log.Fatal(err)
	}
	fmt.Println(status.Node, status.Peers)
	// Output:
	// a [{b connected}]
}

func ExampleConn_Ping() {
	socket, stop := demo()
	defer stop()
	ctx := context.Background()
	conn, err := client.Attach(ctx, socket)
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	rtt, err := conn.Ping(ctx, "b")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(rtt > 0 && rtt < time.Minute)
	// Output:
	// true
}

// A program that goes on with the next daemon when its own has gone.
func ExampleConn_Done() {
	nodes, err := daemontest.Start("")
	if err != nil {
		log.Fatal(err)
	}
	defer nodes.Stop()
	ctx := context.Background()
	attach := func() *client.Conn {
		for {
			conn, err := client.Attach(ctx, nodes.A.Socket)
			if err == nil {
				return conn
			}
			if !errors.Is(err, client.ErrNotRunning) && !errors.Is(err, client.ErrClosed) {
				log.Fatal(err)
			}
			<-time.After(100 * time.Millisecond) // before the next attempt
		}
	}
	for _, when := range []string{"at first", "again"} {
		conn := attach()
		fmt.Println("attached", when)
		if err := nodes.A.Restart(); err != nil {
			log.Fatal(err)
		}
		<-conn.Done()
		_, err := conn.Status(ctx)
		fmt.Println(errors.Is(err, client.ErrClosed))
		_ = conn.Close()
	}
	// Output:
	// attached at first
	// true
	// attached again
	// true
}

func ExampleConn_Close() {
	socket, stop := demo()
	defer stop()
	ctx := context.Background()
	conn, err := client.Attach(ctx, socket)
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	future, err := conn.Go(ctx, "b/demo/slow", nil)
	if err != nil {
		log.Fatal(err)
	}
	if err := conn.Close(); err != nil {
		log.Fatal(err)
	}
	// Whatever had no answer has an outcome now.
	_, err = future.Wait(ctx)
	fmt.Println(errors.Is(err, client.ErrMaybeExecuted) || errors.Is(err, client.ErrNotExecuted))
	// Output:
	// true
}

func ExampleConn_Node() {
	socket, stop := demo()
	defer stop()
	ctx := context.Background()
	conn, err := client.Attach(ctx, socket)
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	fmt.Println(conn.Node())
	// Output:
	// a
}

func ExampleConn_Domain() {
	socket, stop := demo()
	defer stop()
	ctx := context.Background()
	conn, err := client.Attach(ctx, socket)
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	fmt.Println(conn.Domain())
	// Output:
	// default
}
