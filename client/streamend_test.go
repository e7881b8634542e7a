package client_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rdmad/rdmad/client"
	"github.com/rdmad/rdmad/internal/daemontest"
	"github.com/rdmad/rdmad/server"
)

// A Recv that Close ends has an error: it is no message.
func TestRecvBesideClose(t *testing.T) {
	_, b := daemontest.Pair(t, "")
	serveStreams(t, b, streams{"flood": func(s *server.Stream) error {
		for {
			if err := s.Send([]byte("x")); err != nil {
				return err
			}
		}
	}})
	m := method(t, attachTo(t, b), "b/t/flood")
	none := 0
	for range 200 {
		s, err := m.Stream(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		some := make(chan struct{})
		var wg sync.WaitGroup
		wg.Go(func() {
			for n := 1; ; n++ {
				msg, err := s.Recv(t.Context())
				if err != nil {
					return
				}
				if len(msg) == 0 {
					none++
				}
				if n == 3 {
					close(some)
				}
			}
		})
		<-some
		_ = s.Close()
		wg.Wait()
	}
	if none > 0 {
		t.Errorf("Recv has returned nil and no error %d times", none)
	}
}

// How a handler has ended is the outcome of its stream, also if a message was not all sent.
func TestStreamEndsWithinMessage(t *testing.T) {
	_, b := daemontest.Pair(t, "")
	returned := make(chan struct{}, 1)
	over := func() { returned <- struct{}{} }
	half := func(s *server.Stream) { go func() { _ = s.Send(make([]byte, 3<<20)) }() }
	s := serveStreams(t, b, streams{
		"error": func(s *server.Stream) error { defer over(); half(s); _, _ = s.Recv(); return errors.New("mine") },
		"panic": func(s *server.Stream) error { defer over(); half(s); _, _ = s.Recv(); panic("mine") }, // as one that has a fault
		"close": func(s *server.Stream) error { defer over(); return s.Send(make([]byte, 3<<20)) },      // until the server closes
	})
	c := attachTo(t, b)
	for _, name := range []string{"error", "panic", "close"} {
		st := open(t, c, "b/t/"+name)
		daemontest.Eventually(t, "some of the message is here", func() error {
			if client.Got(st) == 0 {
				return errors.New("nothing is")
			}
			return nil
		})
		ended := make(chan error, 1)
		if name == "close" {
			go func() { ended <- s.Close() }()
		} else {
			ended <- st.Send(t.Context(), nil)
		}
		<-returned
		_, err := st.Recv(t.Context())
		for err == nil { // it was all sent in that moment
			_, err = st.Recv(t.Context())
		}
		if !errors.Is(err, client.ErrRemote) {
			t.Errorf("%s: %v", name, err)
		}
		if err := errors.Join(st.Close(), <-ended); err != nil {
			t.Error(err)
		}
	}
}

// Streams go by the smallest ring that can be configured.
func TestStreamsOfSmallestClass(t *testing.T) {
	_, b := daemontest.Pair(t, "[[class]]\nname=\"one\"\nslot_size=128\nslots=64\nmax_run=1\n")
	s, err := server.Attach(t.Context(), b.Socket)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.HandleStream("t", "s", echoStream, server.AnswerSize(0)); err != nil {
		t.Fatal(err)
	}
	go func() { _ = s.Serve(t.Context()) }()
	m := method(t, attachTo(t, b), "b/t/s")
	for _, n := range []int{0, 1, 28, 29, 1000} {
		s, err := m.StreamWith(t.Context(), pattern(n, 2))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := s.Recv(t.Context()); err != nil || !bytes.Equal(got, pattern(n, 2)) {
			t.Errorf("%d bytes: %d bytes, %v", n, len(got), err)
		}
		_ = s.Close()
	}
}

// CloseSend does not wait, and so needs no time.
func TestCloseSendAtTheEnd(t *testing.T) {
	_, b := daemontest.Pair(t, "")
	end := make(chan error, 1)
	serveStreams(t, b, streams{"s": func(s *server.Stream) error { _, err := s.Recv(); end <- err; return nil }})
	s := open(t, attachTo(t, b), "b/t/s")
	defer s.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := s.CloseSend(ctx)
	select {
	case got := <-end:
		if got != io.EOF {
			t.Error(got)
		}
	case <-time.After(patience):
		t.Errorf("the handler does not know of it; CloseSend: %v", err)
	}
}

// What belongs to a stream comes while all workers are inside handlers, also if one of them
// had taken it together with a request whose handler takes long.
func TestStreamBehindBusyBatch(t *testing.T) {
	_, b := daemontest.Pair(t, "")
	came := make(chan struct{}, 1)
	var now atomic.Pointer[gate]
	s := serve(t, b, 2, handlers{"quick": func(*server.Call) error { return nil }, "gate": func(c *server.Call) error { return now.Load().handle(c) }})
	if err := s.HandleStream("t", "s", func(s *server.Stream) error {
		for {
			if _, err := s.Recv(); err != nil {
				return nil
			}
			came <- struct{}{}
		}
	}); err != nil {
		t.Fatal(err)
	}
	c := attachTo(t, b)
	quick, blocked, stream := method(t, c, "b/t/quick"), method(t, c, "b/t/gate"), open(t, c, "b/t/s")
	defer stream.Close()
	for n := 20; n < 52; n++ { // so that a batch begins with the first blocked one, at some n
		g := newGate()
		now.Store(g)
		defer g.Open()
		if err := stream.Send(t.Context(), []byte("x")); err != nil {
			t.Fatal(err)
		}
		<-came
		time.Sleep(20 * time.Millisecond) // the next wait of the stream is there
		resume, err := b.StopCore()
		if err != nil {
			t.Fatal(err)
		}
		fs := append(outstanding(t, quick, n), outstanding(t, blocked, 1)...)
		if err := stream.Send(t.Context(), []byte("x")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(30 * time.Millisecond) // it is published
		fs = append(fs, outstanding(t, blocked, 2)...)
		if err := resume(); err != nil {
			t.Fatal(err)
		}
		select {
		case <-came:
		case <-time.After(patience):
			t.Fatalf("%d quick ones before: nothing comes beside busy workers", n)
		}
		g.Open()
		for _, f := range fs {
			if _, err := f.Wait(t.Context()); err != nil {
				t.Error(err)
			}
		}
	}
}

// A handler is told what is too large as its callers are.
func TestTooLargeAtServer(t *testing.T) {
	_, b := daemontest.Pair(t, "")
	told := make(chan error, 1)
	serve(t, b, 1, map[string]server.Handler{"reply": func(c *server.Call) error {
		told <- c.Reply(make([]byte, c.Capacity()+1))
		return nil
	}})
	serveStreams(t, b, streams{"send": func(s *server.Stream) error {
		told <- s.Send(make([]byte, client.MaxMessage+1))
		return s.Send([]byte("go on"))
	}})
	c := attachTo(t, b)
	if _, err := method(t, c, "b/t/reply").With(client.Direct()).Call(t.Context(), nil); !errors.Is(err, client.ErrTooLarge) {
		t.Errorf("caller: %v", err)
	}
	if err := <-told; !errors.Is(err, server.ErrTooLarge) {
		t.Errorf("Reply: %v", err)
	}
	st := open(t, c, "b/t/send")
	if msg, err := st.Recv(t.Context()); err != nil || string(msg) != "go on" {
		t.Errorf("%q, %v", msg, err)
	}
	if err := <-told; !errors.Is(err, server.ErrTooLarge) {
		t.Errorf("Send: %v", err)
	}
	_ = st.Close()
}
