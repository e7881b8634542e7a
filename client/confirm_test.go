package client_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/rdmad/rdmad/client"
	control "github.com/rdmad/rdmad/internal/attach"
	"github.com/rdmad/rdmad/internal/daemontest"
	"github.com/rdmad/rdmad/server"
	"github.com/rdmad/rdmad/slots"
)

// answering are handlers that were written for calls, with answers of all kinds.
var answering = handlers{
	"ok":    func(*server.Call) error { return nil },
	"reply": func(c *server.Call) error { return c.Reply([]byte("nobody reads it")) },
	"long":  func(c *server.Call) error { return c.Reply(make([]byte, 5000)) },
	"place": func(c *server.Call) error {
		binary.LittleEndian.PutUint64(c.Answer(8), 1)
		return nil
	},
	"pages": func(c *server.Call) error {
		for _, n := range []int{100, 5000, 60 << 10, 1 << 20} {
			req := string(c.Request())
			p := c.Answer(n)
			if len(p) != n || !bytes.HasPrefix(p, []byte(req)) {
				return fmt.Errorf("%d bytes for an answer of %d, after %q", len(p), n, req)
			}
		}
		return nil
	},
	"exact": func(c *server.Call) error {
		if n := c.Capacity(); n != 64 { // what serve declares
			return fmt.Errorf("room for %d", n)
		}
		return c.Reply(make([]byte, 64))
	},
	"senseless": func(c *server.Call) error {
		if c.Answer(-1) != nil || c.Answer(1<<40) != nil {
			return errors.New("bytes for an impossible answer")
		}
		return nil
	},
}

// A message is confirmed when its handler has returned, whatever it answers, here and
// on another node. So are the messages of a queue.
func TestPostConfirmed(t *testing.T) {
	a, b := daemontest.Pair(t, "")
	serve(t, b, 2, answering)
	for _, n := range []*daemontest.Node{a, b} {
		c := attach(t, n)
		q := c.NewQueue()
		for name := range answering {
			m := method(t, c, "b/t/"+name)
			f, err := m.PostConfirmed(t.Context(), []byte("message"))
			if err != nil {
				t.Fatal(err)
			}
			if got, err := f.Wait(t.Context()); err != nil || got != nil {
				t.Errorf("%s: %q, %v", name, got, err)
			}
			f.Release()
			if err := m.PostTo(t.Context(), q, []byte("message"), uint64(len(name))); err != nil {
				t.Fatal(err)
			}
		}
		for tag, r := range q.All(t.Context()) {
			if r.Err != nil || r.Answer != nil {
				t.Errorf("tag %d: %q, %v", tag, r.Answer, r.Err)
			}
		}
	}
	c := attach(t, a)
	if err := method(t, c, "b/t/ok").PostTo(t.Context(), nil, nil, 0); !errors.Is(err, client.ErrInvalid) {
		t.Errorf("no queue: %v", err)
	}
	quiet(t, a, b)
}

// A handler of calls does no harm to one-way messages either: none of them fails.
func TestPostToHandlersOfCalls(t *testing.T) {
	a, b := daemontest.Pair(t, "")
	serve(t, b, 2, answering)
	c := attach(t, a)
	const rounds = 20
	for name := range answering {
		m := method(t, c, "b/t/"+name)
		for range rounds {
			if err := m.Post(t.Context(), []byte("message")); err != nil {
				t.Fatal(err)
			}
		}
	}
	var counters map[string]uint64
	daemontest.Eventually(t, "all done", func() error {
		st, err := a.Status(t.Context())
		if err != nil {
			return err
		}
		counters = st.Counters
		if n := counters["oneway_done"]; n != uint64(rounds*len(answering)) {
			return fmt.Errorf("%d messages done", n)
		}
		return nil
	})
	if n := counters["oneway_failed"]; n != 0 {
		t.Errorf("%d messages failed", n)
	}
}

