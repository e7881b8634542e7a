// Package turnstile bounds how often one host may come: connections cost work before it
// is known whose they are, and whoever makes them without end must not cost more than a
// little. Only those in vain count. It also says who makes room where connections wait, and lets whoever is refused read why.
package turnstile

import (
	"net"
	"sync"
	"time"
)

const (
	// Burst is how many connections in vain a host may make at once: more than there
	// are while nodes start, or while an operator tries things.
	Burst = 256
	// PerSecond is how many more it may make each second.
	PerSecond = 32
	// maxHosts bounds the hosts that are remembered.
	maxHosts = 1024
)

// Turnstile counts connections by the host that they come from. Its methods are safe for
// concurrent use. The zero Turnstile is ready.
type Turnstile struct {
	mu    sync.Mutex
	hosts map[string]*visitor
}

// visitor is a host that has fewer than Burst connections left.
type visitor struct {
	left float64
	seen time.Time
}

// Enter counts a connection from an address and reports whether it may come in. It
// costs nothing if Return is called for it later.
func (t *Turnstile) Enter(from net.Addr) bool { return t.enter(HostOf(from), time.Now()) }

// Return takes back the Enter of a connection that was not in vain.
func (t *Turnstile) Return(from net.Addr) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if v := t.hosts[HostOf(from)]; v != nil {
		v.left++
	}
}

func (t *Turnstile) enter(host string, now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	v := t.hosts[host]
	if v == nil {
		if t.hosts == nil {
			t.hosts = make(map[string]*visitor)
		}
		t.makeRoom(now)
		v = &visitor{left: Burst, seen: now}
		t.hosts[host] = v
	}
	v.fill(now)
	if v.left < 1 {
		return false
	}
	v.left--
	return true
}

// fill gives back what time has brought.
func (v *visitor) fill(now time.Time) {
	v.left = min(Burst, v.left+now.Sub(v.seen).Seconds()*PerSecond)
	v.seen = now
}

// makeRoom forgets hosts of which nothing is to be remembered, or if there are none the
// one that has come least often.
func (t *Turnstile) makeRoom(now time.Time) {
	if len(t.hosts) < maxHosts {
		return
	}
	best, most := "", -1.0
	for host, v := range t.hosts {
		v.fill(now)
		if v.left >= Burst {
			delete(t.hosts, host)
		} else if v.left > most {
			best, most = host, v.left
		}
	}
	if len(t.hosts) == maxHosts {
		delete(t.hosts, best)
	}
}

// HostOf returns an address without the port.
func HostOf(a net.Addr) string {
	host, _, err := net.SplitHostPort(a.String())
	if err != nil {
		return a.String()
	}
	return host
}
