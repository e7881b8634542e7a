package client_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rdmad/rdmad/client"
	"github.com/rdmad/rdmad/internal/daemontest"
	"github.com/rdmad/rdmad/server"
)

// streams are the stream methods of service t.
type streams map[string]server.StreamHandler

// serveStreams offers streams on n until the test ends.
func serveStreams(t testing.TB, n *daemontest.Node, hs streams, opts ...server.Option) *server.Server {
	t.Helper()
	s, err := server.Attach(t.Context(), n.Socket, opts...)
	if err != nil {
		t.Fatal(err)
	}
	for name, h := range hs {
		if err := s.HandleStream("t", name, h); err != nil {
			t.Fatal(err)
		}
	}
	done := make(chan error, 1)
	go func() { done <- s.Serve(context.Background()) }()
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		<-done
	})
	return s
}

// echoStream sends back what it receives.
func echoStream(s *server.Stream) error {
	for {
		msg, err := s.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = s.Send(msg)
		}
		if err != nil {
			return err
		}
	}
}

// chat sends n messages by an echoing stream, each when the one before has come back.
func chat(t *testing.T, s *client.Stream, n int) {
	t.Helper()
	for range n {
		if err := s.Send(t.Context(), []byte("x")); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Recv(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

func open(t testing.TB, c *client.Conn, target string) *client.Stream {
	t.Helper()
	s, err := method(t, c, target).Stream(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// Messages of all sizes come back as they were sent, in order, from this node and from
// another one.
func TestStreamEcho(t *testing.T) {
	a, b := daemontest.Pair(t, "")
	serveStreams(t, a, streams{"echo": echoStream})
	serveStreams(t, b, streams{"echo": echoStream})
	c := attach(t, a)
	for _, target := range []string{"a/t/echo", "b/t/echo"} {
		s := open(t, c, target)
		sizes := []int{0, 1, 100, 127, 128, 4096, 100_000, 262_140, 262_144, 300_000, 0, 0, 3 << 20, 5}
		for range 200 {
			sizes = append(sizes, rand.IntN(1000))
		}
		var wg sync.WaitGroup
		wg.Go(func() {
			for i, n := range sizes {
				if err := s.Send(t.Context(), pattern(n, uint64(i))); err != nil {
					t.Errorf("send %d: %v", i, err)
					return
				}
			}
			if err := errors.Join(s.CloseSend(t.Context()), s.CloseSend(t.Context())); err != nil {
				t.Error(err)
			}
		})
		within(t, "receiving", func() {
			for i, n := range sizes {
				msg, err := s.Recv(t.Context())
				if err != nil || !bytes.Equal(msg, pattern(n, uint64(i))) {
					t.Fatalf("message %d: %d bytes of %d, %v", i, len(msg), n, err)
				}
			}
			for range 3 {
				if msg, err := s.Recv(t.Context()); err != io.EOF {
					t.Fatalf("at the end: %d bytes, %v", len(msg), err)
				}
			}
		})
		wg.Wait()
		if err := s.Send(t.Context(), nil); err != io.EOF {
			t.Errorf("Send after the end: %v", err)
		}
		if err := errors.Join(s.Close(), s.Close()); err != nil {
			t.Error(err)
		}
	}
	quiet(t, a, b)
}

// Many streams at once.
func TestStreamsAtOnce(t *testing.T) {
	a, b := daemontest.Pair(t, "")
	serveStreams(t, b, streams{"echo": echoStream})
	c := attach(t, a)
	m := method(t, c, "b/t/echo")
	var wg sync.WaitGroup
	for k := range 100 {
		wg.Go(func() {
			s, err := m.Stream(t.Context())
			if err != nil {
				t.Error(err)
				return
			}
			defer s.Close()
			for i := range 50 {
				want := fmt.Appendf(nil, "%d %d", k, i)
				if err := s.Send(t.Context(), want); err != nil {
					t.Error(err)
					return
				}
				if got, err := s.Recv(t.Context()); err != nil || !bytes.Equal(got, want) {
					t.Errorf("stream %d: %q, %v", k, got, err)
					return
				}
			}
			if err := s.CloseSend(t.Context()); err != nil {
				t.Error(err)
			}
			if _, err := s.Recv(t.Context()); err != io.EOF {
				t.Error(err)
			}
		})
	}
	within(t, "streams", wg.Wait)
	quiet(t, a, b)
}

// A reader that does not read stops its producer, in both directions, and nobody else.
func TestSlowReaderStopsItsProducer(t *testing.T) {
	a, b := daemontest.Pair(t, "")
	sent := make(chan int, 1<<20)
	let := make(chan struct{})
	serveStreams(t, b, streams{
		"flood": func(s *server.Stream) error {
			for i := range 10_000 {
				if err := s.Send(pattern(1000, uint64(i))); err != nil {
					return err
				}
				sent <- i
			}
			return nil
		},
		"drain": func(s *server.Stream) error {
			<-let
			for i := 0; ; i++ {
				msg, err := s.Recv()
				if errors.Is(err, io.EOF) {
					return s.Send(fmt.Append(nil, i))
				}
				if err != nil || !bytes.Equal(msg, pattern(1000, uint64(i))) {
					return fmt.Errorf("message %d: %d bytes, %w", i, len(msg), err)
				}
			}
		},
		"echo": echoStream,
	})
	c := attach(t, a)
	down, up := open(t, c, "b/t/flood"), open(t, c, "b/t/drain")
	upSent := make(chan int, 1<<20)
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := range 10_000 {
			if err := up.Send(t.Context(), pattern(1000, uint64(i))); err != nil {
				t.Errorf("up %d: %v", i, err)
				return
			}
			upSent <- i
		}
		if err := up.CloseSend(t.Context()); err != nil {
			t.Error(err)
		}
	})
	daemontest.Eventually(t, "messages ahead of the readers", func() error {
		if down, up := len(sent), len(upSent); down < 200 || up < 200 {
			return fmt.Errorf("%d and %d with a window of 256 KiB", down, up)
		}
		return nil
	})
	// Others go on; meanwhile both come to a stop.
	other := open(t, c, "b/t/echo")
	chat(t, other, 2000)
	for name, n := range map[string]int{"down": len(sent), "up": len(upSent)} {
		if n > 1200 {
			t.Errorf("%s: %d messages of 1000 bytes are ahead of a reader with a window of 256 KiB", name, n)
		}
	}
	close(let)
	within(t, "down", func() {
		for i := range 10_000 {
			if msg, err := down.Recv(t.Context()); err != nil || !bytes.Equal(msg, pattern(1000, uint64(i))) {
				t.Fatalf("down %d: %d bytes, %v", i, len(msg), err)
			}
		}
		if _, err := down.Recv(t.Context()); err != io.EOF {
			t.Error(err)
		}
	})
	within(t, "up", func() {
		if msg, err := up.Recv(t.Context()); err != nil || string(msg) != "10000" {
			t.Errorf("up: %q, %v", msg, err)
		}
	})
	wg.Wait()
}

// How the handler ends is how the stream ends, behind everything that was sent.
func TestStreamOutcomes(t *testing.T) {
	a, b := daemontest.Pair(t, "")
	serve(t, b, 1, nil)
	serveStreams(t, b, streams{
		"error": func(s *server.Stream) error {
			return errors.Join(s.Send([]byte("one")), s.Send([]byte("two")), errors.New("no more"))
		},
		"panic": func(*server.Stream) error { panic("at the disco") },
		"exit":  func(*server.Stream) error { runtime.Goexit(); return nil },
		"nil":   func(*server.Stream) error { return nil },
		"long":  func(*server.Stream) error { return errors.New(strings.Repeat("x", 1000)) },
	}, server.Workers(1))
	c := attach(t, a)
	s := open(t, c, "b/t/error")
	for _, want := range []string{"one", "two"} {
		if got, err := s.Recv(t.Context()); err != nil || string(got) != want {
			t.Errorf("%q, %v", got, err)
		}
	}
	for name, want := range map[string]string{"error": "no more", "panic": "handler panicked: at the disco", "exit": "handler exited"} {
		s := open(t, c, "b/t/"+name)
		var err error
		for err == nil {
			_, err = s.Recv(t.Context())
		}
		var remote *client.RemoteError
		if !errors.As(err, &remote) || remote.Text != want {
			t.Errorf("%s: %v", name, err)
		}
		if e := s.Send(t.Context(), []byte("x")); e == nil || e.Error() != err.Error() {
			t.Errorf("Send after the end: %v", e)
		}
	}
	if _, err := open(t, c, "b/t/nil").Recv(t.Context()); err != io.EOF {
		t.Errorf("nil: %v", err)
	}
	var remote *client.RemoteError
	if _, err := open(t, c, "b/t/long").Recv(t.Context()); !errors.As(err, &remote) || remote.Text != strings.Repeat("x", 156) {
		t.Errorf("a long text: %v", err)
	}
	// What is no stream, and what is one.
	if _, err := method(t, c, "b/t/echo").Stream(t.Context()); !errors.Is(err, client.ErrNotExecuted) || !errors.Is(err, client.ErrNoService) {
		t.Errorf("a stream to a method that is none: %v", err)
	}
	if _, err := c.Call(t.Context(), "b/t/nil", nil); !errors.Is(err, client.ErrRemote) {
		t.Errorf("a call to a stream: %v", err)
	}
	if _, err := c.Stream(t.Context(), "b/t/none"); !errors.Is(err, client.ErrNoService) {
		t.Errorf("a stream to nothing: %v", err)
	}
	quiet(t, a, b)
}

// The handler's context ends when the caller gives up, and at its deadline.
func TestStreamGivenUp(t *testing.T) {
	a, b := daemontest.Pair(t, "")
	ended := make(chan error, 64)
	serveStreams(t, b, streams{"wait": func(s *server.Stream) error {
		if err := s.Send([]byte("here")); err != nil {
			return err
		}
		<-s.Context().Done()
		_, err := s.Recv()
		ended <- err
		return err
	}}, server.Workers(1))
	c := attach(t, a)
	give := map[string]func(*client.Stream, context.CancelFunc){
		"close":  func(s *client.Stream, _ context.CancelFunc) { _ = s.Close() },
		"cancel": func(_ *client.Stream, cancel context.CancelFunc) { cancel() },
	}
	for name, f := range give {
		ctx, cancel := context.WithCancel(t.Context())
		s, err := method(t, c, "b/t/wait").Stream(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Recv(t.Context()); err != nil {
			t.Fatal(err)
		}
		f(s, cancel)
		within(t, name, func() {
			if err := <-ended; !errors.Is(err, server.ErrGivenUp) {
				t.Errorf("%s: the handler's context ended with %v", name, err)
			}
			if _, err := s.Recv(t.Context()); err == nil || errors.Is(err, io.EOF) {
				t.Errorf("%s: Recv: %v", name, err)
			}
			if err := s.Send(t.Context(), nil); err == nil || errors.Is(err, io.EOF) {
				t.Errorf("%s: Send: %v", name, err)
			}
		})
		cancel()
	}
	daemontest.InTime(t, "a handler that begins before the deadline", func(ctx context.Context) bool {
		s, err := method(t, c, "b/t/wait").Stream(ctx)
		began := false
		for err == nil {
			if _, err = s.Recv(t.Context()); err == nil {
				began = true
			}
		}
		// The other node may have found that its time was over a little earlier.
		if !errors.Is(err, client.ErrDeadline) && !errors.Is(err, client.ErrRemote) {
			t.Fatalf("the stream ended with %v", err)
		}
		return began
	})
	within(t, "deadline", func() {
		if err := <-ended; !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, server.ErrGivenUp) {
			t.Errorf("the handler's context ended with %v", err)
		}
	})
	quiet(t, a, b)
}

// Streams go on while all workers of their process are inside handlers.
func TestStreamBesideBusyWorkers(t *testing.T) {
	a, b := daemontest.Pair(t, "")
	for _, workers := range []int{1, 3} {
		g := newGate()
		defer g.Open()
		s, err := server.Attach(t.Context(), b.Socket, server.Workers(workers))
		if err != nil {
			t.Fatal(err)
		}
		name := fmt.Sprint("busy", workers)
		err = errors.Join(s.Handle("t", name, g.handle), s.Handle("t", name+"sum", largeHandlers["sum"]), s.HandleStream("t", name+"echo", echoStream))
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() { done <- s.Serve(context.Background()) }()
		c := attach(t, a)
		var calls []*client.Future
		for range 3 * workers {
			f, err := method(t, c, "b/t/"+name).Go(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			calls = append(calls, f)
		}
		for range workers {
			<-g.entered
		}
		time.Sleep(50 * time.Millisecond) // lets the monitor of the pool stop, if it does
		echo := open(t, c, "b/t/"+name+"echo")
		within(t, "the stream", func() {
			for range 10 {
				if err := echo.Send(t.Context(), []byte("x")); err != nil {
					t.Error(err)
				}
				if _, err := echo.Recv(t.Context()); err != nil {
					t.Error(err)
				}
			}
		})
		g.Open()
		for _, f := range calls {
			if _, err := f.Wait(t.Context()); err != nil {
				t.Error(err)
			}
		}
		if _, err := method(t, c, "b/t/"+name+"sum").Call(t.Context(), make([]byte, 3<<20)); err != nil {
			t.Error(err)
		}
		_ = echo.Close()
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		<-done
	}
}

// A process that has as many streams as it may refuses the next one.
func TestStreamLimit(t *testing.T) {
	a, b := daemontest.Pair(t, "")
	serveStreams(t, b, streams{"echo": echoStream}, server.Streams(2))
	c := attach(t, a)
	first, second := open(t, c, "b/t/echo"), open(t, c, "b/t/echo")
	if _, err := method(t, c, "b/t/echo").Stream(t.Context()); !errors.Is(err, client.ErrNotExecuted) {
		t.Errorf("a third stream: %v", err)
	}
	if err := errors.Join(first.Close(), second.Close()); err != nil {
		t.Error(err)
	}
	daemontest.Eventually(t, "room for another", func() error {
		s, err := c.Stream(t.Context(), "b/t/echo")
		if err == nil {
			err = s.Close()
		}
		return err
	})
}
