package client_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rdmad/rdmad/client"
	"github.com/rdmad/rdmad/internal/daemontest"
	"github.com/rdmad/rdmad/server"
)

// outstanding starts n calls of a blocked handler.
func outstanding(t *testing.T, m *client.Method, n int) []*client.Future {
	t.Helper()
	var fs []*client.Future
	for range n {
		f, err := m.Go(t.Context(), []byte("x"))
		if err != nil {
			t.Fatal(err)
		}
		fs = append(fs, f)
	}
	return fs
}

// ended checks that every future has one of the outcomes of a lost connection.
func ended(t *testing.T, fs []*client.Future) {
	t.Helper()
	within(t, "wait", func() {
		for i, f := range fs {
			_, err := f.Wait(t.Context())
			if errors.Is(err, client.ErrNotExecuted) == errors.Is(err, client.ErrMaybeExecuted) || errors.Is(err, client.ErrDeadline) {
				t.Errorf("future %d: %v", i, err)
			}
			if _, again, ok := f.Result(); !ok || again != err {
				t.Errorf("future %d: then %v", i, again)
			}
		}
	})
}

// Whoever calls when the daemon has stopped hears that it has, whatever is called.
func TestStoppedDaemonIsNamed(t *testing.T) {
	a, b := daemontest.Pair(t, "")
	serve(t, b, 1, handlers{"m": func(c *server.Call) error { return c.Reply(nil) }})
	c := attach(t, a)
	m := method(t, c, "b/t/m")
	if err := a.Halt(); err != nil {
		t.Fatal(err)
	}
	<-c.Done()
	for name, call := range map[string]func() error{
		"a method":  func() error { _, err := m.Call(t.Context(), nil); return err },
		"a stream":  func() error { _, err := m.Stream(t.Context()); return err },
		"a post":    func() error { return m.Post(t.Context(), nil) },
		"a new one": func() error { _, err := c.Method(t.Context(), "b/t/other"); return err },
		"a status":  func() error { _, err := c.Status(t.Context()); return err },
	} {
		if err := call(); !errors.Is(err, client.ErrClosed) || !strings.Contains(err.Error(), "the daemon is stopping") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// What was under way says what has ended it, and of which daemon; the reason is one error for all.
func TestRequestsSayWhatEndedThem(t *testing.T) {
	a, b := daemontest.Pair(t, "drain_timeout=\"100ms\"\n")
	g := newGate()
	defer g.Open()
	serve(t, b, 2, handlers{"gate": g.handle})
	for _, c := range []struct {
		name string
		end  func(*client.Conn) error
		says []string
	}{
		{"closed", (*client.Conn).Close, []string{"by this process"}},
		{"stopped", func(conn *client.Conn) error {
			if a.Halt() == nil {
				return errors.New("the daemon has drained with requests under way")
			}
			<-conn.Done()
			return nil
		}, []string{"the daemon is stopping", a.Socket}},
	} {
		conn := attach(t, a)
		fs := outstanding(t, method(t, conn, "b/t/gate"), 20)
		if err := c.end(conn); err != nil {
			t.Fatal(err)
		}
		ended(t, fs)
		causes := make(map[error]bool)
		for i, f := range fs {
			_, err, _ := f.Result()
			if !errors.Is(err, client.ErrClosed) || !containsAll(err.Error(), c.says) {
				t.Errorf("%s: future %d: %v", c.name, i, err)
			}
			if wrapped, ok := err.(interface{ Unwrap() []error }); ok {
				causes[wrapped.Unwrap()[1]] = true
			}
		}
		if len(causes) != 1 {
			t.Errorf("%s: the end was explained %d times: %v", c.name, len(causes), causes)
		}
	}
}

// containsAll reports whether text has all words.
func containsAll(text string, words []string) bool {
	return !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(text, w) })
}

