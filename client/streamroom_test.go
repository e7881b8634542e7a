package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/rdmad/rdmad/client"
	"github.com/rdmad/rdmad/internal/daemontest"
	"github.com/rdmad/rdmad/server"
)

// Large messages of streams take the room of large messages from their first bytes until the
// handler asks for the next one. Without room the stream ends, and no other.
func TestStreamMessagesWithoutRoom(t *testing.T) {
	a, b := daemontest.Pair(t, "")
	ended := make(chan error, 1)
	next := make(chan struct{})
	serveStreams(t, b, streams{
		"echo": echoStream,
		// Says how it has ended.
		"short": func(s *server.Stream) error {
			err := echoStream(s)
			ended <- err
			return err
		},
		// Asks for the next message when it is told to, and says so.
		"slow": func(s *server.Stream) error {
			for {
				msg, err := s.Recv()
				if err != nil {
					return nil
				}
				if err := s.Send(msg[:1]); err != nil {
					return err
				}
				select {
				case <-next:
				case <-s.Context().Done():
				}
			}
		},
	}, server.LargeMessages(1<<20))
	c := attach(t, a)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	pass := func(s *client.Stream, size, back int) {
		t.Helper()
		if err := s.Send(ctx, make([]byte, size)); err != nil {
			t.Fatal(err)
		}
		if msg, err := s.Recv(ctx); err != nil || len(msg) != back {
			t.Fatalf("%d bytes back, %v, want %d", len(msg), err, back)
		}
	}
	refused := func() {
		t.Helper()
		s := open(t, c, "b/t/short")
		pass(s, 600, 600)
		if err := s.Send(ctx, make([]byte, 700<<10)); err != nil && !errors.Is(err, client.ErrMaybeExecuted) && !errors.Is(err, client.ErrRemote) {
			t.Errorf("send: %v", err)
		}
		select {
		case err := <-ended:
			if !errors.Is(err, server.ErrLimit) {
				t.Errorf("the handler has ended with %v", err)
			}
		case <-ctx.Done():
			t.Fatal("the handler goes on")
		}
		if _, err := s.Recv(ctx); !errors.Is(err, client.ErrMaybeExecuted) && !errors.Is(err, client.ErrRemote) {
			t.Errorf("the caller gets %v", err)
		}
	}
	echo := open(t, c, "b/t/echo")
	for range 5 { // each takes the room of the one before
		pass(echo, 700<<10, 700<<10)
	}
	pass(echo, 1, 1) // so that nobody has the last of them any more
	slow := open(t, c, "b/t/slow")
	pass(slow, 700<<10, 1)
	refused()
	pass(echo, 200<<10, 200<<10) // takes none of it
	next <- struct{}{}
	pass(slow, 300<<10, 1) // instead of the one of 700 KiB
	pass(echo, 700<<10, 700<<10)
	if err := slow.Close(); err != nil {
		t.Fatal(err)
	}
	// All the room is there when the streams are over.
	if err := echo.CloseSend(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := echo.Recv(ctx); !errors.Is(err, io.EOF) {
		t.Errorf("the end: %v", err)
	}
	daemontest.Eventually(t, "all the room is there", func() error {
		s, err := method(t, c, "b/t/echo").Stream(ctx)
		if err != nil {
			return err
		}
		defer s.Close()
		if err := s.Send(ctx, make([]byte, 1<<20)); err != nil {
			return err
		}
		_, err = s.Recv(ctx)
		return err
	})
}

// A reader whose Recv has ended with its context waits for nothing any more: its producer stops
// within a large message.
func TestReaderThatGivesUpWaiting(t *testing.T) {
	a, b := daemontest.Pair(t, "")
	const large = 8 << 20
	let, sent := make(chan struct{}), make(chan struct{})
	serveStreams(t, b, streams{
		"make": func(s *server.Stream) error {
			<-let
			defer close(sent)
			return s.Send(make([]byte, large))
		},
		"echo": echoStream,
	})
	c := attach(t, a)
	s, other := open(t, c, "b/t/make"), open(t, c, "b/t/echo")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Recv(ctx); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	close(let)
	chat(t, other, 2000)
	select {
	case <-sent:
		t.Error("all of the message was taken in though nobody reads")
	default:
	}
	within(t, "the message", func() {
		if msg, err := s.Recv(t.Context()); err != nil || len(msg) != large {
			t.Errorf("%d bytes, %v", len(msg), err)
		}
	})
}

// A stream takes room for one message at a time, however many its caller has sent.
func TestStreamsTakeRoomForOneMessage(t *testing.T) {
	a, b := daemontest.Pair(t, "")
	const size, count = 700 << 10, 50
	serveStreams(t, b, streams{"count": func(s *server.Stream) error {
		for n := 0; ; n++ {
			msg, err := s.Recv()
			if errors.Is(err, io.EOF) {
				return s.Send([]byte{byte(n)})
			}
			if err != nil || len(msg) != size {
				return fmt.Errorf("message %d: %d bytes, %w", n, len(msg), err)
			}
		}
	}}, server.LargeMessages(1<<20))
	s := open(t, attach(t, a), "b/t/count")
	for range count {
		if err := s.Send(t.Context(), make([]byte, size)); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.CloseSend(t.Context()); err != nil {
		t.Fatal(err)
	}
	if msg, err := s.Recv(t.Context()); err != nil || len(msg) != 1 || msg[0] != count {
		t.Errorf("%d, %v", msg, err)
	}
}
