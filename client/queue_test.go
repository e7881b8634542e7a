package client_test

import (
	"context"
	"encoding/binary"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/rdmad/rdmad/client"
	"github.com/rdmad/rdmad/internal/daemontest"
	"github.com/rdmad/rdmad/server"
)

// Many senders and several loops over one queue, in a ring that is too small: each
// outcome comes once, under its tag.
func TestQueue(t *testing.T) {
	a, b := daemontest.Pair(t, fewSlots)
	serve(t, b, 4, nil)
	c := attach(t, a)
	m := method(t, c, "b/t/echo")
	q := c.NewQueue()
	const senders, each, total = 8, 300, 8 * 300
	var mu sync.Mutex
	seen := make(map[uint64]bool)
	var sending, taking sync.WaitGroup
	for s := range senders {
		sending.Go(func() {
			for i := range each {
				tag := uint64(s)<<32 | uint64(i)
				if err := m.GoTo(t.Context(), q, binary.LittleEndian.AppendUint64(nil, tag), tag); err != nil {
					t.Error(err)
				}
			}
		})
	}
	take := func() {
		for tag, r := range q.All(t.Context()) {
			if r.Err != nil || len(r.Answer) != 8 || binary.LittleEndian.Uint64(r.Answer) != tag {
				t.Errorf("tag %x: %x, %v", tag, r.Answer, r.Err)
			}
			mu.Lock()
			if seen[tag] {
				t.Errorf("tag %x again", tag)
			}
			seen[tag] = true
			mu.Unlock()
		}
	}
	for range 3 {
		taking.Go(take) // ends early if the queue is empty for a moment
	}
	within(t, "queue", func() {
		sending.Wait()
		taking.Go(take)
		taking.Wait()
	})
	if len(seen) != total || q.Len() != 0 {
		t.Errorf("%d outcomes of %d, then %d", len(seen), total, q.Len())
	}
	quiet(t, a, b)
}

// The loop's body sends the next request, and a loop that was left is gone on with.
func TestQueueSendInLoop(t *testing.T) {
	a, b := daemontest.Pair(t, "")
	serve(t, b, 2, handlers{
		"fail": func(*server.Call) error { return errors.New("no") },
		"big":  func(c *server.Call) error { return c.Reply(make([]byte, 100_000)) },
	})
	c := attach(t, a)
	m := method(t, c, "b/t/echo")
	q := c.NewQueue()
	for range q.All(t.Context()) {
		t.Error("an empty queue has an outcome")
	}
	if err := m.GoTo(t.Context(), q, []byte{0}, 0); err != nil {
		t.Fatal(err)
	}
	rounds := uint64(0)
	for range 10 {
		for tag, r := range q.All(t.Context()) {
			if tag != rounds || r.Err != nil || r.Answer[0] != byte(tag) {
				t.Errorf("tag %d in round %d: %x, %v", tag, rounds, r.Answer, r.Err)
			}
			if rounds++; rounds == 200 {
				break
			}
			if err := m.GoTo(t.Context(), q, []byte{byte(rounds)}, rounds); err != nil {
				t.Error(err)
			}
			if rounds%50 == 0 {
				break
			}
		}
	}
	if rounds != 200 || q.Len() != 0 {
		t.Errorf("%d rounds, then %d", rounds, q.Len())
	}
	for name, want := range map[string]error{"b/t/fail": client.ErrRemote, "b/t/big": client.ErrTooLarge} {
		if err := method(t, c, name).With(client.Direct()).GoTo(t.Context(), q, nil, 7); err != nil {
			t.Error(err)
		}
		for tag, r := range q.All(t.Context()) {
			if tag != 7 || !errors.Is(r.Err, want) {
				t.Errorf("%s: tag %d, %v", name, tag, r.Err)
			}
		}
	}
	if err := m.GoTo(t.Context(), attach(t, a).NewQueue(), nil, 0); !errors.Is(err, client.ErrInvalid) {
		t.Errorf("queue of another connection: %v", err)
	}
	if err := m.GoTo(t.Context(), nil, nil, 0); !errors.Is(err, client.ErrInvalid) {
		t.Errorf("no queue: %v", err)
	}
	if err := m.With(client.Direct()).GoTo(t.Context(), q, make([]byte, 64<<20), 0); !errors.Is(err, client.ErrTooLarge) || q.Len() != 0 {
		t.Errorf("large request: %v, then %d", err, q.Len())
	}
	quiet(t, a, b)
}

