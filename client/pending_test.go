package client_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/rdmad/rdmad/client"
	"github.com/rdmad/rdmad/internal/daemontest"
	"github.com/rdmad/rdmad/server"
)

// Many answers are left where they arrive, until each is waited for and released, in any order.
func TestGoInPlace(t *testing.T) {
	a, b := daemontest.Pair(t, "[[class]]\nname=\"only\"\nslot_size=128\nslots=64\nmax_run=16\n")
	serve(t, b, 2, nil)
	m := method(t, attach(t, a), "b/t/echo")
	const window = 8
	for round := range 100 { // more than there are slots
		var pending [window]client.Pending
		for k := range pending {
			var err error
			msg := []byte{byte(round), byte(k)}
			if pending[k], err = m.GoInPlace(t.Context(), msg); err != nil {
				t.Fatal(err)
			}
			clear(msg)
		}
		var answers [window]client.Answer
		for i := range pending {
			k := (i*3 + round) % window
			var err error
			if answers[k], err = pending[k].Wait(t.Context()); err != nil {
				t.Fatal(err)
			}
			if pending[k].Ready() {
				t.Error("ready, and waited for already")
			}
			if _, err := pending[k].Wait(t.Context()); !errors.Is(err, client.ErrInvalid) {
				t.Errorf("a second Wait: %v", err)
			}
		}
		for k, answer := range answers {
			if got := answer.Bytes(); !bytes.Equal(got, []byte{byte(round), byte(k)}) || place(t, got) != "slots" {
				t.Fatalf("round %d, answer %d: %x in %s", round, k, got, place(t, got))
			}
			answer.Release()
			if answer.Release(); answer.Bytes() != nil {
				t.Fatal("bytes after Release")
			}
		}
	}
	if (client.Pending{}).Ready() {
		t.Error("an answer from nowhere is ready")
	}
	if _, err := (client.Pending{}).Wait(t.Context()); !errors.Is(err, client.ErrInvalid) {
		t.Errorf("an answer from nowhere: %v", err)
	}
	quiet(t, a, b)
}

// More answers than the ring has room for: those that nobody has waited for are moved out of the way of requests, and those that somebody has in hand are not.
func TestMorePendingThanRoom(t *testing.T) {
	a, b := daemontest.Pair(t, "[[class]]\nname=\"only\"\nslot_size=128\nslots=64\nmax_run=16\n")
	serve(t, b, 2, nil)
	m := method(t, attach(t, a), "b/t/echo")
	inHand, err := m.CallInPlace(t.Context(), []byte("in hand"))
	if err != nil {
		t.Fatal(err)
	}
	var pending [300]client.Pending
	for k := range pending {
		if pending[k], err = m.GoInPlace(t.Context(), fmt.Append(nil, k)); err != nil {
			t.Fatal(err)
		}
	}
	where := map[string]int{}
	for k, p := range pending {
		answer, err := p.Wait(t.Context())
		if err != nil || string(answer.Bytes()) != fmt.Sprint(k) {
			t.Fatalf("answer %d: %q, %v", k, answer.Bytes(), err)
		}
		where[place(t, answer.Bytes())]++
		answer.Release()
	}
	if where["slots"] == 0 || where["slots"] > 64 || len(where) != 2 {
		t.Errorf("answers were in %v", where)
	}
	if string(inHand.Bytes()) != "in hand" || place(t, inHand.Bytes()) != "slots" {
		t.Errorf("the answer in hand is %q in %s", inHand.Bytes(), place(t, inHand.Bytes()))
	}
	inHand.Release()
	quiet(t, a, b)
}

// Goroutines that together want more than there is move each other's answers while these are taken and released.
func TestPendingInEachOthersWay(t *testing.T) {
	a, b := daemontest.Pair(t, "[[class]]\nname=\"only\"\nslot_size=128\nslots=64\nmax_run=16\n")
	serve(t, b, 4, nil)
	m := method(t, attach(t, a), "b/t/echo")
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			var window [16]client.Pending
			for n := range 100 * len(window) {
				p := &window[n%len(window)]
				if n >= len(window) {
					answer, err := p.Wait(t.Context())
					if err != nil || string(answer.Bytes()) != fmt.Sprint(g, n-len(window)) {
						t.Errorf("goroutine %d, answer %d: %q, %v", g, n-len(window), answer.Bytes(), err)
						return
					}
					answer.Release()
				}
				var err error
				if *p, err = m.GoInPlace(t.Context(), fmt.Append(nil, g, n)); err != nil {
					t.Error(err)
					return
				}
			}
			for _, p := range window {
				answer, err := p.Wait(t.Context())
				if err != nil {
					t.Error(err)
				}
				answer.Release()
			}
		})
	}
	wg.Wait()
	quiet(t, a, b)
}