// What goes wrong has the outcome of a call.
func TestPostConfirmedErrors(t *testing.T) {
	a, b := daemontest.Pair(t, "")
	g := newGate()
	defer g.Open()
	s := serve(t, b, 1, handlers{
		"error": func(*server.Call) error { return errors.New(strings.Repeat("no luck ", 1000)) },
		"panic": func(*server.Call) error { panic("at the disco") },
		"gate":  g.handle,
	})
	c := attach(t, a)
	outcome := func(name string) error {
		f, err := method(t, c, "b/t/"+name).PostConfirmed(t.Context(), []byte("x"))
		if err != nil {
			t.Fatal(err)
		}
		got, err := f.Wait(t.Context())
		if got != nil {
			t.Errorf("%s: an answer of %d bytes", name, len(got))
		}
		return err
	}
	var remote *client.RemoteError
	// The text has the room of one slot of the smallest class.
	if err := outcome("error"); !errors.As(err, &remote) || remote.Text != strings.Repeat("no luck ", 1000)[:128-slots.HeaderSize] {
		t.Errorf("error: %v", err)
	}
	if err := outcome("panic"); !errors.As(err, &remote) || !strings.Contains(remote.Text, "at the disco") {
		t.Errorf("panic: %v", err)
	}
	m := method(t, c, "b/t/echo")
	fs := outstanding(t, method(t, c, "b/t/gate"), 1)
	<-g.entered
	var late *client.DeadlineError
	daemontest.InTime(t, "a message that is sent before its deadline", func(ctx context.Context) bool {
		f, err := m.PostConfirmed(ctx, nil)
		if err == nil {
			<-ctx.Done()
			_, err = f.Wait(ctx)
		}
		if !errors.As(err, &late) || !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, client.ErrMaybeExecuted) != late.Sent {
			t.Fatalf("behind a slow one: %v", err)
		}
		return late.Sent
	})
	g.Open()
	if err := errors.Join(second(fs[0].Wait(t.Context())), s.Close()); err != nil {
		t.Error(err)
	}
	// The old route is good for one more message at most.
	f, err := m.PostConfirmed(t.Context(), nil)
	if err == nil {
		if _, err = f.Wait(t.Context()); !errors.Is(err, client.ErrNotExecuted) {
			t.Errorf("nobody serves it: %v", err)
		}
	}
	if !errors.Is(err, client.ErrNoService) {
		t.Errorf("nobody serves it: %v", err)
	}
	if _, err := c.PostConfirmed(t.Context(), "b/t/none", nil); !errors.Is(err, client.ErrNoService) {
		t.Errorf("no method: %v", err)
	}
	quiet(t, a, b)
}

