package daemon

import (
	"net"
	"slices"
	"sync"

	"github.com/rdmad/rdmad/internal/turnstile"
)

// maxWaiting bounds the connections that have not said who they are.
const maxWaiting = 64

// lobby has the connections that have not said who they are. One more than it has
// room for pushes out the oldest of the host that has most of them: whoever comes
// with many, and waits, loses its own and nobody else's.
type lobby struct {
	mu      sync.Mutex
	waiting []net.Conn // the oldest first
}

// enter lets a connection in.
func (l *lobby) enter(conn net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.waiting) == maxWaiting {
		i := l.oldestOfMost()
		// Its goroutine sees the end, counts it and leaves.
		_ = l.waiting[i].Close()
		l.waiting = slices.Delete(l.waiting, i, i+1)
	}
	l.waiting = append(l.waiting, conn)
}

// leave lets a connection out, if it is still there.
func (l *lobby) leave(conn net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if i := slices.Index(l.waiting, conn); i >= 0 {
		l.waiting = slices.Delete(l.waiting, i, i+1)
	}
}

// oldestOfMost returns the index of the connection to push out.
func (l *lobby) oldestOfMost() int {
	count := make(map[string]int)
	for _, c := range l.waiting {
		count[turnstile.HostOf(c.RemoteAddr())]++
	}
	best := 0
	for i, c := range l.waiting {
		if count[turnstile.HostOf(c.RemoteAddr())] > count[turnstile.HostOf(l.waiting[best].RemoteAddr())] {
			best = i
		}
	}
	return best
}
