package client_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/rdmad/rdmad/client"
	"github.com/rdmad/rdmad/internal/daemontest"
	"github.com/rdmad/rdmad/server"
)

// never fails the test when it is called.
func never(t *testing.T) func([]byte) error {
	return func(answer []byte) error {
		t.Errorf("called with %q", answer)
		return nil
	}
}

// Many goroutines read their answers in place; each sees its own, of any size.
func TestCallFunc(t *testing.T) {
	a, b := daemontest.Pair(t, "")
	serve(t, b, 4, nil)
	c := attach(t, a)
	m := method(t, c, "b/t/echo")
	var wg sync.WaitGroup
	for g := range 16 {
		wg.Go(func() {
			for n := range 200 {
				msg := binary.LittleEndian.AppendUint64(nil, uint64(g)<<32|uint64(n))
				msg = append(msg, make([]byte, n*g)...)
				called := 0
				if err := m.CallFunc(t.Context(), msg, func(answer []byte) error {
					if called++; !bytes.Equal(answer, msg) || cap(answer) != len(answer) {
						return fmt.Errorf("%x of %d, want %x", answer, cap(answer), msg)
					}
					return nil
				}); err != nil || called != 1 {
					t.Errorf("goroutine %d call %d: %d times, %v", g, n, called, err)
				}
			}
		})
	}
	within(t, "calls", wg.Wait)
	quiet(t, a, b)
}

// A call that reads its answer in place allocates nothing.
func TestCallFuncAllocatesNothing(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates: go test without -race counts allocations")
	}
	a, b := daemontest.Pair(t, "")
	// In a process of its own: AllocsPerRun leaves this one a single processor.
	daemontest.Spawn(t, "service", b.Socket, "someone")
	m := method(t, attach(t, a), "b/t/who")
	msg, size := []byte("hello"), 0
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for _, ctx := range []context.Context{context.Background(), ctx} {
		if n := testing.AllocsPerRun(2000, func() {
			if err := m.CallFunc(ctx, msg, func(answer []byte) error {
				size = len(answer)
				return nil
			}); err != nil || size != len("someone") {
				t.Fatal(size, err)
			}
		}); n != 0 {
			t.Errorf("%v allocations per call with %v", n, ctx)
		}
		if n := testing.AllocsPerRun(2000, func() {
			r, err := m.Reserve(ctx, len(msg))
			if err != nil {
				t.Fatal(err)
			}
			copy(r.Bytes(), msg)
			answer, err := r.CallInPlace(ctx)
			if err != nil || len(answer.Bytes()) != len("someone") {
				t.Fatal(answer.Bytes(), err)
			}
			answer.Release()
		}); n != 0 {
			t.Errorf("%v allocations per reserved call with %v", n, ctx)
		}
	}
}

// The callback's error comes back as it is, also one that looks like an outcome, and
// its panic goes on; the slots are free after either.
func TestCallFuncCallbackFails(t *testing.T) {
	a, b := daemontest.Pair(t, "[[class]]\nname=\"few\"\nslot_size=128\nslots=64\nmax_run=4\n")
	serve(t, b, 1, nil)
	m := method(t, attach(t, a), "b/t/echo")
	want := fmt.Errorf("%w: %w", client.ErrNoService, client.ErrNotExecuted)
	for range 100 { // more than there are slots
		called := 0
		if err := m.CallFunc(t.Context(), []byte("x"), func([]byte) error { called++; return want }); err != want || called != 1 {
			t.Fatal(called, err)
		}
		func() {
			defer func() {
				if r := recover(); r != "callback" {
					t.Errorf("recovered %v", r)
				}
			}()
			_ = m.CallFunc(t.Context(), []byte("x"), func([]byte) error { panic("callback") })
			t.Error("no panic")
		}()
	}
	quiet(t, a, b)
}

func TestCallFuncErrors(t *testing.T) {
	a, b := daemontest.Pair(t, "")
	serve(t, b, 1, handlers{
		"fail": func(*server.Call) error { return errors.New("no") },
		"big":  func(c *server.Call) error { return c.Reply(make([]byte, 100_000)) },
		"none": func(c *server.Call) error { return c.Reply(nil) },
	})
	c := attach(t, a)
	var remote *client.RemoteError
	if err := method(t, c, "b/t/fail").CallFunc(t.Context(), nil, never(t)); !errors.As(err, &remote) || remote.Text != "no" {
		t.Errorf("handler error: %v", err)
	}
	if err := method(t, c, "b/t/big").With(client.Direct()).CallFunc(t.Context(), nil, never(t)); !errors.Is(err, client.ErrTooLarge) {
		t.Errorf("large answer: %v", err)
	}
	if err := method(t, c, "b/t/echo").With(client.Direct()).CallFunc(t.Context(), make([]byte, 64<<20), never(t)); !errors.Is(err, client.ErrTooLarge) {
		t.Errorf("large request: %v", err)
	}
	if err := method(t, c, "b/t/none").CallFunc(t.Context(), nil, func(answer []byte) error {
		if len(answer) != 0 {
			t.Errorf("%d bytes", len(answer))
		}
		return nil
	}); err != nil {
		t.Errorf("empty answer: %v", err)
	}
	quiet(t, a, b)
}

