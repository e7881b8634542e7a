package client_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"

	"github.com/rdmad/rdmad/client"
	"github.com/rdmad/rdmad/internal/daemontest"
)

// parked waits until n goroutines of this process wait for a page.
func parked(t *testing.T, n int) {
	t.Helper()
	buf := make([]byte, 1<<20)
	daemontest.Eventually(t, "waits without a thread", func() error {
		if found := bytes.Count(buf[:runtime.Stack(buf, true)], []byte("shm.(*Pages).WaitWhile(")); found != n {
			return fmt.Errorf("%d goroutines wait for a page, not %d", found, n)
		}
		return nil
	})
}

// waiter calls a handler that waits, and returns what becomes of that.
func waiter(ctx context.Context, m *client.Method) <-chan error {
	ended := make(chan error, 1)
	go func() {
		_, err := m.Call(ctx, nil)
		ended <- err
	}()
	return ended
}

// A wait that lasts needs no thread, and everything that ends other waits ends it: the
// answer, the end of its context, that of the connection, and a core that takes over.
func TestParkedWaits(t *testing.T) {
	a, b := daemontest.Pair(t, "")
	type served struct {
		g *gate
		m *client.Method
	}
	c := attach(t, a)
	var gates []served
	hs := handlers{}
	for i := range 4 {
		g := newGate()
		defer g.Open()
		hs[fmt.Sprint("gate", i)] = g.handle
		gates = append(gates, served{g: g})
	}
	serve(t, b, 4, hs)
	for i := range gates {
		gates[i].m = method(t, c, fmt.Sprint("b/t/gate", i))
	}

	answered := waiter(t.Context(), gates[0].m)
	parked(t, 1)
	gates[0].g.Open()
	within(t, "an answer", func() {
		if err := <-answered; err != nil {
			t.Error(err)
		}
	})

	ctx, cancel := context.WithCancel(t.Context())
	cancelled := waiter(ctx, gates[1].m)
	parked(t, 1)
	cancel()
	within(t, "the end of a context", func() {
		if err := <-cancelled; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})

	over := waiter(t.Context(), gates[2].m)
	parked(t, 1)
	if err := a.KillCore(); err != nil {
		t.Fatal(err)
	}
	if err := a.Connected("b"); err != nil {
		t.Fatal(err)
	}
	parked(t, 1) // for the pages of the next core
	gates[2].g.Open()
	within(t, "the answer to another core", func() {
		if err := <-over; err != nil {
			t.Error(err)
		}
	})

	closed := waiter(t.Context(), gates[3].m)
	parked(t, 1)
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	within(t, "the end of the connection", func() {
		if err := <-closed; !errors.Is(err, client.ErrClosed) && !errors.Is(err, client.ErrMaybeExecuted) {
			t.Error(err)
		}
	})
}
