package client_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rdmad/rdmad/client"
	"github.com/rdmad/rdmad/internal/daemontest"
	"github.com/rdmad/rdmad/server"
)

func TestManyWaitersOnOneFuture(t *testing.T) {
	a, b := daemontest.Pair(t, "")
	g := newGate()
	defer g.Open()
	serve(t, b, 1, handlers{"gate": g.handle})
	c := attach(t, a)
	f, err := method(t, c, "b/t/gate").Go(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	<-g.entered
	if _, _, ok := f.Result(); ok {
		t.Error("a result before the answer")
	}
	short, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
	defer cancel()
	var wg, gaveUp sync.WaitGroup
	gaveUp.Add(10)
	for i := range 30 {
		wg.Go(func() {
			if i%3 == 0 { // gives up first and waits again
				var late *client.DeadlineError
				if _, err := f.Wait(short); !errors.As(err, &late) || !late.Sent || !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("short wait: %v", err)
				}
				gaveUp.Done()
			}
			if i%3 == 1 {
				<-f.Done()
			}
			if got, err := f.Wait(t.Context()); err != nil || string(got) != "ok" {
				t.Errorf("waiter %d: %q, %v", i, got, err)
			}
		})
	}
	gaveUp.Wait()
	if f.Cancel() {
		t.Error("a running request was cancelled")
	}
	g.Open()
	within(t, "waiters", wg.Wait)
	if got, err, ok := f.Result(); !ok || err != nil || string(got) != "ok" {
		t.Errorf("result: %q, %v, %v", got, err, ok)
	}
	<-f.Done() // again, when it is long over
	f.Release()
	quiet(t, a, b)
}

// A request that the daemon has not taken can be taken back.
func TestCancelBeforeSend(t *testing.T) {
	a, b := daemontest.Pair(t, "")
	var ran atomic.Int64
	serve(t, b, 1, handlers{"count": func(*server.Call) error { ran.Add(1); return nil }})
	c := attach(t, a)
	m := method(t, c, "b/t/count")
	resume, err := a.StopCore()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resume() }()
	f, err := m.Go(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if !f.Cancel() || f.Cancel() {
		t.Error("cancel, or a second cancel")
	}
	if _, err := f.Wait(t.Context()); !errors.Is(err, client.ErrNotExecuted) || errors.Is(err, client.ErrMaybeExecuted) {
		t.Error(err)
	}
	f.Release()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	var late *client.DeadlineError
	if _, err := m.Call(ctx, nil); !errors.As(err, &late) || late.Sent || !errors.Is(err, client.ErrNotExecuted) {
		t.Error(err)
	}
	if err := resume(); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Call(t.Context(), nil); err != nil {
		t.Error(err)
	}
	if n := ran.Load(); n != 1 {
		t.Errorf("executed %d times", n)
	}
	quiet(t, a, b)
}

// tiny is a class that 64 requests fill.
const tiny = "[[class]]\nname=\"tiny\"\nslot_size=128\nslots=64\nmax_run=16\n"

func TestBackpressure(t *testing.T) {
	a, b := daemontest.Pair(t, tiny)
	g := newGate()
	defer g.Open()
	serve(t, b, 1, handlers{"gate": g.handle})
	c := attach(t, a)
	m := method(t, c, "b/t/gate")
	fs := outstanding(t, m, 64)
	if _, err := m.With(client.NoWait()).Call(t.Context(), nil); !errors.Is(err, client.ErrBackpressure) {
		t.Errorf("no wait: %v", err)
	}
	if err := m.With(client.NoWait()).Post(t.Context(), nil); !errors.Is(err, client.ErrBackpressure) {
		t.Errorf("post, no wait: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	for what, err := range map[string]error{
		"call":    second(m.Call(ctx, nil)),
		"reserve": second(m.Reserve(ctx, 1)),
		"post":    m.Post(ctx, nil),
	} {
		var late *client.DeadlineError
		if !errors.As(err, &late) || late.Sent || !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, client.ErrNotExecuted) {
			t.Errorf("%s: %v", what, err)
		}
	}
	var wg sync.WaitGroup
	for range 200 { // three times what fits waits for room
		wg.Go(func() {
			if _, err := m.Call(t.Context(), nil); err != nil {
				t.Error(err)
			}
		})
	}
	g.Open()
	// Futures that nobody waits for hold slots: those who need room take the
	// answers out.
	within(t, "calls", wg.Wait)
	for _, f := range fs {
		if _, err := f.Wait(t.Context()); err != nil {
			t.Error(err)
		}
	}
	quiet(t, a, b)
}

