package client_test

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"time"

	"github.com/rdmad/rdmad/client"
	"github.com/rdmad/rdmad/internal/daemontest"
	"github.com/rdmad/rdmad/server"
)

// An answer in place is there until it is released, once, whoever releases it again.
func TestCallInPlace(t *testing.T) {
	a, b := daemontest.Pair(t, "[[class]]\nname=\"only\"\nslot_size=128\nslots=64\nmax_run=16\n")
	serve(t, b, 1, nil)
	c := attach(t, a)
	m := method(t, c, "b/t/echo")
	for n := range 300 {
		msg := bytes.Repeat([]byte{byte(n)}, 1+n%60)
		var answer client.Answer
		var err error
		if n%2 == 0 {
			answer, err = m.CallInPlace(t.Context(), msg)
		} else {
			var r *client.Request
			if r, err = m.Reserve(t.Context(), len(msg)); err == nil {
				copy(r.Bytes(), msg)
				answer, err = r.CallInPlace(t.Context())
				if _, err := r.CallInPlace(t.Context()); !errors.Is(err, client.ErrInvalid) {
					t.Fatalf("a request that was used: %v", err)
				}
				r.Abort()
			}
		}
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(answer.Bytes(), msg) || place(t, answer.Bytes()) != "slots" {
			t.Fatalf("call %d: %x in %s", n, answer.Bytes(), place(t, answer.Bytes()))
		}
		again := answer
		answer.Release()
		answer.Release()
		again.Release()
		if answer.Bytes() != nil || again.Bytes() != nil {
			t.Fatal("bytes after Release")
		}
	}
	client.Answer{}.Release()
	if (client.Answer{}).Bytes() != nil {
		t.Error("an answer from nowhere")
	}
	// Answers that are kept hold their slots, and Release lets others have them.
	var kept []client.Answer
	for {
		answer, err := m.With(client.NoWait()).CallInPlace(t.Context(), make([]byte, 60))
		if errors.Is(err, client.ErrBackpressure) {
			break
		}
		if err != nil || len(kept) > 64 {
			t.Fatalf("%d answers, then %v", len(kept), err)
		}
		kept = append(kept, answer)
	}
	if len(kept) < 32 {
		t.Errorf("%d answers filled the ring", len(kept))
	}
	for _, answer := range kept {
		answer.Release()
	}
	if answer, err := m.CallInPlace(t.Context(), nil); err != nil || answer.Bytes() == nil {
		t.Error(err)
	} else {
		answer.Release()
	}
	quiet(t, a, b)
}

// Errors leave nothing to release, and Close waits for what is not released.
func TestCallInPlaceErrors(t *testing.T) {
	a, b := daemontest.Pair(t, "")
	g := newGate()
	defer g.Open()
	serve(t, b, 2, handlers{
		"fail":  func(*server.Call) error { return errors.New("no") },
		"gate":  g.handle,
		"large": func(c *server.Call) error { return c.Reply(pattern(3<<20, 1)) },
	})
	c, err := client.Attach(t.Context(), a.Socket)
	if err != nil {
		t.Fatal(err)
	}
	if answer, err := method(t, c, "b/t/fail").CallInPlace(t.Context(), nil); !errors.Is(err, client.ErrRemote) || answer.Bytes() != nil {
		t.Errorf("handler's error: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := method(t, c, "b/t/gate").CallInPlace(ctx, nil); !errors.Is(err, client.ErrDeadline) {
		t.Errorf("deadline: %v", err)
	}
	answer, err := method(t, c, "b/t/large").CallInPlace(t.Context(), nil)
	if err != nil || !bytes.Equal(answer.Bytes(), pattern(3<<20, 1)) {
		t.Errorf("a large answer: %v", err)
	}
	closed := make(chan error, 1)
	go func() { closed <- c.Close() }()
	daemontest.Eventually(t, "Close has begun", func() error {
		if _, err := c.Call(t.Context(), "b/t/echo", nil); !errors.Is(err, client.ErrClosed) {
			return errors.New("calls go on")
		}
		return nil
	})
	select {
	case <-closed:
		t.Error("Close did not wait for Release")
	default:
	}
	answer.Release()
	within(t, "Close", func() {
		if err := <-closed; err != nil {
			t.Error(err)
		}
	})
}

// The connection's own queue.
func TestCompletions(t *testing.T) {
	a, b := daemontest.Pair(t, "")
	serve(t, b, 2, nil)
	c := attach(t, a)
	m := method(t, c, "b/t/echo")
	for n := range 100 {
		if err := m.GoTo(t.Context(), c.Queue(), []byte{byte(n)}, uint64(n)); err != nil {
			t.Fatal(err)
		}
	}
	seen := map[uint64]bool{}
	for tag, r := range c.Completions(t.Context()) {
		if r.Err != nil || len(r.Answer) != 1 || uint64(r.Answer[0]) != tag || seen[tag] {
			t.Errorf("%d: %x, %v", tag, r.Answer, r.Err)
		}
		seen[tag] = true
	}
	if len(seen) != 100 {
		t.Errorf("%d outcomes", len(seen))
	}
}