func TestCloseWithOutstandingCalls(t *testing.T) {
	a, b := daemontest.Pair(t, "")
	g := newGate()
	defer g.Open()
	serve(t, b, 2, handlers{"gate": g.handle})
	c := attach(t, a)
	m := method(t, c, "b/t/gate")
	fs := outstanding(t, m, 200)
	<-g.entered
	var wg sync.WaitGroup
	for i := range 20 { // waiters of several kinds, and futures nobody waits for
		wg.Go(func() { _, _ = fs[i].Wait(t.Context()) })
		wg.Go(func() { <-fs[20+i].Done() })
	}
	wg.Go(func() {
		if _, err := m.Call(t.Context(), nil); err == nil {
			t.Error("a call was answered")
		}
	})
	within(t, "close", func() {
		wg.Go(func() { _ = c.Close() })
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		wg.Wait()
	})
	ended(t, fs)
	<-c.Done()
	for what, err := range map[string]error{
		"call":    second(m.Call(t.Context(), nil)),
		"go":      second(m.Go(t.Context(), nil)),
		"post":    m.Post(t.Context(), nil),
		"reserve": second(m.Reserve(t.Context(), 1)),
		"method":  second(c.Method(t.Context(), "b/t/other")),
		"known":   second(c.Method(t.Context(), "b/t/gate")),
		"status":  second(c.Status(t.Context())),
		"ping":    second(c.Ping(t.Context(), "b")),
	} {
		if !errors.Is(err, client.ErrClosed) {
			t.Errorf("%s after close: %v", what, err)
		}
	}
	for _, f := range fs {
		if f.Cancel() {
			t.Error("cancelled after close")
		}
	}
	g.Open()
	quiet(t, a, b)
}

// Close must not return before a reserved request is given back, because its
// bytes are in the memory that Close unmaps.
func TestCloseWaitsForReservation(t *testing.T) {
	a, _ := daemontest.Pair(t, "")
	serve(t, a, 1, nil)
	c := attach(t, a)
	r, err := method(t, c, "t/echo").Reserve(t.Context(), 10)
	if err != nil {
		t.Fatal(err)
	}
	closed := make(chan error, 1)
	go func() { closed <- c.Close() }()
	copy(r.Bytes(), "0123456789")
	select {
	case <-closed:
		t.Fatal("closed under a reservation")
	case <-c.Done():
		t.Fatal("done under a reservation")
	case <-time.After(20 * time.Millisecond): // nothing tells that nothing happens
	}
	r.Abort()
	r.Abort()
	if err := <-closed; err != nil {
		t.Error(err)
	}
	if _, err := r.Commit(); !errors.Is(err, client.ErrInvalid) {
		t.Errorf("commit after abort: %v", err)
	}
}

// A request that was posted just before Close is still sent.
func TestPostAndClose(t *testing.T) {
	a, b := daemontest.Pair(t, "")
	var got atomic.Int64
	serve(t, b, 2, handlers{"note": func(*server.Call) error { got.Add(1); return nil }})
	const rounds = 50
	for range rounds {
		c, err := client.Attach(t.Context(), a.Socket)
		if err != nil {
			t.Fatal(err)
		}
		m := method(t, c, "b/t/note")
		for range 4 {
			if err := m.Post(t.Context(), []byte("x")); err != nil {
				t.Fatal(err)
			}
		}
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
	}
	daemontest.Eventually(t, "posts", func() error {
		if n := got.Load(); n != 4*rounds {
			return fmt.Errorf("%d of %d arrived", n, 4*rounds)
		}
		return nil
	})
}

// The own daemon dies: every call gets a typed error, and attaching again works.
func TestOwnDaemonDies(t *testing.T) {
	a, b := daemontest.Pair(t, "")
	g := newGate()
	defer g.Open()
	serve(t, b, 1, handlers{"gate": g.handle})
	c := attach(t, a)
	m := method(t, c, "b/t/gate")
	fs := outstanding(t, m, 100)
	<-g.entered
	var wg sync.WaitGroup
	for i := range 30 {
		wg.Go(func() { _, _ = fs[i].Wait(t.Context()) })
	}
	wg.Go(func() { <-fs[31].Done() })
	if err := a.Crash(); err != nil {
		t.Fatal(err)
	}
	ended(t, fs)
	wg.Wait()
	<-c.Done()
	if _, err := m.Call(t.Context(), nil); !errors.Is(err, client.ErrClosed) {
		t.Errorf("call: %v", err)
	}
	if err := m.Post(t.Context(), nil); !errors.Is(err, client.ErrClosed) {
		t.Errorf("post: %v", err)
	}
	g.Open()
	again := attach(t, a)
	m = method(t, again, "b/t/gate")
	if _, err := m.Call(t.Context(), nil); err != nil {
		t.Error(err)
	}
	quiet(t, a, b)
}

