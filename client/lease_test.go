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

// What is under way lasts as long as both ends live, also if nothing is heard of it for longer than a lease.
func TestLongerThanALease(t *testing.T) {
	t.Run("idle streams", idleStreamsShareRing)
	t.Run("large request", largeRequestWaitsForWorker)
}

// Streams on which nothing happens do not end because there are more of them than the ring
// has room for their waits: their callers live.
func idleStreamsShareRing(t *testing.T) {
	t.Parallel()
	_, b := daemontest.Pair(t, "link_hold=\"0s\"\nhang_limit=\"0s\"\n"+tiny)
	var over, told atomic.Int64
	serveStreams(t, b, streams{"s": func(s *server.Stream) error {
		defer over.Add(1)
		return echoStream(s)
	}})
	m := method(t, attachTo(t, b), "b/t/s")
	var all []*client.Stream
	var wg sync.WaitGroup
	var mu sync.Mutex
	for range 60 { // the waits of 32 fill the ring
		wg.Go(func() {
			s, err := m.Stream(t.Context())
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			all = append(all, s)
		})
	}
	wg.Wait()
	ctx, cancel := context.WithTimeout(t.Context(), 18*time.Second) // the lease is 15 s here
	defer cancel()
	for _, s := range all {
		wg.Go(func() {
			if _, err := s.Recv(ctx); ctx.Err() == nil {
				told.Add(1)
				t.Log(err)
			}
		})
	}
	within(t, "receivers", wg.Wait)
	if n := over.Load(); n > 0 {
		t.Errorf("%d handlers were told that their callers are gone; %d callers know that", n, told.Load())
	}
	for _, s := range all {
		_ = s.Close()
	}
}

// A large request waits for a worker as long as any other, whichever way it is sent.
func largeRequestWaitsForWorker(t *testing.T) {
	t.Parallel()
	_, b := daemontest.Pair(t, "link_hold=\"0s\"\nhang_limit=\"0s\"\n")
	g := newGate()
	defer g.Open()
	var posted atomic.Int64
	serve(t, b, 1, handlers{"gate": g.handle, "one": func(*server.Call) error { return nil }, "post": func(*server.Call) error { posted.Add(1); return nil }})
	c := attachTo(t, b)
	fs := outstanding(t, method(t, c, "b/t/gate"), 1)
	<-g.entered
	one, post := method(t, c, "b/t/one"), method(t, c, "b/t/post")
	for _, n := range []int{10, 3 << 20} {
		f, err := one.Go(t.Context(), make([]byte, n))
		if err := errors.Join(err, post.Post(t.Context(), make([]byte, n))); err != nil {
			t.Fatal(err)
		}
		fs = append(fs, f)
	}
	time.Sleep(18 * time.Second) // the lease is 15 s here
	g.Open()
	for i, f := range fs {
		if _, err := f.Wait(t.Context()); err != nil {
			t.Errorf("request %d: %v", i, err)
		}
	}
	daemontest.Eventually(t, "both messages", func() error {
		if n := posted.Load(); n != 2 {
			return fmt.Errorf("%d were executed", n)
		}
		return nil
	})
}
