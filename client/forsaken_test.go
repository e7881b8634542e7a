package client_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"testing"
	"time"

	"github.com/rdmad/rdmad/client"
	"github.com/rdmad/rdmad/internal/daemontest"
	"github.com/rdmad/rdmad/server"
)

// A large call that is given up while its first part is under way leaves nothing behind at the service, whose room for large
// messages would be used up by those who do not wait.
func TestLargeCallGivenUpEarly(t *testing.T) {
	const size = 6 << 20
	a, _ := daemontest.Pair(t, "")
	serve(t, a, 4, handlers{"big": func(*server.Call) error { return nil }}, server.LargeMessages(size))
	c := attach(t, a)
	m := method(t, c, "a/t/big")
	req := make([]byte, size)
	for i := range 300 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i)*time.Microsecond)
		_, _ = m.Call(ctx, req)
		cancel()
	}
	roomSoon(t, m, req)
}

// roomSoon waits until a large request is executed, which is to be long before a lease, of 60 s, ends.
func roomSoon(t *testing.T, m *client.Method, req []byte) {
	t.Helper()
	start := time.Now()
	daemontest.Eventually(t, "there is room for a large call", func() error {
		_, err := m.Call(t.Context(), req)
		return err
	})
	if took := time.Since(start); took > 40*time.Second {
		t.Errorf("there was room after %v", took)
	}
}

// A large request whose handler does not run, because it came too late or was taken back, leaves
// nothing behind at the service.
func TestLargeCallTooLate(t *testing.T) {
	const size = 4 << 20
	a, _ := daemontest.Pair(t, "")
	inside, let := make(chan struct{}), make(chan struct{})
	serve(t, a, 1, handlers{
		"big": func(*server.Call) error { return nil },
		"block": func(*server.Call) error {
			inside <- struct{}{}
			<-let
			return nil
		},
	}, server.LargeMessages(size))
	c := attach(t, a)
	big := method(t, c, "a/t/big")
	req := make([]byte, size)
	ways := map[string]func(release func()) error{
		"deadline": func(func()) error {
			ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			defer cancel()
			_, err := big.Call(ctx, req)
			return err
		},
		"cancelled": func(release func()) error {
			var f *client.Future
			daemontest.Eventually(t, "a request that the daemon has taken", func() error {
				var err error
				if f, err = big.Go(t.Context(), req); err != nil {
					return err
				}
				if _, err := a.Status(t.Context()); err != nil { // takes longer than the daemon to take it
					return err
				}
				if f.Cancel() {
					return errors.New("taken back")
				}
				return nil
			})
			// There is room while it waits for a worker.
			daemontest.Eventually(t, "room for another one", func() error {
				other, err := big.Go(t.Context(), req)
				if err == nil {
					other.Cancel()
				}
				return err
			})
			release()
			_, err := f.Wait(t.Context())
			return err
		},
	}
	for name, way := range ways {
		t.Run(name, func(t *testing.T) {
			busy, err := method(t, c, "a/t/block").Go(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			<-inside
			release := sync.OnceFunc(func() { let <- struct{}{} })
			defer release()
			if err := way(release); !errors.Is(err, client.ErrNotExecuted) && !errors.Is(err, client.ErrDeadline) {
				t.Errorf("the call: %v", err)
			}
			release()
			if _, err := busy.Wait(t.Context()); err != nil {
				t.Error(err)
			}
			roomSoon(t, big, req)
		})
	}
}

// A stream whose context ends while it is being opened ends for its handler, too.
func TestStreamGivenUpEarly(t *testing.T) {
	a, _ := daemontest.Pair(t, "")
	handlers := make(chan context.Context, 1)
	callers := make(chan context.CancelFunc, 1)
	serveStreams(t, a, streams{"cancel": func(s *server.Stream) error {
		cancel := <-callers
		cancel()
		handlers <- s.Context()
		<-s.Context().Done()
		return s.Context().Err()
	}})
	c := attach(t, a)
	m := method(t, c, "a/t/cancel")
	for range 20 {
		ctx, cancel := context.WithCancel(t.Context())
		callers <- cancel
		s, err := m.Stream(ctx)
		within(t, "a handler whose caller is gone", func() {
			handler := <-handlers
			start := time.Now()
			<-handler.Done()
			// An answer that comes when nobody waits for any is looked at once the daemon wants its slots back
			// (limits.spill_after). A lease takes 60 s.
			if took := time.Since(start); took > 40*time.Second {
				t.Errorf("its context ended after %v (%v)", took, err)
			}
		})
		if err == nil {
			_ = s.Close()
		}
		cancel()
	}
}

// Messages that have arrived are not received after Close.
func TestStreamRecvAfterClose(t *testing.T) {
	a, _ := daemontest.Pair(t, "")
	serveStreams(t, a, streams{"echo": echoStream})
	c := attach(t, a)
	s := open(t, c, "a/t/echo")
	for range 3 {
		if err := s.Send(t.Context(), []byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Recv(t.Context()); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if msg, err := s.Recv(t.Context()); !errors.Is(err, client.ErrClosed) {
			t.Errorf("received %q, %v", msg, err)
		}
	}
}

// A reference to a region of another connection is an error, even if a region of this one has its name.
func TestRegionOfAnotherConnection(t *testing.T) {
	a, b := daemontest.Pair(t, "")
	for _, n := range []*daemontest.Node{a, b} {
		serve(t, n, 1, handlers{"write": func(c *server.Call) error {
			_, err := c.Region(0).WriteAt([]byte("xxxx"), 0)
			return err
		}})
	}
	var conns []*client.Conn
	var regions []*client.Region
	for _, n := range []*daemontest.Node{a, b} {
		c := attach(t, n)
		r, err := c.AllocRegion(t.Context(), 4096)
		if err != nil {
			t.Fatal(err)
		}
		conns, regions = append(conns, c), append(regions, r)
	}
	ref, err := regions[1].Ref(0, 4, client.MayWrite)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conns[0].CallRegions(t.Context(), "b/t/write", nil, ref); !errors.Is(err, client.ErrInvalid) {
		t.Errorf("%v", err)
	}
	for i, r := range regions {
		if got := fmt.Sprintf("%q", r.Bytes()[:4]); got != `"\x00\x00\x00\x00"` {
			t.Errorf("region %d has %s", i, got)
		}
	}
}

// No size of a request makes it fit, and what goes with it makes no difference.
func TestReserveTooMuch(t *testing.T) {
	a, _ := daemontest.Pair(t, "")
	serve(t, a, 1, nil)
	c := attach(t, a)
	m := method(t, c, "a/t/echo").With(client.Carry([]byte("with it")))
	for _, n := range []int{math.MaxInt, math.MaxInt - 100, math.MaxInt / 2, client.MaxMessage + 1} {
		if _, err := m.Reserve(t.Context(), n); !errors.Is(err, client.ErrTooLarge) {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
}
