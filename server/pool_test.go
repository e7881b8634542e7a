package server_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/rdmad/rdmad/client"
	"github.com/rdmad/rdmad/internal/daemontest"
	"github.com/rdmad/rdmad/server"
)

// A worker takes several requests at a time when handlers are quick. One that
// turns out to be slow holds up neither the answers before it nor the requests
// behind it.
func TestSlowHandlerInABatch(t *testing.T) {
	a, b := daemontest.Pair(t, "")
	s := attach(t, b, server.Workers(2))
	release := make(chan struct{})
	defer close(release)
	handle(t, s, "stay", func(*server.Call) error { <-release; return nil })
	handle(t, s, "quick", func(*server.Call) error { return nil })
	start(t, s)
	quick, slow := caller(t, a, "b/t/quick"), caller(t, a, "b/t/stay")
	for place := range 40 {
		var fs, stuck []*client.Future
		for k := range 400 {
			m, list := quick, &fs
			if k == 300+place {
				m, list = slow, &stuck
			}
			f, err := m.Go(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			*list = append(*list, f)
		}
		ctx := soon(t)
		for k, f := range fs {
			if _, err := f.Wait(ctx); err != nil {
				t.Fatalf("slow one at %d: quick one at %d: %v", place, k, err)
			}
		}
		release <- struct{}{}
		if _, err := stuck[0].Wait(ctx); err != nil {
			t.Fatal(err)
		}
	}
}

// Nor does a second slow handler of the same batch hold up the answer of the first, while nobody else is free.
func TestTwoSlowHandlersInABatch(t *testing.T) {
	a, b := daemontest.Pair(t, "")
	s := attach(t, b, server.Workers(2))
	stay := newGate()
	defer stay.Open()
	hold, first, second := make(chan struct{}), make(chan struct{}), make(chan struct{})
	defer close(hold)
	defer close(first)
	defer close(second)
	handle(t, s, "stay", stay.handle)
	handle(t, s, "hold", func(*server.Call) error { <-hold; return nil })
	handle(t, s, "first", func(*server.Call) error { <-first; return nil })
	handle(t, s, "second", func(*server.Call) error { <-second; return nil })
	handle(t, s, "quick", func(*server.Call) error { return nil })
	start(t, s)
	methods := map[string]*client.Method{}
	for _, name := range []string{"stay", "hold", "first", "second", "quick"} {
		methods[name] = caller(t, a, "b/t/"+name)
	}
	if _, err := methods["stay"].Go(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	<-stay.entered
	for place := range 20 {
		futures := map[string]*client.Future{}
		var quick []*client.Future
		for k := range 400 {
			name := "quick"
			switch k {
			case 0:
				name = "hold" // so that all others wait, and are taken in batches
			case 300 + place:
				name = "first"
			case 302 + place:
				name = "second"
			}
			f, err := methods[name].Go(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			if futures[name] = f; name == "quick" {
				quick = append(quick, f)
			}
		}
		ctx := soon(t)
		hold <- struct{}{}
		for k, f := range quick[:299+place] {
			if _, err := f.Wait(ctx); err != nil {
				t.Fatalf("at %d: quick one at %d: %v", place, k, err)
			}
		}
		first <- struct{}{}
		if _, err := futures["first"].Wait(ctx); err != nil {
			t.Fatalf("at %d: the first slow handler has returned, the second has not: %v", place, err)
		}
		second <- struct{}{}
		for _, f := range append(quick[299+place:], futures["second"], futures["hold"]) {
			if _, err := f.Wait(ctx); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// Slow handlers do not hold up quick ones, in whatever order they start and end.
func TestSlowHandlersDoNotBlock(t *testing.T) {
	a, b := daemontest.Pair(t, "")
	s := attach(t, b, server.Workers(4))
	stay, leave := newGate(), newGate()
	defer stay.Open()
	defer leave.Open()
	handle(t, s, "stay", stay.handle)
	handle(t, s, "leave", leave.handle)
	handle(t, s, "quick", func(*server.Call) error { return nil })
	start(t, s)
	quick, slow, brief := caller(t, a, "b/t/quick"), caller(t, a, "b/t/stay"), caller(t, a, "b/t/leave")
	call := func(what string) {
		t.Helper()
		for range 20 {
			if _, err := quick.Call(soon(t), nil); err != nil {
				t.Fatalf("%s: %v", what, err)
			}
		}
	}
	call("idle server")
	// The pause lets the monitor stop, whose restart is what is tested.
	pause := func() { time.Sleep(50 * time.Millisecond) }
	pause()
	if _, err := slow.Go(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	<-stay.entered
	pause()
	call("one of four is blocked")
	for range 3 {
		if _, err := brief.Go(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		<-leave.entered
	}
	pause()
	leave.Open() // three come back, the fourth stays blocked
	call("three of four were blocked")
	pause()
	call("after a pause")
	stay.Open()
	call("all free")
}

// A burst of slow handlers runs on all workers at once.
func TestBurstGetsAllWorkers(t *testing.T) {
	a, b := daemontest.Pair(t, "")
	const workers = 16
	s := attach(t, b, server.Workers(workers))
	g := newGate()
	defer g.Open()
	handle(t, s, "slow", g.handle)
	start(t, s)
	m := caller(t, a, "b/t/slow")
	for range 2 * workers {
		if _, err := m.Go(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
	}
	for i := range workers {
		select {
		case <-g.entered:
		case <-time.After(time.Minute):
			t.Fatalf("only %d handlers run", i)
		}
	}
	select {
	case <-g.entered:
		t.Error("more handlers run than there are workers")
	case <-time.After(20 * time.Millisecond): // nothing tells that nothing happens
	}
}

// A server without requests uses no processor time.
func TestIdleServer(t *testing.T) {
	a, b := daemontest.Pair(t, "")
	s := attach(t, b, server.Workers(8))
	handle(t, s, "quick", func(*server.Call) error { return nil })
	start(t, s)
	if _, err := caller(t, a, "b/t/quick").Call(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	time.Sleep(500 * time.Millisecond) // until everything has gone to sleep for good
	// The best of several: on a busy machine that takes longer.
	least := int64(math.MaxInt64)
	for range 10 {
		before := switches(t)
		time.Sleep(300 * time.Millisecond) // the time that is measured
		if least = min(least, switches(t)-before); least <= 100 {
			return
		}
	}
	t.Errorf("%d context switches while idle", least)
}

// switches returns how often this process has gone to sleep.
func switches(t *testing.T) int64 {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return u.Nvcsw
}

// Several processes that serve a method share its requests.
func TestBalance(t *testing.T) {
	a, b := daemontest.Pair(t, "")
	var counts [3]atomic.Int64
	g := newGate()
	defer g.Open()
	for i := range counts {
		s := attach(t, b, server.Workers(1))
		// Without room for answers there is some for thousands.
		handle(t, s, "count", func(*server.Call) error { counts[i].Add(1); <-g.open; return nil }, server.AnswerSize(0))
		start(t, s)
	}
	m := caller(t, a, "b/t/count")
	sent := int64(0)
	send := func() error {
		sent++
		_, err := m.Go(t.Context(), nil)
		return err
	}
	// A process gets none before it has mapped the lane.
	daemontest.Eventually(t, "all processes have one", func() error {
		if err := send(); err != nil {
			return err
		}
		for i := range counts {
			if counts[i].Load() == 0 {
				return fmt.Errorf("process %d has none", i)
			}
		}
		return nil
	})
	// So many that the others catch up with one that has had what was sent so far.
	for range max(300, 3*sent) {
		if err := send(); err != nil {
			t.Fatal(err)
		}
	}
	daemontest.Eventually(t, "all are delivered", func() error {
		st, err := b.Status(t.Context())
		if err == nil && st.Counters["requests_received"] < uint64(sent) {
			err = errors.New("not yet")
		}
		return err
	})
	g.Open()
	if err := b.Quiet(); err != nil {
		t.Fatal(err)
	}
	for i := range counts {
		if n := counts[i].Load(); n < sent/3-20 || n > sent/3+20 {
			t.Errorf("process %d got %d of %d", i, n, sent)
		}
	}
}

// Requests come while processes attach, serve and leave.
func TestProcessesComeAndGo(t *testing.T) {
	a, b := daemontest.Pair(t, "")
	anchor := attach(t, b)
	handle(t, anchor, "echo", func(c *server.Call) error { return c.Reply(c.Request()) })
	start(t, anchor)
	m := caller(t, a, "b/t/echo")
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				msg := fmt.Sprint(g, " ", i)
				if got, err := m.Call(t.Context(), []byte(msg)); err != nil || string(got) != msg {
					t.Errorf("%q for %q, %v", got, msg, err)
				}
			}
		})
	}
	for range 15 {
		s, err := server.Attach(t.Context(), b.Socket, server.Workers(2))
		if err != nil {
			t.Fatal(err)
		}
		var n atomic.Int64
		handle(t, s, "echo", func(c *server.Call) error { n.Add(1); return c.Reply(c.Request()) })
		done := make(chan error, 1)
		go func() { done <- s.Serve(context.Background()) }()
		daemontest.Eventually(t, "its share", func() error {
			if n.Load() < 20 {
				return fmt.Errorf("%d requests", n.Load())
			}
			return nil
		})
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		<-done
	}
	cancel()
	wg.Wait()
	if err := b.Quiet(); err != nil {
		t.Error(err)
	}
}