// A context that ends before the request is sent, and after: the callback is not
// called, and what comes later is thrown away.
func TestCallFuncContext(t *testing.T) {
	a, b := daemontest.Pair(t, "[[class]]\nname=\"few\"\nslot_size=128\nslots=64\nmax_run=4\n")
	g := newGate()
	defer g.Open()
	serve(t, b, 1, handlers{"gate": g.handle})
	m := method(t, attach(t, a), "b/t/gate")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var late *client.DeadlineError
	if err := m.CallFunc(ctx, nil, never(t)); !errors.As(err, &late) || late.Sent {
		t.Errorf("before: %v", err)
	}
	ctx, cancel = context.WithCancel(t.Context())
	go func() {
		<-g.entered
		cancel()
	}()
	if err := m.CallFunc(ctx, nil, never(t)); !errors.As(err, &late) || !late.Sent {
		t.Errorf("after: %v", err)
	}
	fs := outstanding(t, m, 63) // with the request that was given up the ring is full
	if err := m.With(client.NoWait()).CallFunc(t.Context(), nil, never(t)); !errors.Is(err, client.ErrBackpressure) {
		t.Errorf("full ring: %v", err)
	}
	ctx, cancel = context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := m.CallFunc(ctx, nil, never(t)); !errors.As(err, &late) || late.Sent {
		t.Errorf("full ring: %v", err)
	}
	g.Open()
	for _, f := range fs {
		if _, err := f.Wait(t.Context()); err != nil {
			t.Error(err)
		}
	}
	quiet(t, a, b)
}

// A callback that takes its time delays no other call, and Close waits for it.
func TestCallFuncSlowCallback(t *testing.T) {
	a, b := daemontest.Pair(t, fewSlots)
	serve(t, b, 2, nil)
	c := attach(t, a)
	m := method(t, c, "b/t/echo")
	inside, leave := make(chan struct{}), make(chan struct{})
	done := make(chan error, 1)
	go func() {
		done <- m.CallFunc(t.Context(), []byte("kept"), func(answer []byte) error {
			close(inside)
			<-leave
			if string(answer) != "kept" {
				return fmt.Errorf("the answer has become %q", answer)
			}
			return nil
		})
	}()
	<-inside
	within(t, "other calls", func() {
		for range 500 { // several times around the ring
			if _, err := m.Call(t.Context(), []byte("other")); err != nil {
				t.Error(err)
			}
		}
	})
	closed := make(chan error, 1)
	go func() { closed <- c.Close() }()
	select {
	case <-closed:
		t.Error("closed under the callback")
	case <-time.After(20 * time.Millisecond): // nothing tells that nothing happens
	}
	close(leave)
	if err := <-done; err != nil {
		t.Error(err)
	}
	if err := <-closed; err != nil {
		t.Error(err)
	}
	if err := m.CallFunc(t.Context(), nil, never(t)); !errors.Is(err, client.ErrClosed) {
		t.Errorf("after close: %v", err)
	}
	quiet(t, a, b)
}

// Close, and the death of the daemon, end calls that wait for their answers.
func TestCallFuncConnectionEnds(t *testing.T) {
	for name, end := range map[string]func(*client.Conn, *daemontest.Node) error{
		"close": func(c *client.Conn, _ *daemontest.Node) error { return c.Close() },
		"death": func(_ *client.Conn, a *daemontest.Node) error { return a.Crash() },
	} {
		t.Run(name, func(t *testing.T) {
			a, b := daemontest.Pair(t, "")
			g := newGate()
			defer g.Open()
			serve(t, b, 1, handlers{"gate": g.handle})
			c := attach(t, a)
			m := method(t, c, "b/t/gate")
			var wg sync.WaitGroup
			for range 20 {
				wg.Go(func() {
					err := m.CallFunc(t.Context(), nil, never(t))
					// One that had not begun fails with ErrClosed alone.
					if errors.Is(err, client.ErrNotExecuted) && errors.Is(err, client.ErrMaybeExecuted) || !errors.Is(err, client.ErrClosed) {
						t.Error(err)
					}
				})
			}
			<-g.entered
			within(t, "end", func() {
				if err := end(c, a); err != nil {
					t.Error(err)
				}
				wg.Wait()
			})
			g.Open()
			if _, err := method(t, attach(t, a), "b/t/gate").Call(t.Context(), nil); err != nil {
				t.Errorf("afterwards: %v", err)
			}
			quiet(t, a, b)
		})
	}
}

// A method that has moved is followed once, as CallInto does.
func TestCallFuncFollows(t *testing.T) {
	a, b := daemontest.Pair(t, "")
	first := serve(t, b, 1, nil)
	c := attach(t, a)
	m := method(t, c, "t/echo")
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	serve(t, a, 1, nil)
	daemontest.Eventually(t, "served here", func() error {
		_, err := attach(t, a).Call(t.Context(), "a/t/echo", nil)
		return err
	})
	if err := m.CallFunc(t.Context(), []byte("x"), func(answer []byte) error {
		if string(answer) != "x" {
			t.Errorf("%q", answer)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
}