// A message to a process that dies, and one to a node that does, may have been
// executed.
func TestPostConfirmedDeaths(t *testing.T) {
	a, b := daemontest.Pair(t, "")
	p := daemontest.Spawn(t, "service", b.Socket, "someone")
	c := attach(t, a)
	m := method(t, c, "b/t/stuck")
	post := func() *client.Future {
		f, err := m.PostConfirmed(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		p.Line() // it is in its handler
		return f
	}
	f := post()
	p.Kill()
	if _, err := f.Wait(t.Context()); !errors.Is(err, client.ErrMaybeExecuted) {
		t.Errorf("its process was killed: %v", err)
	}
	p = daemontest.Spawn(t, "service", b.Socket, "another")
	m = method(t, c, "b/t/stuck")
	f = post()
	if err := b.Crash(); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Wait(t.Context()); !errors.Is(err, client.ErrMaybeExecuted) {
		t.Errorf("its daemon was killed: %v", err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if _, err := m.PostConfirmed(t.Context(), nil); !errors.Is(err, client.ErrClosed) {
		t.Errorf("after close: %v", err)
	}
}

// A confirmed message allocates nothing.
func TestPostConfirmedAllocatesNothing(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates: go test without -race counts allocations")
	}
	a, b := daemontest.Pair(t, "")
	// In a process of its own: AllocsPerRun leaves this one a single processor.
	daemontest.Spawn(t, "service", b.Socket, "someone")
	msg := []byte("hello")
	for _, mode := range []client.Mode{client.Event, client.Busy, client.Adaptive(time.Millisecond)} {
		m := method(t, attachMode(t, a, mode), "b/t/who")
		if n := testing.AllocsPerRun(2000, func() {
			f, err := m.PostConfirmed(context.Background(), msg)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := f.Wait(context.Background()); err != nil {
				t.Fatal(err)
			}
			f.Release()
		}); n != 0 {
			t.Errorf("%v: %v allocations per message", mode, n)
		}
	}
}

// A confirmation with data, or without its flag, is damaged.
func TestDamagedConfirmation(t *testing.T) {
	a, b := daemontest.Pair(t, "")
	answer := strangeService(t, b)
	m := method(t, attach(t, a), "b/t/strange")
	for what, h := range map[string]slots.Header{
		"no flag":     {},
		"data":        {Length: 5},
		"both":        {Length: 5, Flags: slots.FlagControl},
		"error and 0": {Flags: slots.FlagError},
	} {
		f, err := m.PostConfirmed(t.Context(), []byte("hello"))
		if err != nil {
			t.Fatal(err)
		}
		answer(h)
		if got, err := f.Wait(t.Context()); !errors.Is(err, client.ErrMaybeExecuted) || got != nil || !strings.Contains(err.Error(), "damaged") {
			t.Errorf("%s: %q, %v", what, got, err)
		}
	}
	f, err := m.PostConfirmed(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	answer(slots.Header{Flags: slots.FlagControl})
	if got, err := f.Wait(t.Context()); err != nil || got != nil {
		t.Errorf("a good one: %q, %v", got, err)
	}
	quiet(t, a, b)
}

// strangeService serves t/strange on n by hand: answer takes a request and answers
// with the header, in which it fills in what says which request it is for.
func strangeService(t *testing.T, n *daemontest.Node) (answer func(slots.Header)) {
	t.Helper()
	type lane struct {
		id   uint16
		ring *slots.Ring
	}
	opened := make(chan lane, slots.MaxLanes)
	s, err := control.Open(t.Context(), n.Socket, control.Hello{Role: control.RoleService}, control.Events{
		Lane: func(l control.Lane, r *slots.Ring) { opened <- lane{l.ID, r} },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = s.Close()
		s.Release()
	})
	if _, err := s.Ask(t.Context(), &control.Message{Type: control.TypeRegister, Methods: []control.Method{{Service: "t", Method: "strange", Answer: 64}}}); err != nil {
		t.Fatal(err)
	}
	lanes := map[uint16]*slots.Ring{}
	return func(h slots.Header) {
		t.Helper()
		daemontest.Eventually(t, "a request", func() error {
			for len(opened) > 0 {
				l := <-opened
				lanes[l.id] = l.ring
				if err := s.Tell(&control.Message{Type: control.TypeMapped, Lane: &control.Lane{ID: l.id}}); err != nil {
					return err
				}
			}
			hint, ok := s.Rings.Down.Pop()
			if !ok {
				return errors.New("no hint")
			}
			r := lanes[hint.Lane()]
			u, ok := r.Pick(hint.Index(), s.Welcome.ID)
			if !ok {
				return errors.New("nothing to pick")
			}
			h.Ticket, h.Run, h.Kind = u.Ticket, uint16(u.Len), slots.KindAnswer
			h.Encode(r.Header(u))
			r.Finish(u, s.Welcome.ID)
			s.Rings.Up.Push(hint)
			if sleep := s.Bells.MarkWorker(s.Welcome.ID); sleep != 0 {
				s.Bell.Ring()
				s.Bells.Rung(sleep)
			}
			return nil
		})
	}
}