// The peer's daemon dies: requests end in ErrMaybeExecuted, and the same Conn
// and Method work when it is back with its service.
func TestPeerDies(t *testing.T) {
	a, b := daemontest.Pair(t, "")
	g := newGate()
	defer g.Open()
	s := serve(t, b, 1, handlers{"gate": g.handle})
	c := attach(t, a)
	m, echo := method(t, c, "b/t/gate"), method(t, c, "b/t/echo")
	fs := outstanding(t, m, 50)
	<-g.entered
	if err := b.Crash(); err != nil {
		t.Fatal(err)
	}
	ended(t, fs)
	g.Open()
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if err := b.Connected("a"); err != nil {
		t.Fatal(err)
	}
	// The new daemon counts its methods anew, and in another order: an old id
	// must not reach another method.
	serve(t, b, 1, handlers{"wrong": func(c *server.Call) error {
		return c.Reply([]byte("wrong"))
	}, "gate": func(c *server.Call) error { return c.Reply([]byte("right")) }})
	for what, m := range map[string]*client.Method{"x": echo, "right": m} {
		if m == echo { // known to be served again: the first call finds it
			method(t, attach(t, a), "b/t/echo")
			if got, err := m.Call(t.Context(), []byte("x")); err != nil || string(got) != "x" {
				t.Errorf("first call after the restart: %q, %v", got, err)
			}
		}
		daemontest.Eventually(t, "call again", func() error {
			got, err := m.Call(t.Context(), []byte("x"))
			if err == nil && string(got) != what {
				t.Fatalf("%q instead of %q", got, what)
			}
			if err != nil && !errors.Is(err, client.ErrNotExecuted) && !errors.Is(err, client.ErrNoService) {
				t.Fatal(err)
			}
			return err
		})
	}
	quiet(t, a, b)
}