// Claimers that wait when the connection is closed are freed.
func TestCloseFreesClaimers(t *testing.T) {
	a, b := daemontest.Pair(t, tiny)
	g := newGate()
	defer g.Open()
	serve(t, b, 1, handlers{"gate": g.handle})
	c := attach(t, a)
	m := method(t, c, "b/t/gate")
	fs := outstanding(t, m, 64)
	<-g.entered
	var wg sync.WaitGroup
	var started atomic.Int64
	for range 10 {
		wg.Go(func() {
			started.Add(1)
			if _, err := m.Call(t.Context(), nil); !errors.Is(err, client.ErrClosed) {
				t.Errorf("claimer: %v", err)
			}
		})
	}
	daemontest.Eventually(t, "claimers", func() error {
		if started.Load() < 10 {
			return errors.New("not all started")
		}
		return nil
	})
	within(t, "close", func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		wg.Wait()
	})
	ended(t, fs)
	g.Open()
	quiet(t, a, b)
}

// A deadline travels: what waits at the receiver when it passes is not executed.
func TestDeadlineTravels(t *testing.T) {
	a, b := daemontest.Pair(t, "")
	g := newGate()
	defer g.Open()
	var ran atomic.Int64
	deadlines := make(chan time.Duration, 16)
	serve(t, b, 1, handlers{"gate": g.handle, "count": func(c *server.Call) error {
		ran.Add(1)
		d, ok := c.Context().Deadline()
		if !ok {
			return errors.New("no deadline")
		}
		deadlines <- time.Until(d)
		return nil
	}})
	c := attach(t, a)
	gateM, count := method(t, c, "b/t/gate"), method(t, c, "b/t/count")
	blocking := outstanding(t, gateM, 1)
	<-g.entered
	var fs []*client.Future
	passed(t, func(ctx context.Context) bool {
		for range 10 {
			f, ok := goBefore(t, ctx, count)
			if !ok {
				return false
			}
			fs = append(fs, f)
		}
		return true
	})
	g.Open()
	for _, f := range fs {
		var late *client.DeadlineError
		if _, err := f.Wait(t.Context()); !errors.As(err, &late) || late.Sent || !errors.Is(err, client.ErrNotExecuted) {
			t.Errorf("expired: %v", err)
		}
	}
	if _, err := blocking[0].Wait(t.Context()); err != nil {
		t.Error(err)
	}
	if n := ran.Load(); n != 0 {
		t.Errorf("%d expired requests were executed", n)
	}
	long, cancelLong := context.WithTimeout(t.Context(), time.Hour)
	defer cancelLong()
	if _, err := count.Call(long, nil); err != nil {
		t.Fatal(err)
	}
	if left := <-deadlines; left > time.Hour+time.Minute || left < time.Hour-5*time.Minute {
		t.Errorf("the handler saw a deadline in %v", left)
	}
	over, cancelOver := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
	defer cancelOver()
	if _, err := count.Call(over, nil); !errors.Is(err, client.ErrDeadline) || !errors.Is(err, client.ErrNotExecuted) {
		t.Errorf("a deadline in the past: %v", err)
	}
	quiet(t, a, b)
}

