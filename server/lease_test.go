package server

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/rdmad/rdmad/client"
	"github.com/rdmad/rdmad/internal/attach"
	"github.com/rdmad/rdmad/internal/daemontest"
	"github.com/rdmad/rdmad/slots"
)

// An exchange lasts for as long as a lost link is waited for, or a core that hangs is replaced, and its lease. So it does with the
// next core, whose configuration may be another.
func TestLeaseOutlastsLink(t *testing.T) {
	_, b := daemontest.Pair(t, "")
	s, err := Attach(t.Context(), b.Socket)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	lease := func() time.Duration {
		s.exchanges.mu.Lock()
		defer s.exchanges.mu.Unlock()
		return s.exchanges.lease
	}
	const hold, hang = 10 * time.Second, 35 * time.Second // the defaults of node.link_hold, and what that of node.hang_limit may take
	if got := lease(); got != exchangeLease+hold+hang {
		t.Errorf("the lease is %v", got)
	}
	for _, c := range []struct {
		ms   int64
		want time.Duration
	}{{2000, exchangeLease + 2*time.Second}, {0, exchangeLease + 2*time.Second}, {1, exchangeLease + time.Millisecond}} {
		if s.resumed(attach.Resumed{HoldMillis: c.ms}); lease() != c.want {
			t.Errorf("after a core that says %d ms the lease is %v", c.ms, lease())
		}
	}
	check := func() error {
		if got := lease(); got != exchangeLease+hold+hang {
			return fmt.Errorf("the lease is %v", got)
		}
		return nil
	}
	if err := b.KillCore(); err != nil {
		t.Fatal(err)
	}
	daemontest.Eventually(t, "the next core has said it", check)
}

// A part whose bytes could not be moved because a daemon has lost what the part allows is
// one that its requester sends again; any other failure ends it.
func TestPartNotMoved(t *testing.T) {
	for err, want := range map[error]slots.Status{
		ErrLost: slots.StatusNotExported, ErrExpired: slots.StatusNotExecuted, ErrClosed: slots.StatusNotExecuted,
	} {
		r := newExchangeRig(t)
		u := slots.Run{Index: 0, Len: 1, Ticket: 1}
		r.ring.Deliver(0, 1, fuzzID, 1)
		if _, ok := r.ring.Pick(0, fuzzID); !ok {
			t.Fatal("not picked")
		}
		p := &part{x: &r.s.exchanges, ring: r.ring, run: u, header: slots.Header{Answer: 300}}
		p.notMoved(&RegionError{Op: "write", Off: 1 << 20, Len: 1 << 20, Size: 4 << 20, Err: err})
		var h slots.Header
		if !h.Decode(r.ring.Header(u)) || h.Status != want || h.Length > 64 || !strings.HasSuffix(string(r.ring.Payload(u)[:h.Length]), err.Error()) {
			t.Errorf("%v: %v, want %v: %q", err, h.Status, want, r.ring.Payload(u)[:h.Length])
		}
	}
}

// A large request of which nothing comes for as long as a lease is not executed, as its caller learns from the next part.
func TestLeaseOfALargeRequest(t *testing.T) {
	a, b := daemontest.Pair(t, "")
	s, err := Attach(t.Context(), b.Socket)
	if err != nil {
		t.Fatal(err)
	}
	executed, answered := 0, 0
	if err := s.Handle("t", "large", func(*Call) error { executed++; return nil }); err != nil {
		t.Fatal(err)
	}
	over := make(chan error, 1)
	go func() { over <- s.Serve(context.Background()) }()
	conn, err := client.Attach(t.Context(), a.Socket)
	if err != nil {
		t.Fatal(err)
	}
	outcome := make(chan error, 1)
	go func() {
		for msg := make([]byte, 64<<20); ; answered++ {
			if _, err := conn.Call(t.Context(), "b/t/large", msg); err != nil {
				outcome <- err
				return
			}
		}
	}()
	x := &s.exchanges
	for err = nil; err == nil; {
		x.mu.Lock()
		var begun []*serverExchange
		for _, e := range x.open {
			begun = append(begun, e)
		}
		x.mu.Unlock()
		for _, e := range begun {
			letLeasePass(x, e)
			x.expire(e) // as its lease does
		}
		select {
		case err = <-outcome:
		default:
			runtime.Gosched()
		}
	}
	if !errors.Is(err, client.ErrNotExecuted) || !strings.HasSuffix(err.Error(), unknownExchange) || executed != answered {
		t.Errorf("%d answered, %d executed: %v", answered, executed, err)
	}
	if err := errors.Join(conn.Close(), s.Close()); err != nil {
		t.Error(err)
	}
	<-over
}
