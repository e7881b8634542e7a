package turnstile

import (
	"fmt"
	"net"
	"testing"
	"time"
)

// A host that comes too often in vain has to wait; others do not.
func TestBurst(t *testing.T) {
	var s Turnstile
	now := time.Now()
	for i := range Burst {
		if !s.enter("a", now) {
			t.Fatalf("connection %d is refused", i)
		}
	}
	if s.enter("a", now) {
		t.Error("no bound")
	}
	if !s.enter("b", now) {
		t.Error("another host is refused")
	}
	now = now.Add(time.Second)
	n := 0
	for s.enter("a", now) {
		n++
	}
	if n != PerSecond {
		t.Errorf("%d after a second, want %d", n, PerSecond)
	}
	now = now.Add(time.Hour)
	for n = 0; s.enter("a", now); n++ {
	}
	if n != Burst {
		t.Errorf("%d after an hour, want %d", n, Burst)
	}
}

// What was not in vain costs nothing.
func TestReturn(t *testing.T) {
	var s Turnstile
	from := &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 5}
	s.Return(from)
	for i := range 3 * Burst {
		if !s.Enter(from) {
			t.Fatalf("connection %d is refused", i)
		}
		s.Return(from)
	}
}

// However many hosts come, only so many are remembered, and not the quiet ones.
func TestManyHosts(t *testing.T) {
	var s Turnstile
	now := time.Now()
	for s.enter("noisy", now) {
	}
	for i := range 3 * maxHosts {
		if !s.enter(fmt.Sprint(i), now) {
			t.Fatalf("host %d is refused", i)
		}
		if len(s.hosts) > maxHosts {
			t.Fatalf("%d hosts", len(s.hosts))
		}
	}
	if s.enter("noisy", now) {
		t.Error("the host that came most often is forgotten")
	}
}

func TestHostOf(t *testing.T) {
	for want, a := range map[string]net.Addr{
		"192.0.2.1": &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 5},
		"::1":       &net.TCPAddr{IP: net.IPv6loopback, Port: 5},
		"/x":        &net.UnixAddr{Name: "/x", Net: "unix"},
	} {
		if got := HostOf(a); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
