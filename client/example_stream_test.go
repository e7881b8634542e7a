package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"

	"github.com/rdmad/rdmad/client"
)

func ExampleMethod_Stream() {
	socket, stop := demo()
	defer stop()
	ctx := context.Background()
	conn, err := client.Attach(ctx, socket)
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	m, err := conn.Method(ctx, "b/demo/shout")
	if err != nil {
		log.Fatal(err)
	}
	s, err := m.Stream(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()
	for _, word := range []string{"in", "this", "order"} {
		if err := s.Send(ctx, []byte(word)); err != nil {
			log.Fatal(err)
		}
	}
	if err := s.CloseSend(ctx); err != nil {
		log.Fatal(err)
	}
	for {
		msg, err := s.Recv(ctx)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%s\n", msg)
	}
	// Output:
	// IN
	// THIS
	// ORDER
	// 3 messages
}

// talk opens a stream to demo/shout and lets f use it.
func talk(f func(ctx context.Context, s *client.Stream) error) {
	socket, stop := demo()
	defer stop()
	ctx := context.Background()
	conn, err := client.Attach(ctx, socket)
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	s, err := conn.Stream(ctx, "b/demo/shout")
	if err == nil {
		err = errors.Join(f(ctx, s), s.Close())
	}
	if err != nil {
		log.Fatal(err)
	}
}

func ExampleMethod_StreamWith() {
	socket, stop := demo()
	defer stop()
	ctx := context.Background()
	conn, err := client.Attach(ctx, socket)
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	m, err := conn.Method(ctx, "b/demo/shout")
	if err != nil {
		log.Fatal(err)
	}
	s, err := m.StreamWith(ctx, []byte("at once"))
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()
	msg, err := s.Recv(ctx)
	fmt.Printf("%s, %v\n", msg, err)
	// Output:
	// AT ONCE, <nil>
}

func ExampleConn_Stream() {
	socket, stop := demo()
	defer stop()
	ctx := context.Background()
	conn, err := client.Attach(ctx, socket)
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	_, err = conn.Stream(ctx, "b/demo/upper") // which is no stream
	fmt.Println(errors.Is(err, client.ErrNotExecuted))
	// Output:
	// true
}

func ExampleStream_Send() {
	talk(func(ctx context.Context, s *client.Stream) error {
		if err := s.Send(ctx, []byte("there")); err != nil {
			return err
		}
		msg, err := s.Recv(ctx)
		fmt.Printf("%s\n", msg)
		return err
	})
	// Output:
	// THERE
}

func ExampleStream_Err() {
	talk(func(ctx context.Context, s *client.Stream) error {
		fmt.Println("it lives:", s.Err() == nil)
		err := s.Close()
		fmt.Println("it was closed:", errors.Is(s.Err(), client.ErrClosed))
		return err
	})
	// Output:
	// it lives: true
	// it was closed: true
}

func ExampleStream_Recv() {
	talk(func(ctx context.Context, s *client.Stream) error {
		if err := s.CloseSend(ctx); err != nil {
			return err
		}
		msg, err := s.Recv(ctx)
		fmt.Printf("%s, %v\n", msg, err)
		_, err = s.Recv(ctx)
		fmt.Println(err) // the handler has returned
		return nil
	})
	// Output:
	// 0 messages, <nil>
	// EOF
}

func ExampleStream_CloseSend() {
	talk(func(ctx context.Context, s *client.Stream) error {
		if err := s.CloseSend(ctx); err != nil {
			return err
		}
		msg, err := s.Recv(ctx) // both directions end by themselves
		fmt.Printf("%s\n", msg)
		return err
	})
	// Output:
	// 0 messages
}

func ExampleStream_Close() {
	talk(func(ctx context.Context, s *client.Stream) error {
		if err := s.Close(); err != nil { // the handler's context ends
			return err
		}
		_, err := s.Recv(ctx)
		fmt.Println(errors.Is(err, client.ErrClosed))
		return nil
	})
	// Output:
	// true
}