// The end of a loop's context leaves the requests as they are; a full ring refuses
// requests and the queue hears nothing of them.
func TestQueueContext(t *testing.T) {
	a, b := daemontest.Pair(t, fewSlots)
	g := newGate()
	defer g.Open()
	serve(t, b, 1, handlers{"gate": g.handle})
	c := attach(t, a)
	m := method(t, c, "b/t/gate")
	q := c.NewQueue()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := m.GoTo(ended, q, nil, 0); !errors.Is(err, client.ErrDeadline) || q.Len() != 0 {
		t.Errorf("ended context: %v, then %d", err, q.Len())
	}
	for i := range 64 {
		if err := m.GoTo(t.Context(), q, nil, uint64(i)); err != nil {
			t.Fatal(err)
		}
	}
	if err := m.With(client.NoWait()).GoTo(t.Context(), q, nil, 64); !errors.Is(err, client.ErrBackpressure) {
		t.Errorf("full ring: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	for tag, r := range q.All(ctx) {
		t.Errorf("tag %d: %q, %v", tag, r.Answer, r.Err)
	}
	if ctx.Err() == nil || q.Len() != 64 {
		t.Errorf("%v, %d in the queue", ctx.Err(), q.Len())
	}
	g.Open()
	n := 0
	for tag, r := range q.All(t.Context()) {
		if n++; r.Err != nil || string(r.Answer) != "ok" || tag >= 64 {
			t.Errorf("tag %d: %q, %v", tag, r.Answer, r.Err)
		}
	}
	if n != 64 {
		t.Errorf("%d outcomes", n)
	}
	quiet(t, a, b)
}

// Close, and the death of the daemon, give every request in a queue its outcome,
// while senders are at it.
func TestQueueConnectionEnds(t *testing.T) {
	for name, end := range map[string]func(*client.Conn, *daemontest.Node) error{
		"close": func(c *client.Conn, _ *daemontest.Node) error { return c.Close() },
		"death": func(_ *client.Conn, a *daemontest.Node) error { return a.Crash() },
	} {
		t.Run(name, func(t *testing.T) {
			a, b := daemontest.Pair(t, fewSlots)
			g := newGate()
			defer g.Open()
			serve(t, b, 1, handlers{"gate": g.handle})
			c := attach(t, a)
			m := method(t, c, "b/t/gate")
			q := c.NewQueue()
			sent := make([]int, 4)
			var wg sync.WaitGroup
			for s := range sent {
				wg.Go(func() {
					for m.GoTo(t.Context(), q, nil, uint64(s)) == nil {
						sent[s]++
					}
				})
			}
			<-g.entered
			got := make([]int, len(sent))
			take := func() {
				for tag, r := range q.All(t.Context()) {
					typed(t, r.Err)
					got[tag]++
				}
			}
			wg.Go(take)
			within(t, "end", func() {
				if err := end(c, a); err != nil {
					t.Error(err)
				}
				wg.Wait()
				take()
			})
			for s := range sent {
				if got[s] != sent[s] || q.Len() != 0 {
					t.Errorf("sender %d: %d outcomes of %d", s, got[s], sent[s])
				}
			}
			g.Open()
			if _, err := method(t, attach(t, a), "b/t/gate").Call(t.Context(), nil); err != nil {
				t.Errorf("attached again: %v", err)
			}
			quiet(t, a, b)
		})
	}
}
