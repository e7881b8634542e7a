package server_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"

	"github.com/rdmad/rdmad/client"
	"github.com/rdmad/rdmad/server"
)

// converse serves the stream demo/stream with h, and prints what a caller gets that sends
// it some messages.
func converse(h server.StreamHandler, messages []string, opts ...server.Option) {
	socket, stop := node()
	defer stop()
	ctx := context.Background()
	srv, err := server.Attach(ctx, socket, opts...)
	if err != nil {
		log.Fatal(err)
	}
	defer srv.Close()
	if err := srv.HandleStream("demo", "stream", h); err != nil {
		log.Fatal(err)
	}
	go func() { _ = srv.Serve(ctx) }()
	conn, err := client.Attach(ctx, socket)
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	s, err := conn.Stream(ctx, "demo/stream")
	if err != nil {
		fmt.Println("not executed:", errors.Is(err, client.ErrNotExecuted))
		return
	}
	defer s.Close()
	for _, msg := range messages {
		if err := s.Send(ctx, []byte(msg)); err != nil {
			break // the handler has returned
		}
	}
	_ = s.CloseSend(ctx)
	for {
		msg, err := s.Recv(ctx)
		if err != nil {
			fmt.Println("end:", err)
			return
		}
		fmt.Printf("got: %s\n", msg)
	}
}

func ExampleServer_HandleStream() {
	converse(func(s *server.Stream) error {
		for {
			msg, err := s.Recv()
			if errors.Is(err, io.EOF) {
				return nil
			}
			if err == nil {
				err = s.Send(append([]byte("seen "), msg...))
			}
			if err != nil {
				return err
			}
		}
	}, []string{"one", "two"})
	// Output:
	// got: seen one
	// got: seen two
	// end: EOF
}

func ExampleStream_Recv() {
	converse(func(s *server.Stream) error {
		n := 0
		for {
			msg, err := s.Recv()
			if err != nil { // io.EOF when the caller has no more
				return s.Send(fmt.Append(nil, n, " bytes"))
			}
			n += len(msg)
		}
	}, []string{"one", "two"})
	// Output:
	// got: 6 bytes
	// end: EOF
}

func ExampleStream_Send() {
	converse(func(s *server.Stream) error {
		for i := range 3 {
			if err := s.Send(fmt.Append(nil, i)); err != nil { // waits for a slow caller
				return err
			}
		}
		return nil
	}, nil)
	// Output:
	// got: 0
	// got: 1
	// got: 2
	// end: EOF
}

func ExampleStream_Context() {
	converse(func(s *server.Stream) error {
		_, timed := s.Context().Deadline()
		return s.Send(fmt.Append(nil, "deadline: ", timed))
	}, nil)
	// Output:
	// got: deadline: false
	// end: EOF
}

func ExampleStream_Abort() {
	converse(func(s *server.Stream) error {
		sent := make(chan error)
		go func() {
			<-s.Context().Done() // or it waits in Send for a caller who does not read
			sent <- s.Send([]byte("more"))
		}()
		failed := errors.New("the source is gone")
		s.Abort(failed)
		fmt.Println("sent:", <-sent)
		return failed
	}, nil)
	// Output:
	// sent: the source is gone
	// end: demo/stream: the source is gone
}

func ExampleStreams() {
	converse(func(*server.Stream) error { return nil }, nil, server.Streams(0))
	// Output:
	// not executed: true
}

func ExampleLargeMessages() {
	socket, stop := node()
	defer stop()
	ctx := context.Background()
	srv, err := server.Attach(ctx, socket, server.LargeMessages(1<<20))
	if err != nil {
		log.Fatal(err)
	}
	defer srv.Close()
	if err := srv.Handle("demo", "size", func(c *server.Call) error { return c.Reply(fmt.Append(nil, len(c.Request()))) }); err != nil {
		log.Fatal(err)
	}
	go func() { _ = srv.Serve(ctx) }()
	conn, err := client.Attach(ctx, socket)
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	_, err = conn.Call(ctx, "demo/size", make([]byte, 3<<20))
	fmt.Println("not executed:", errors.Is(err, client.ErrNotExecuted))
	// Output:
	// not executed: true
}