// The peer restarts many times under load: a call is answered rightly, or fails
// with a known error; nothing hangs.
func TestPeerRestartsUnderLoad(t *testing.T) {
	a, b := daemontest.Pair(t, "")
	c := attach(t, a)
	var wg sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	var answered atomic.Int64
	for g := range 8 {
		wg.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				msg := fmt.Sprint(g, " ", n)
				got, err := c.Call(ctx, "b/t/echo", []byte(msg))
				switch {
				case err == nil && string(got) != msg:
					t.Errorf("%q instead of %q", got, msg)
				case err == nil:
					answered.Add(1)
				case !errors.Is(err, client.ErrNotExecuted) && !errors.Is(err, client.ErrMaybeExecuted) && !errors.Is(err, client.ErrNoService) && ctx.Err() == nil:
					t.Errorf("call: %v", err)
				}
			}
		})
	}
	for range 4 {
		s, err := server.Attach(t.Context(), b.Socket)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Handle("t", "echo", func(c *server.Call) error { return c.Reply(c.Request()) }); err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() { done <- s.Serve(context.Background()) }()
		before := answered.Load()
		daemontest.Eventually(t, "answers", func() error {
			if n := answered.Load(); n < before+500 {
				return fmt.Errorf("%d calls answered", n-before)
			}
			return nil
		})
		if err := b.Crash(); err != nil {
			t.Fatal(err)
		}
		if err := <-done; !errors.Is(err, server.ErrClosed) {
			t.Errorf("serve: %v", err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	cancel()
	within(t, "callers", wg.Wait)
}

// A process that dies inside a handler: its request may have been executed, and
// those that it had not started go to another process.
func TestServiceProcessDies(t *testing.T) {
	a, b := daemontest.Pair(t, "")
	first := daemontest.Spawn(t, "service", b.Socket, "first")
	c := attach(t, a)
	stuck, who := method(t, c, "b/t/stuck"), method(t, c, "b/t/who")
	f, err := stuck.Go(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if line := first.Line(); line != "stuck" {
		t.Fatalf("the service says %q", line)
	}
	queued := outstanding(t, who, 20)
	if err := b.Connected("a"); err != nil { // a round through b's daemon
		t.Fatal(err)
	}
	daemontest.Spawn(t, "service", b.Socket, "second")
	first.Kill()
	if _, err := f.Wait(t.Context()); !errors.Is(err, client.ErrMaybeExecuted) || !strings.Contains(err.Error(), "died") {
		t.Errorf("the started request: %v", err)
	}
	for i, f := range queued {
		if got, err := f.Wait(t.Context()); err != nil || string(got) != "second" {
			t.Errorf("request %d: %q, %v", i, got, err)
		}
	}
	quiet(t, a, b)
}

// The last process that serves a method dies: what it had not started is refused.
func TestLastServiceProcessDies(t *testing.T) {
	a, b := daemontest.Pair(t, "")
	p := daemontest.Spawn(t, "service", b.Socket, "only")
	c := attach(t, a)
	stuck, who := method(t, c, "b/t/stuck"), method(t, c, "b/t/who")
	first, err := stuck.Go(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	p.Line()
	queued := outstanding(t, who, 5)
	daemontest.Eventually(t, "delivery", func() error {
		st, err := b.Status(t.Context())
		if err == nil && st.Counters["requests_received"] < 6 {
			err = fmt.Errorf("%d received", st.Counters["requests_received"])
		}
		return err
	})
	p.Kill()
	if _, err := first.Wait(t.Context()); !errors.Is(err, client.ErrMaybeExecuted) {
		t.Error(err)
	}
	for _, f := range queued {
		if _, err := f.Wait(t.Context()); !errors.Is(err, client.ErrNoService) || !errors.Is(err, client.ErrNotExecuted) {
			t.Error(err)
		}
	}
	quiet(t, a, b)
}

// Who keeps Close from returning, in a callback or with a request that it writes in place, may wait for other answers
// meanwhile: they get their outcomes first.
func TestCloseBesideThoseWhoWaitElsewhere(t *testing.T) {
	a, b := daemontest.Pair(t, "")
	g := newGate()
	defer g.Open()
	serve(t, b, 8, handlers{"gate": g.handle}) // four of them wait at the gate in the end
	for what, holding := range map[string]func(c *client.Conn, then func() error) error{
		"callback": func(c *client.Conn, then func() error) error {
			return method(t, c, "b/t/echo").CallFunc(t.Context(), []byte("x"), func([]byte) error { return then() })
		},
		"request in place": func(c *client.Conn, then func() error) error {
			r, err := method(t, c, "b/t/echo").Reserve(t.Context(), 8)
			if err != nil {
				return err
			}
			defer r.Abort()
			return then()
		},
	} {
		c := attach(t, a)
		m := method(t, c, "b/t/gate")
		closed := make(chan error, 1)
		within(t, what, func() {
			err := holding(c, func() error {
				f, err := m.Go(t.Context(), nil)
				if err != nil {
					return err
				}
				q := c.NewQueue()
				if err := m.GoTo(t.Context(), q, nil, 1); err != nil {
					return err
				}
				go func() { closed <- c.Close() }()
				for err == nil { // until the connection is closed to others
					_, err = c.Status(t.Context())
				}
				if _, err := f.Wait(context.Background()); !errors.Is(err, client.ErrMaybeExecuted) && !errors.Is(err, client.ErrNotExecuted) {
					t.Errorf("%s: %v", what, err)
				}
				n := 0
				for range q.All(context.Background()) {
					n++
				}
				if n != 1 {
					t.Errorf("%s: %d outcomes of a queue", what, n)
				}
				return nil
			})
			if err != nil {
				t.Errorf("%s: %v", what, err)
			}
			if err := <-closed; err != nil {
				t.Errorf("%s: close: %v", what, err)
			}
		})
	}
}
