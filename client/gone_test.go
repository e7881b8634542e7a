package client_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/rdmad/rdmad/client"
	"github.com/rdmad/rdmad/internal/daemontest"
	"github.com/rdmad/rdmad/server"
)

// What a leaver has under way when it is killed: calls, of which the handlers run of as
// many as there are workers, and of each kind of streams.
const (
	leaverCalls   = 12
	leaverWorkers = 4
	leaverStreams = 3
	leaverPosts   = 20
)

// runLeaver has everything under way to the service t of the nodes named after the socket,
// says so, and lives on.
func runLeaver(args []string) error {
	ctx := context.Background()
	c, err := client.Attach(ctx, args[0])
	if err != nil {
		return err
	}
	for _, node := range args[1:] {
		m, err := c.Method(ctx, node+"/t/hold")
		if err != nil {
			return err
		}
		for i := range leaverCalls {
			if _, err := m.Go(ctx, binary.LittleEndian.AppendUint64(nil, uint64(i))); err != nil {
				return err
			}
		}
		for _, kind := range []string{"down", "up", "both"} {
			m, err := c.Method(ctx, node+"/t/"+kind)
			if err != nil {
				return err
			}
			for range leaverStreams {
				s, err := m.Stream(ctx)
				if err != nil {
					return err
				}
				if kind == "both" {
					go func() {
						for {
							if err := s.Send(ctx, make([]byte, 3000)); err != nil {
								return
							}
							if _, err := s.Recv(ctx); err != nil {
								return
							}
						}
					}()
				}
			}
		}
		for range leaverPosts {
			if err := c.Post(ctx, node+"/t/post", []byte("posted")); err != nil {
				return err
			}
		}
	}
	fmt.Println("under way")
	return daemontest.Stay()
}

// ends counts how handlers ended.
type ends struct {
	begun, over, givenUp, posted atomic.Int64
	mu                           sync.Mutex
	others                       []error
}

func (e *ends) end(err error) error {
	e.over.Add(1)
	if errors.Is(err, server.ErrGivenUp) {
		e.givenUp.Add(1)
	} else {
		e.mu.Lock()
		e.others = append(e.others, err)
		e.mu.Unlock()
	}
	return err
}

// serveLeavers offers what leavers use.
func serveLeavers(t *testing.T, n *daemontest.Node) *ends {
	t.Helper()
	e := &ends{}
	s, err := server.Attach(t.Context(), n.Socket, server.Workers(leaverWorkers))
	if err != nil {
		t.Fatal(err)
	}
	posts, err := server.Attach(t.Context(), n.Socket, server.Workers(1))
	if err != nil {
		t.Fatal(err)
	}
	err = errors.Join(
		s.Handle("t", "hold", func(c *server.Call) error {
			e.begun.Add(1)
			<-c.Context().Done()
			return e.end(context.Cause(c.Context()))
		}),
		s.HandleStream("t", "down", func(s *server.Stream) error {
			e.begun.Add(1)
			for { // until there is no credit
				if err := s.Send(make([]byte, 10_000)); err != nil {
					return e.end(err)
				}
			}
		}),
		s.HandleStream("t", "up", func(s *server.Stream) error {
			e.begun.Add(1)
			_, err := s.Recv()
			return e.end(err)
		}),
		s.HandleStream("t", "both", func(s *server.Stream) error {
			e.begun.Add(1)
			return e.end(echoStream(s))
		}),
		posts.Handle("t", "post", func(*server.Call) error {
			e.posted.Add(1)
			return nil
		}))
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []*server.Server{s, posts} {
		done := make(chan error, 1)
		go func() { done <- s.Serve(context.Background()) }()
		t.Cleanup(func() {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
			<-done
		})
	}
	return e
}

// all returns nil when every handler that can have begun has.
func (e *ends) all() error {
	if n := e.begun.Load(); n < leaverWorkers+3*leaverStreams {
		return fmt.Errorf("%d handlers have begun", n)
	}
	return nil
}

// settled returns nil when all that have begun have ended.
func (e *ends) settled() error {
	if over, begun := e.over.Load(), e.begun.Load(); over < begun {
		return fmt.Errorf("%d of %d handlers have ended", over, begun)
	}
	return nil
}

// judge checks how handlers of so many leavers have ended.
func (e *ends) judge(t *testing.T, leavers int) {
	t.Helper()
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, err := range e.others {
		if !errors.Is(err, io.EOF) {
			t.Errorf("a handler ended with %v", err)
		}
	}
	if n := e.posted.Load(); n != int64(leavers*leaverPosts) {
		t.Errorf("%d one-way messages were executed, %d sent", n, leavers*leaverPosts)
	}
}