// An answer that has come is ready as soon as anybody has noticed it, and is there for a Wait whose context has ended.
func TestPendingReady(t *testing.T) {
	a, b := daemontest.Pair(t, "")
	g := newGate()
	defer g.Open()
	serve(t, b, 1, handlers{"gate": g.handle})
	c := attach(t, a)
	m := method(t, c, "b/t/gate")
	p, err := m.GoInPlace(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	<-g.entered
	if p.Ready() {
		t.Error("ready before the handler has returned")
	}
	g.Open()
	if _, err := m.Call(t.Context(), nil); err != nil { // takes what came before its own answer
		t.Fatal(err)
	}
	if !p.Ready() {
		t.Error("not ready, and a later answer was seen")
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	answer, err := p.Wait(over)
	if err != nil || string(answer.Bytes()) != "ok" {
		t.Errorf("%q, %v", answer.Bytes(), err)
	}
	answer.Release()
	quiet(t, a, b)
}

// Large answers are left in regions.
func TestGoInPlaceLarge(t *testing.T) {
	a, b := daemontest.Pair(t, "")
	serve(t, b, 2, handlers{"large": func(c *server.Call) error { return c.Reply(pattern(3<<20, uint64(c.Request()[0]))) }})
	m := method(t, attach(t, a), "b/t/large")
	for round := range 10 {
		var pending [3]client.Pending
		for k := range pending {
			var err error
			if pending[k], err = m.GoInPlace(t.Context(), []byte{byte(3*round + k)}); err != nil {
				t.Fatal(err)
			}
		}
		for k, p := range pending {
			answer, err := p.Wait(t.Context())
			if err != nil || !bytes.Equal(answer.Bytes(), pattern(3<<20, uint64(3*round+k))) {
				t.Fatalf("%d bytes, %v", len(answer.Bytes()), err)
			}
			answer.Release()
		}
	}
	quiet(t, a, b)
}

// What nobody waits for any more frees its slots when the answer comes, and errors leave nothing behind.
func TestGoInPlaceGivenUp(t *testing.T) {
	a, b := daemontest.Pair(t, "[[class]]\nname=\"few\"\nslot_size=128\nslots=64\nmax_run=4\n")
	g := newGate()
	defer g.Open()
	serve(t, b, 2, handlers{
		"fail": func(*server.Call) error { return errors.New("no") },
		"gate": g.handle,
	})
	c := attach(t, a)
	for range 100 {
		p, err := method(t, c, "b/t/fail").GoInPlace(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if answer, err := p.Wait(t.Context()); !errors.Is(err, client.ErrRemote) || answer.Bytes() != nil {
			t.Fatalf("handler's error: %v", err)
		}
	}
	p, err := method(t, c, "b/t/gate").GoInPlace(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	<-g.entered
	short, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := p.Wait(short); !errors.Is(err, client.ErrDeadline) {
		t.Errorf("a Wait whose time is over: %v", err)
	}
	g.Open()
	echo := method(t, c, "b/t/echo")
	for range 100 {
		if _, err := echo.Call(t.Context(), []byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	quiet(t, a, b)
}

// Close does not wait for answers that nobody has waited for, and takes them away. What they are outcomes of was executed, or may
// have been; an error is what it was.
func TestCloseBesidePending(t *testing.T) {
	a, b := daemontest.Pair(t, "")
	g := newGate()
	defer g.Open()
	serve(t, b, 2, handlers{"gate": g.handle, "fail": func(*server.Call) error { return errors.New("no") }, "large": func(c *server.Call) error { return c.Reply(pattern(3<<20, 1)) }})
	c, err := client.Attach(t.Context(), a.Socket)
	if err != nil {
		t.Fatal(err)
	}
	var pending []client.Pending
	for _, name := range []string{"echo", "fail", "gate", "large"} {
		p, err := method(t, c, "b/t/"+name).GoInPlace(t.Context(), []byte("x"))
		if err != nil {
			t.Fatal(err)
		}
		pending = append(pending, p)
	}
	<-g.entered
	daemontest.Eventually(t, "the first two are there", func() error {
		if _, err := c.Call(t.Context(), "b/t/echo", nil); err != nil || !pending[0].Ready() || !pending[1].Ready() {
			return fmt.Errorf("not yet: %w", err)
		}
		return nil
	})
	within(t, "Close", func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	for k, p := range pending {
		answer, err := p.Wait(t.Context())
		if failed := k == 1; errors.Is(err, client.ErrRemote) != failed || errors.Is(err, client.ErrClosed) == failed ||
			errors.Is(err, client.ErrMaybeExecuted) == failed || errors.Is(err, client.ErrNotExecuted) || answer.Bytes() != nil {
			t.Errorf("answer %d after Close: %v", k, err)
		}
	}
	if _, err := method(t, attach(t, a), "b/t/echo").With(client.Idempotent()).GoInPlace(t.Context(), nil); !errors.Is(err, client.ErrInvalid) {
		t.Errorf("a request that can be sent again: %v", err)
	}
	g.Open()
	quiet(t, a, b)
}

func TestGoInPlaceAllocatesNothing(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates: go test without -race counts allocations")
	}
	a, b := daemontest.Pair(t, "")
	// In a process of its own: AllocsPerRun leaves this one a single processor.
	daemontest.Spawn(t, "service", b.Socket, "someone")
	m, msg := method(t, attach(t, a), "b/t/who"), []byte("hello")
	if n := testing.AllocsPerRun(2000, func() {
		p, err := m.GoInPlace(context.Background(), msg)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := p.Wait(context.Background())
		if err != nil || string(answer.Bytes()) != "someone" {
			t.Fatal(answer.Bytes(), err)
		}
		answer.Release()
	}); n != 0 {
		t.Errorf("%v allocations per call", n)
	}
}
