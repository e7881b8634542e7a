package client_test

import (
	"bytes"
	"context"
	"io"
	"testing"
	"time"

	"github.com/rdmad/rdmad/internal/daemontest"
	"github.com/rdmad/rdmad/server"
)

// A server that closes lets its callers fetch what its handlers have left: the ends of
// streams, and large answers.
func TestCloseLeavesEnds(t *testing.T) {
	a, b := daemontest.Pair(t, "")
	c := attach(t, a)
	for round := range 5 {
		s, err := server.Attach(t.Context(), b.Socket, server.Workers(1))
		if err != nil {
			t.Fatal(err)
		}
		left := make(chan struct{}, 2)
		if err := s.HandleStream("t", "burst", func(s *server.Stream) error {
			defer func() { left <- struct{}{} }()
			for i := range 20 {
				if err := s.Send(pattern(10_000, uint64(i))); err != nil {
					return err
				}
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if err := s.Handle("t", "large", func(c *server.Call) error {
			defer func() { left <- struct{}{} }()
			return c.Reply(pattern(8<<20, 3))
		}); err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() { done <- s.Serve(context.Background()) }()
		burst := open(t, c, "b/t/burst")
		large, err := method(t, c, "b/t/large").Go(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		<-left
		<-left
		closed := make(chan error, 1)
		go func() { closed <- s.Close() }()
		within(t, "fetching", func() {
			for i := range 20 {
				if msg, err := burst.Recv(t.Context()); err != nil || !bytes.Equal(msg, pattern(10_000, uint64(i))) {
					t.Fatalf("round %d: message %d: %d bytes, %v", round, i, len(msg), err)
				}
			}
			if _, err := burst.Recv(t.Context()); err != io.EOF {
				t.Errorf("round %d: the end: %v", round, err)
			}
			if got, err := large.Wait(t.Context()); err != nil || !bytes.Equal(got, pattern(8<<20, 3)) {
				t.Errorf("round %d: large answer: %d bytes, %v", round, len(got), err)
			}
			if err := <-closed; err != nil {
				t.Error(err)
			}
			<-done
		})
	}
	quiet(t, a, b)
}

// A large answer that a handler gives only after its server has begun to close is fetched
// as well.
func TestCloseWaitsForLargeAnswer(t *testing.T) {
	a, b := daemontest.Pair(t, "")
	s, err := server.Attach(t.Context(), b.Socket, server.Workers(1))
	if err != nil {
		t.Fatal(err)
	}
	entered := make(chan struct{})
	if err := s.Handle("t", "large", func(c *server.Call) error {
		close(entered)
		<-c.Context().Done()              // the server closes
		time.Sleep(20 * time.Millisecond) // nobody tells when nobody serves parts any more
		return c.Reply(pattern(8<<20, 3))
	}); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- s.Serve(context.Background()) }()
	large, err := method(t, attach(t, a), "b/t/large").Go(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	<-entered
	closed := make(chan error, 1)
	go func() { closed <- s.Close() }()
	within(t, "fetching", func() {
		if got, err := large.Wait(t.Context()); err != nil || !bytes.Equal(got, pattern(8<<20, 3)) {
			t.Errorf("large answer: %d bytes, %v", len(got), err)
		}
		if err := <-closed; err != nil {
			t.Error(err)
		}
		<-done
	})
	quiet(t, a, b)
}
