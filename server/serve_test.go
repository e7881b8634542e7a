package server_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/rdmad/rdmad/client"
	"github.com/rdmad/rdmad/internal/daemontest"
	"github.com/rdmad/rdmad/server"
)

// What a handler does is what the caller sees.
func TestHandlers(t *testing.T) {
	a, b := daemontest.Pair(t, "[[class]]\nname=\"tiny\"\nslot_size=128\nslots=64\nmax_run=16\n")
	s := attach(t, b)
	for name, h := range map[string]server.Handler{
		"panic":    func(*server.Call) error { panic("at the disco") },
		"nil":      func(*server.Call) error { var p *int; *p = 1; return nil },
		"error":    func(*server.Call) error { return errors.New("no luck") },
		"wordy":    func(*server.Call) error { return errors.New(strings.Repeat("long ", 10_000)) },
		"nothing":  func(*server.Call) error { return nil },
		"changed":  func(c *server.Call) error { _ = c.Reply([]byte("first")); copy(c.Answer(3), "two"); return nil },
		"grown":    func(c *server.Call) error { copy(c.Answer(3), "abc"); return c.Reply([]byte("longer")) },
		"repaired": func(c *server.Call) error { _ = c.Reply(make([]byte, 5000)); return c.Reply([]byte("fits")) },
		"failed":   func(c *server.Call) error { _ = c.Reply([]byte("x")); return errors.New("after all") },
		"negative": func(c *server.Call) error { c.Answer(-1); return nil },
		"part":     func(c *server.Call) error { return c.Reply(c.Request()[2:5]) },
		"room": func(c *server.Call) error {
			return c.Reply(fmt.Append(nil, c.Capacity(), len(c.Request()), c.Cookie()))
		},
		"ctx": func(c *server.Call) error {
			if _, ok := c.Context().Deadline(); ok || c.Context().Err() != nil {
				return errors.New("a deadline from nowhere")
			}
			return nil
		},
	} {
		handle(t, s, name, h, server.AnswerSize(40))
	}
	start(t, s)
	for name, want := range map[string]string{
		"nothing": "", "changed": "two", "grown": "longer", "repaired": "fits", "part": "que", "room": "40 7 0", "ctx": "",
		"panic": "at the disco", "nil": "invalid memory", "error": "no luck", "wordy": "long long", "failed": "after all",
		"negative": "larger than 1073741824 bytes",
	} {
		got, err := caller(t, a, "b/t/"+name).Call(t.Context(), []byte("request"))
		switch {
		case err == nil && string(got) != want:
			t.Errorf("%s: %q, want %q", name, got, want)
		case err != nil && (!strings.Contains(err.Error(), want) || want == ""):
			t.Errorf("%s: %v, want %q", name, err, want)
		case err != nil && !errors.Is(err, client.ErrRemote) && !errors.Is(err, client.ErrTooLarge):
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestServeAndClose(t *testing.T) {
	a, b := daemontest.Pair(t, "")
	s := attach(t, b, server.Workers(2), server.Name("closer"))
	g := newGate()
	defer g.Open()
	handle(t, s, "gate", g.handle)
	done := start(t, s)
	m := caller(t, a, "b/t/gate")
	f, err := m.Go(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	<-g.entered
	if err := s.Serve(t.Context()); !errors.Is(err, server.ErrInvalid) {
		t.Errorf("a second Serve: %v", err)
	}
	if err := errors.Join(s.Handle("t", "nothing", nil), s.HandleStream("t", "nothing", nil)); err == nil || strings.Count(err.Error(), "no handler") != 2 || !errors.Is(err, server.ErrInvalid) {
		t.Errorf("methods without handlers: %v", err)
	}
	if s.Node() != "b" {
		t.Errorf("node %q", s.Node())
	}
	closed := make(chan error, 1)
	go func() { closed <- s.Close() }()
	go g.Open()
	// Close waits for the handler, and its answer is sent.
	if _, err := f.Wait(soon(t)); err != nil {
		t.Error(err)
	}
	if err := <-closed; err != nil {
		t.Error(err)
	}
	if err := <-done; !errors.Is(err, server.ErrClosed) {
		t.Errorf("serve: %v", err)
	}
	if err := s.Handle("t", "late", g.handle); !errors.Is(err, server.ErrClosed) {
		t.Errorf("handle after close: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Errorf("a second close: %v", err)
	}
	if err := s.Serve(t.Context()); !errors.Is(err, server.ErrClosed) {
		t.Errorf("serve after close: %v", err)
	}
	if _, err := m.Call(soon(t), nil); !errors.Is(err, client.ErrNoService) {
		t.Errorf("a call after close: %v", err)
	}
}

// The end of Serve's context ends it without an error, and lets handlers know.
func TestServeContext(t *testing.T) {
	a, b := daemontest.Pair(t, "")
	s := attach(t, b)
	entered := make(chan struct{})
	handle(t, s, "patient", func(c *server.Call) error {
		close(entered)
		<-c.Context().Done()
		return c.Reply([]byte("gave up"))
	})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx) }()
	f, err := caller(t, a, "b/t/patient").Go(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	<-entered
	cancel()
	if err := <-done; err != nil {
		t.Errorf("serve: %v", err)
	}
	if got, err := f.Wait(soon(t)); err != nil || string(got) != "gave up" {
		t.Errorf("%q, %v", got, err)
	}
}

// A method can be replaced by its process; names are checked.
func TestHandleAgain(t *testing.T) {
	a, b := daemontest.Pair(t, "[limits]\nservices=3\n")
	s := attach(t, b)
	reply := func(text string) server.Handler {
		return func(c *server.Call) error { return c.Reply([]byte(text)) }
	}
	handle(t, s, "m", reply("old"))
	start(t, s)
	m := caller(t, a, "b/t/m")
	if got, err := m.Call(soon(t), nil); err != nil || string(got) != "old" {
		t.Errorf("%q, %v", got, err)
	}
	handle(t, s, "m", reply("new"))
	handle(t, s, "n", reply("other"))
	if got, err := m.Call(soon(t), nil); err != nil || string(got) != "new" {
		t.Errorf("%q, %v", got, err)
	}
	for what, err := range map[string]error{
		"empty name": s.Handle("", "m", reply("")), "space": s.Handle("t", "a b", reply("")),
		"long name":   s.Handle(strings.Repeat("x", 64), "m", reply("")),
		"huge answer": s.Handle("t", "h", reply(""), server.AnswerSize(1<<30)),
	} {
		if !errors.Is(err, server.ErrInvalid) {
			t.Errorf("%s: %v", what, err)
		}
	}
	handle(t, s, "third", reply(""))
	if err := s.Handle("t", "fourth", reply("")); !errors.Is(err, server.ErrLimit) {
		t.Errorf("a method too many: %v", err)
	}
}

// A process that registers and never serves keeps its requests waiting, not those
// of another process, and gives them back when it leaves.
func TestNeverServes(t *testing.T) {
	a, b := daemontest.Pair(t, "")
	lazy := attach(t, b)
	handle(t, lazy, "m", func(*server.Call) error { return nil })
	m := caller(t, a, "b/t/m")
	var fs []*client.Future
	for range 100 {
		f, err := m.Go(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		fs = append(fs, f)
	}
	busy := attach(t, b)
	handle(t, busy, "m", func(*server.Call) error { return nil })
	start(t, busy)
	// Until it has mapped the lane the other one gets everything.
	daemontest.Eventually(t, "an answer", func() error {
		f, err := m.Go(t.Context(), nil)
		if err != nil {
			return err
		}
		fs = append(fs, f)
		brief, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		_, err = f.Wait(brief)
		return err
	})
	for range 50 { // to the one with less under way
		if _, err := m.Call(soon(t), nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := lazy.Close(); err != nil {
		t.Fatal(err)
	}
	for _, f := range fs {
		if _, err := f.Wait(soon(t)); err != nil {
			t.Fatal(err)
		}
	}
}

// Methods come up while their callers already wait and call.
func TestHandleWhileServing(t *testing.T) {
	a, b := daemontest.Pair(t, "")
	s := attach(t, b)
	start(t, s)
	c, err := client.Attach(t.Context(), a.Socket)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for i := range 30 {
		name := fmt.Sprint("m", i)
		called := make(chan error, 1)
		go func() {
			for {
				got, err := c.Call(soon(t), "b/t/"+name, nil)
				if errors.Is(err, client.ErrNoService) {
					continue // not heard of yet
				}
				if err == nil && string(got) != name {
					err = fmt.Errorf("%q", got)
				}
				called <- err
				return
			}
		}()
		handle(t, s, name, func(c *server.Call) error { return c.Reply([]byte(name)) })
		if err := <-called; err != nil {
			t.Fatal(err)
		}
	}
}

// The daemon dies under a serving process.
func TestDaemonDies(t *testing.T) {
	_, b := daemontest.Pair(t, "")
	s := attach(t, b)
	handle(t, s, "m", func(*server.Call) error { return nil })
	done := start(t, s)
	if err := b.Crash(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; !errors.Is(err, server.ErrClosed) {
		t.Errorf("serve: %v", err)
	}
	again := attach(t, b)
	handle(t, again, "m", func(*server.Call) error { return nil })
	start(t, again)
	if _, err := caller(t, b, "b/t/m").Call(soon(t), nil); err != nil {
		t.Error(err)
	}
}

// A peer that restarts leaves a running handler its slots: the answer goes
// nowhere, and the memory of the old lane is given back.
func TestPeerRestartsUnderHandler(t *testing.T) {
	a, b := daemontest.Pair(t, "")
	s := attach(t, b)
	g := newGate()
	defer g.Open()
	handle(t, s, "gate", g.handle)
	handle(t, s, "quick", func(c *server.Call) error { return c.Reply(c.Request()) })
	start(t, s)
	for range 3 {
		m := caller(t, a, "b/t/gate")
		if _, err := m.Go(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		<-g.entered
		if err := a.Crash(); err != nil {
			t.Fatal(err)
		}
		if err := b.Connected("a"); err != nil {
			t.Fatal(err)
		}
		if got, err := caller(t, a, "b/t/quick").Call(soon(t), []byte("x")); err != nil || string(got) != "x" {
			t.Fatalf("%q, %v", got, err)
		}
	}
	g.Open()
	if err := b.Quiet(); err != nil {
		t.Error(err)
	}
	daemontest.Eventually(t, "old lanes are gone", func() error {
		st, err := b.Status(t.Context())
		if err != nil {
			return err
		}
		if len(st.Lanes) > 2 {
			return fmt.Errorf("lanes: %+v", st.Lanes)
		}
		return nil
	})
	if _, err := caller(t, a, "b/t/quick").Call(soon(t), nil); err != nil {
		t.Error(err)
	}
}