// slotsFree waits until no request is under way on the nodes, and returns for how long.
func slotsFree(t *testing.T, nodes ...*daemontest.Node) time.Duration {
	t.Helper()
	begin := time.Now()
	for _, n := range nodes {
		if err := n.Quiet(); err != nil {
			t.Error(err)
		}
	}
	return time.Since(begin)
}

// notHeld judges the quickest of several rounds, because a machine may be busy: the wait of
// a stream that nobody ends lasts for 5 s, in every round.
func notHeld(t *testing.T, quickest time.Duration) {
	t.Helper()
	if quickest > 3*time.Second {
		t.Errorf("slots are free only after %v", quickest)
	}
}

// When a process is killed, its requests at this node and at another one are nobody's any
// more: what has not begun is dropped, handlers and streams are told, and all slots are
// free at once, although the handlers would have waited for ever. One-way messages are
// executed.
func TestKilledCaller(t *testing.T) {
	a, b := daemontest.Pair(t, "")
	ends := []*ends{serveLeavers(t, a), serveLeavers(t, b)}
	const rounds = 5
	quickest := time.Hour
	for range rounds {
		for _, e := range ends {
			e.begun.Store(0)
			e.over.Store(0)
		}
		p := daemontest.Spawn(t, "leaver", a.Socket, "a", "b")
		for _, e := range ends {
			daemontest.Eventually(t, "the handlers begin", e.all)
		}
		p.Kill()
		took := slotsFree(t, a, b)
		t.Logf("all slots are free after %v", took)
		quickest = min(quickest, took)
		for _, e := range ends {
			daemontest.Eventually(t, "the handlers end", e.settled)
		}
	}
	notHeld(t, quickest)
	for _, e := range ends {
		e.judge(t, rounds)
	}
	st, err := a.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if d := st.Deaths; d.Freed.Count != rounds || d.Settled.Count != rounds || d.Certain.Count != rounds {
		t.Errorf("the status has %+v", d)
	} else {
		t.Logf("certain p50 %.0f µs, freed %.0f µs, settled %.0f µs", d.Certain.P50US, d.Freed.P50US, d.Settled.P50US)
	}
}

// When the link is lost before the other node has heard that a process has ended, it hears
// it afterwards.
func TestKilledCallerWithoutLink(t *testing.T) {
	a, b := daemontest.Pair(t, "")
	e := serveLeavers(t, b)
	quickest := time.Hour
	for round := uint64(1); round <= 5 && quickest > 3*time.Second; round++ {
		e.begun.Store(0)
		e.over.Store(0)
		p := daemontest.Spawn(t, "leaver", a.Socket, "b")
		daemontest.Eventually(t, "the handlers begin", e.all)
		core, err := b.Core()
		if err == nil {
			_, err = b.StopCore()
		}
		if err != nil {
			t.Fatal(err)
		}
		p.Kill()
		daemontest.Eventually(t, "the process is buried", func() error {
			st, err := a.Status(t.Context())
			if err == nil && st.Deaths.Freed.Count < round {
				err = errors.New("it is not")
			}
			return err
		})
		// What it was sent meanwhile dies with it.
		if err := syscall.Kill(core, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		quickest = min(quickest, slotsFree(t, a))
		daemontest.Eventually(t, "the handlers end", e.settled)
	}
	notHeld(t, quickest)
}

// A large one-way message is executed after its caller has gone, however long its process is busy with others.
func TestLargePostAndClose(t *testing.T) {
	a, b := daemontest.Pair(t, "")
	g := newGate()
	defer g.Open()
	var got atomic.Int64
	s := serve(t, b, 1, handlers{"gate": g.handle, "note": func(c *server.Call) error {
		got.Add(int64(len(c.Request())))
		return nil
	}})
	ended := make(chan struct{})
	if err := s.HandleStream("t", "until", func(st *server.Stream) error {
		<-st.Context().Done()
		close(ended)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	busy, err := method(t, attach(t, a), "b/t/gate").Go(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	<-g.entered
	c, err := client.Attach(t.Context(), a.Socket)
	if err != nil {
		t.Fatal(err)
	}
	stream, err := method(t, c, "b/t/until").Stream(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	const size = 64 << 10
	if err := method(t, c, "b/t/note").With(client.Split()).Post(t.Context(), make([]byte, size)); err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	within(t, "the service's process is told that its caller is gone", func() { <-ended })
	g.Open()
	if _, err := busy.Wait(t.Context()); err != nil {
		t.Error(err)
	}
	daemontest.Eventually(t, "the message", func() error {
		if n := got.Load(); n != size {
			return fmt.Errorf("%d of %d bytes arrived", n, size)
		}
		return nil
	})
}
