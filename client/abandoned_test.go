package client_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/rdmad/rdmad/client"
	"github.com/rdmad/rdmad/internal/daemontest"
)

// stillAttached checks that a process has not been disconnected, and that m's node answers it.
func stillAttached(t *testing.T, c *client.Conn, m *client.Method) {
	t.Helper()
	if _, err := m.Call(t.Context(), []byte("x")); err != nil {
		t.Errorf("a call: %v", err)
	}
	select {
	case <-c.Done():
		t.Error("the daemon has disconnected the process")
	default:
	}
}

// Callers that do not wait for a node that is down do not count as an attack, however many they are; nor do they keep
// others from asking for the way to other nodes.
func TestAbandonedLookups(t *testing.T) {
	a, b := daemontest.Pair(t, "[limits]\nconnect_wait = \"1m\"\n")
	if err := b.Halt(); err != nil {
		t.Fatal(err)
	}
	serve(t, a, 1, nil)
	c := attach(t, a)
	m := method(t, c, "a/t/echo")
	for i := range 200 {
		ctx, cancel := context.WithCancel(t.Context())
		timer := time.AfterFunc(time.Millisecond, cancel)
		if _, err := c.Call(ctx, fmt.Sprintf("b/t/echo%d", i%24), nil); err == nil {
			t.Fatal("a node that is down answers")
		}
		timer.Stop()
		cancel()
	}
	stillAttached(t, c, m)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second) // less than the daemon waits for b
	defer cancel()
	if _, err := c.Call(ctx, "a/t/echo", nil); err != nil {
		t.Errorf("a way that was not asked for before: %v", err)
	}
}

// A daemon that stands still for a moment finds no more questions than it takes.
func TestQuestionsOfStandstill(t *testing.T) {
	a, b := daemontest.Pair(t, "")
	serve(t, b, 1, nil)
	c := attach(t, a)
	m := method(t, c, "b/t/echo")
	stillAttached(t, c, m)
	resume, err := a.StopCore()
	if err != nil {
		t.Fatal(err)
	}
	for i := range 150 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		if _, err := c.Call(ctx, fmt.Sprintf("b/t/none%d", i), nil); err == nil {
			t.Fatal("nobody answers")
		}
		cancel()
	}
	if err := resume(); err != nil {
		t.Fatal(err)
	}
	for range 10 {
		stillAttached(t, c, m)
	}
	if _, err := c.Ping(t.Context(), "b"); err != nil {
		t.Errorf("a question afterwards: %v", err)
	}
}

// Who takes up a question of somebody who waits no more has all of the time that the daemon waits for a node.
func TestTakenUpLookupHasItsTime(t *testing.T) {
	a, b := daemontest.Pair(t, "[limits]\nconnect_wait = \"4s\"\n")
	if err := b.Halt(); err != nil {
		t.Fatal(err)
	}
	c := attach(t, a)
	// Where a machine stands still for so long that the question is answered, or nearly, there is nothing to take up.
	for n, inTime := 0, false; !inTime; n++ {
		begun := time.Now()
		ctx, cancel := context.WithCancel(t.Context())
		timer := time.AfterFunc(2*time.Second, cancel)
		_, err := c.Call(ctx, "b/t/echo", nil)
		inTime = errors.Is(err, context.Canceled) && time.Since(begun) < 3*time.Second
		timer.Stop()
		cancel()
		if !errors.Is(err, context.Canceled) && !errors.Is(err, client.ErrNoService) || !inTime && n == 10 {
			t.Fatal(err)
		}
	}
	start := time.Now()
	if _, err := c.Call(t.Context(), "b/t/echo", nil); !errors.Is(err, client.ErrNoService) {
		t.Error(err)
	}
	if took := time.Since(start); took < 3900*time.Millisecond {
		t.Errorf("the node was given up after %v", took)
	}
}
