package client_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rdmad/rdmad/client"
	"github.com/rdmad/rdmad/internal/daemontest"
	"github.com/rdmad/rdmad/server"
)

// A future tells its outcome as often as it is asked, to anybody: after it was taken
// back, after its connection was closed, and with a context that has ended.
func TestFutureAfterTheEnd(t *testing.T) {
	a, b := daemontest.Pair(t, "")
	g := newGate()
	defer g.Open()
	serve(t, b, 1, handlers{"gate": g.handle})
	c := attach(t, a)
	m := method(t, c, "b/t/gate")
	sent := outstanding(t, m, 1)[0]
	<-g.entered
	resume, err := a.StopCore()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resume() }()
	taken, err := m.Go(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if !taken.Cancel() {
		t.Error("not taken back")
	}
	if err := resume(); err != nil {
		t.Fatal(err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	ask := func(f *client.Future, want error) {
		t.Helper()
		var wg sync.WaitGroup
		for i := range 20 {
			wg.Go(func() {
				ctx := t.Context()
				if i%2 == 0 {
					ctx = ended
				}
				<-f.Done()
				for range 3 {
					got, err := f.Wait(ctx)
					_, again, ok := f.Result()
					if got != nil || !errors.Is(err, want) || again != err || !ok || f.Cancel() {
						t.Errorf("%q, %v, then %v, want %v", got, err, again, want)
					}
				}
			})
		}
		within(t, "waiters", wg.Wait)
	}
	ask(taken, client.ErrNotExecuted)
	var late *client.DeadlineError
	if _, err := sent.Wait(ended); !errors.As(err, &late) || !late.Sent {
		t.Errorf("an ended context: %v", err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	ask(taken, client.ErrNotExecuted)
	ask(sent, client.ErrMaybeExecuted)
	g.Open()
	quiet(t, a, b)
}

// A second Release does nothing: no two requests get the same future.
func TestReleaseTwice(t *testing.T) {
	a, b := daemontest.Pair(t, "")
	serve(t, b, 1, nil)
	m := method(t, attach(t, a), "b/t/echo")
	for range 100 {
		f, err := m.Go(t.Context(), []byte("first"))
		if err != nil {
			t.Fatal(err)
		}
		f.Release() // too early: nothing
		if got, err := f.Wait(t.Context()); err != nil || string(got) != "first" {
			t.Fatalf("%q, %v", got, err)
		}
		f.Release()
		f.Release()
		f.Release()
		one, err1 := m.Go(t.Context(), []byte("one"))
		two, err2 := m.Go(t.Context(), []byte("two"))
		if err := errors.Join(err1, err2); err != nil {
			t.Fatal(err)
		}
		if one == two {
			t.Fatal("two requests have the same future")
		}
		for want, f := range map[string]*client.Future{"one": one, "two": two} {
			if got, err := f.Wait(t.Context()); err != nil || string(got) != want {
				t.Fatalf("%q, %v", got, err)
			}
			f.Release()
		}
	}
	quiet(t, a, b)
}

// A reserved request is sent or given back once, whatever is called afterwards.
func TestCommitTwice(t *testing.T) {
	a, b := daemontest.Pair(t, tiny)
	serve(t, b, 1, nil)
	c := attach(t, a)
	m := method(t, c, "b/t/echo")
	for range 100 { // more than there are slots
		r, err := m.Reserve(t.Context(), 4)
		if err != nil {
			t.Fatal(err)
		}
		copy(r.Bytes(), "once")
		f, err := r.Commit()
		if err != nil {
			t.Fatal(err)
		}
		r.Abort()
		if again, err := r.Commit(); again != nil || !errors.Is(err, client.ErrInvalid) {
			t.Fatalf("a second commit: %v", err)
		}
		if r.Bytes() != nil {
			t.Fatal("it still has bytes")
		}
		if got, err := f.Wait(t.Context()); err != nil || string(got) != "once" {
			t.Fatalf("%q, %v", got, err)
		}
	}
	within(t, "close", func() { // the gate was left as often as entered
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	quiet(t, a, b)
}

// A callback that ends its goroutine leaves nothing behind.
func TestCallFuncExits(t *testing.T) {
	a, b := daemontest.Pair(t, tiny)
	serve(t, b, 1, nil)
	c := attach(t, a)
	m := method(t, c, "b/t/echo")
	for range 100 { // more than there are slots
		var wg sync.WaitGroup
		wg.Go(func() {
			_ = m.CallFunc(t.Context(), []byte("x"), func([]byte) error {
				runtime.Goexit()
				return nil
			})
		})
		within(t, "callback", wg.Wait)
	}
	within(t, "close", func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	quiet(t, a, b)
}

// A handler that never returns costs its worker and its slots, and nothing else: its
// caller can give up, and other requests go on.
func TestHandlerNeverReturns(t *testing.T) {
	a, b := daemontest.Pair(t, "")
	g := newGate()
	defer g.Open() // for the clean-up
	serve(t, b, 2, handlers{"never": func(c *server.Call) error { return g.handle(c) }})
	c := attach(t, a)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-g.entered
		cancel()
	}()
	if _, err := method(t, c, "b/t/never").Call(ctx, nil); !errors.Is(err, client.ErrMaybeExecuted) || !errors.Is(err, client.ErrDeadline) {
		t.Error(err)
	}
	echo := method(t, c, "b/t/echo")
	within(t, "other calls", func() {
		for range 1000 {
			if _, err := echo.Call(t.Context(), []byte("x")); err != nil {
				t.Error(err)
				return
			}
		}
	})
}

// A call without a context panics, as package context does, and keeps nobody from anything: a handler that makes it has its
// panic recovered.
func TestNilContext(t *testing.T) {
	a, b := daemontest.Pair(t, "")
	g := newGate()
	defer g.Open()
	serve(t, b, 1, handlers{"gate": g.handle})
	c := attach(t, a)
	m := method(t, c, "b/t/gate")
	f := outstanding(t, m, 1)[0]
	q := c.NewQueue()
	if err := m.GoTo(t.Context(), q, nil, 1); err != nil {
		t.Fatal(err)
	}
	var none context.Context
	again := m.With(client.Idempotent())
	for what, call := range map[string]func(){
		"Method":           func() { _, _ = c.Method(none, "b/t/other") },
		"Call":             func() { _, _ = m.Call(none, nil) },
		"Call, large":      func() { _, _ = m.Call(none, make([]byte, 3<<20)) },
		"Call, idempotent": func() { _, _ = again.Call(none, nil) },
		"CallFunc":         func() { _ = m.CallFunc(none, nil, func([]byte) error { return nil }) },
		"CallInPlace":      func() { _, _ = m.CallInPlace(none, nil) },
		"CallBatch":        func() { _, _ = m.CallBatch(none, make([][]byte, 2)) },
		"Go":               func() { _, _ = m.Go(none, nil) },
		"Go, idempotent":   func() { _, _ = again.Go(none, nil) },
		"GoInPlace":        func() { _, _ = m.GoInPlace(none, nil) },
		"GoTo":             func() { _ = m.GoTo(none, q, nil, 0) },
		"GoTo, idempotent": func() { _ = again.GoTo(none, q, nil, 0) },
		"Post":             func() { _ = m.Post(none, nil) },
		"PostConfirmed":    func() { _, _ = m.PostConfirmed(none, nil) },
		"Reserve":          func() { _, _ = m.Reserve(none, 1) },
		"CallInPlace of a Request": func() {
			r, err := m.Reserve(t.Context(), 1)
			if err != nil {
				t.Error(err)
			}
			defer r.Abort()
			_, _ = r.CallInPlace(none)
		},
		"CallRegions": func() { _, _ = m.CallRegions(none, nil) },
		"Stream":      func() { _, _ = m.Stream(none) },
		"Wait":        func() { _, _ = f.Wait(none) },
		"All": func() {
			for range q.All(none) {
			}
		},
	} {
		panicked := make(chan any, 1)
		go func() {
			defer func() { panicked <- recover() }()
			call()
		}()
		if <-panicked == nil {
			t.Errorf("%s: no panic", what)
		}
	}
	if n := q.Len(); n != 1 {
		t.Errorf("%d requests in the queue", n)
	}
	within(t, "Close", func() { _ = c.Close() })
}

// That a peer does not answer is not the end of the connection to this node's daemon.
func TestPingOfPeerThatStandsStill(t *testing.T) {
	a, b := daemontest.Pair(t, "")
	c := attach(t, a)
	daemontest.Eventually(t, "the peers are connected", func() error { return second(c.Ping(t.Context(), "b")) })
	resume, err := b.StopCore()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resume() }()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := c.Ping(ctx, "b"); !errors.Is(err, client.ErrNoService) || errors.Is(err, client.ErrClosed) {
		t.Errorf("ping: %v", err)
	}
	select {
	case <-c.Done():
		t.Error("the connection has ended")
	default:
	}
}

// Streams that cannot be are refused before their handler starts: those with an order, which run beside each other, and
// those whose first message is too large.
func TestNoOrderedStream(t *testing.T) {
	a, b := daemontest.Pair(t, "")
	s := serve(t, b, 1, nil)
	var started atomic.Int32
	if err := s.HandleStream("t", "stream", func(*server.Stream) error { started.Add(1); return nil }); err != nil {
		t.Fatal(err)
	}
	m := method(t, attach(t, a), "b/t/stream")
	ordered := m.With(client.Ordered(1))
	for what, err := range map[string]error{
		"Stream": second(ordered.Stream(t.Context())), "StreamWith": second(ordered.StreamWith(t.Context(), []byte("x"))),
	} {
		if !errors.Is(err, client.ErrInvalid) {
			t.Errorf("ordered %s: %v", what, err)
		}
	}
	if _, err := m.StreamWith(t.Context(), make([]byte, client.MaxMessage+1)); !errors.Is(err, client.ErrTooLarge) {
		t.Errorf("a first message that is too large: %v", err)
	}
	// One that can be is begun after them, and is the only one when everything has come to its end.
	st, err := m.Stream(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := st.Recv(t.Context()); !errors.Is(err, io.EOF) {
		t.Errorf("the end of a stream: %v", err)
	}
	if err := st.Close(); err != nil {
		t.Error(err)
	}
	quiet(t, a, b)
	if n := started.Load(); n != 1 {
		t.Errorf("%d handlers have started, want that of one stream", n)
	}
}

// What is read in place has no room behind it, however large it is: appending to it must not write into memory that others get.
func TestNoRoomBehindWhatIsReadInPlace(t *testing.T) {
	a, b := daemontest.Pair(t, "")
	serve(t, b, 1, handlers{"carried": func(c *server.Call) error {
		want := int(binary.LittleEndian.Uint32(c.Request()))
		if k := c.Carried(); len(k) != want || cap(k) != len(k) {
			return fmt.Errorf("%d of %d bytes are carried, with room for %d", len(k), want, cap(k))
		}
		return c.Reply(nil)
	}})
	conn := attach(t, a)
	m := method(t, conn, "b/t/echo")
	check := func(how string, answer []byte) {
		if len(answer) != 300_000 || cap(answer) != len(answer) {
			t.Errorf("%s: %d bytes, with room for %d", how, len(answer), cap(answer))
		}
	}
	if err := m.CallFunc(t.Context(), make([]byte, 300_000), func(answer []byte) error { check("CallFunc", answer); return nil }); err != nil {
		t.Fatal(err)
	}
	answer, err := m.CallInPlace(t.Context(), make([]byte, 300_000))
	if err != nil {
		t.Fatal(err)
	}
	check("CallInPlace", answer.Bytes())
	answer.Release()
	for _, size := range []int{1, 100, 33} {
		if _, err := method(t, conn, "b/t/carried").With(client.Carry(make([]byte, size))).Call(t.Context(), binary.LittleEndian.AppendUint32(nil, uint32(size))); err != nil {
			t.Error(err)
		}
	}
}