func TestLookups(t *testing.T) {
	a, b := daemontest.Pair(t, "[limits]\nconnect_wait=\"50ms\"\n")
	serve(t, b, 1, nil)
	c := attach(t, a)
	method(t, c, "b/t/echo")
	method(t, c, "t/echo")
	if c.Node() != "a" || c.Domain() != "default" {
		t.Errorf("node %q, domain %q", c.Node(), c.Domain())
	}
	for target, want := range map[string]error{
		"b/t/none": client.ErrNoService, "b/x/echo": client.ErrNoService, "c/t/echo": client.ErrNoService,
		"x/echo": client.ErrNoService, "a/t/echo": client.ErrNoService,
		"": client.ErrInvalid, "t": client.ErrInvalid, "a/b/c/d": client.ErrInvalid, "b/t/": client.ErrInvalid, "b/t/a b": client.ErrInvalid,
	} {
		if _, err := c.Call(t.Context(), target, nil); !errors.Is(err, want) {
			t.Errorf("%q: %v, want %v", target, err, want)
		}
	}
	if d, err := c.Ping(t.Context(), "b"); err != nil || d <= 0 {
		t.Errorf("ping: %v, %v", d, err)
	}
	if _, err := c.Ping(t.Context(), "c"); !errors.Is(err, client.ErrNoService) {
		t.Errorf("ping of an unknown node: %v", err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.Method(ended, "b/t/other"); !errors.Is(err, context.Canceled) {
		t.Errorf("look-up with an ended context: %v", err)
	}
	if _, err := client.Attach(ended, a.Socket); !errors.Is(err, context.Canceled) {
		t.Errorf("attach with an ended context: %v", err)
	}
	if _, err := client.Attach(t.Context(), a.Socket+".none"); !errors.Is(err, client.ErrNotRunning) {
		t.Errorf("attach to nothing: %v", err)
	}
	// Unknown targets leave nothing that would keep a known one from working.
	if got, err := c.Call(t.Context(), "t/echo", []byte("x")); err != nil || string(got) != "x" {
		t.Errorf("%q, %v", got, err)
	}
}

// Handlers' answers that do not fit, for callers who want them in place.
func TestAnswerTooLarge(t *testing.T) {
	a, b := daemontest.Pair(t, "")
	serve(t, b, 1, handlers{"big": func(c *server.Call) error {
		return c.Reply(make([]byte, 5000))
	}, "place": func(c *server.Call) error {
		if p := c.Answer(5000); p != nil {
			copy(p, "there is room")
		}
		return nil
	}})
	for _, n := range []*daemontest.Node{a, b} { // remote and local
		c := attach(t, n)
		for _, name := range []string{"b/t/big", "b/t/place"} {
			m := method(t, c, name).With(client.Direct())
			var e *client.TooLargeError
			if _, err := m.Call(t.Context(), nil); !errors.Is(err, client.ErrTooLarge) || !errors.As(err, &e) || e.Limit != 64 || e.What != "answer" {
				t.Errorf("%s: %v", name, err)
			}
			if got, err := m.With(client.AnswerSize(5000)).Call(t.Context(), nil); err != nil || len(got) != 5000 {
				t.Errorf("%s: %d bytes, %v", name, len(got), err)
			}
		}
	}
	quiet(t, a, b)
}

// Workers beyond the limit are refused, and a place is free again as soon as one
// has said goodbye.
func TestAttachLimit(t *testing.T) {
	a, _ := daemontest.Pair(t, "[limits]\nworkers=2\n")
	for range 20 {
		var cs []*client.Conn
		for range 2 {
			var c *client.Conn
			daemontest.Eventually(t, "attach", func() (err error) {
				c, err = client.Attach(t.Context(), a.Socket)
				return err
			})
			cs = append(cs, c)
		}
		if _, err := client.Attach(t.Context(), a.Socket); !errors.Is(err, client.ErrLimit) {
			t.Fatalf("a third worker: %v", err)
		}
		for _, c := range cs {
			if err := c.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// Half of the calls of each of several processes' worth of connections go to
// their own node, while others come and go: ids and slots are used again.
func TestComeAndGo(t *testing.T) {
	a, b := daemontest.Pair(t, tiny)
	serve(t, a, 2, nil)
	serve(t, b, 2, nil)
	method(t, attach(t, a), "b/t/echo")
	var wg sync.WaitGroup
	for g := range 6 {
		wg.Go(func() {
			for round := range 12 {
				c, err := client.Attach(t.Context(), a.Socket)
				if err != nil {
					t.Error(err)
					return
				}
				for i := range 40 {
					msg := fmt.Sprint(g, round, i)
					got, err := c.Call(t.Context(), []string{"a", "b"}[i%2]+"/t/echo", []byte(msg))
					if err != nil || string(got) != msg {
						t.Errorf("%q for %q, %v", got, msg, err)
					}
				}
				for range 5 { // left behind
					if _, err := c.Go(t.Context(), "b/t/echo", []byte("x")); err != nil {
						t.Error(err)
					}
				}
				if err := c.Close(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	quiet(t, a, b)
}
