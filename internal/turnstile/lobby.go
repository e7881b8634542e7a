package turnstile

import (
	"net"
	"slices"
	"sync"
)

// Lobby has the connections that have not said who they are. One more than it has
// room for pushes out the oldest of those from whom most have come: whoever comes
// with many, and waits, loses its own and nobody else's.
type Lobby struct {
	mu      sync.Mutex
	waiting []guest // the oldest first
}

// guest is a connection in a lobby, and whose it is: a host's, or a user's.
type guest struct {
	conn  net.Conn
	whose string
}

// Enter lets a connection in, of which there may be most.
func (l *Lobby) Enter(conn net.Conn, whose string, most int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.waiting) >= max(1, most) {
		whose := make([]string, len(l.waiting))
		for i, v := range l.waiting {
			whose[i] = v.whose
		}
		i := OldestOfMost(whose)
		// Its goroutine sees the end, counts it and leaves.
		_ = l.waiting[i].conn.Close()
		l.waiting = slices.Delete(l.waiting, i, i+1)
	}
	l.waiting = append(l.waiting, guest{conn, whose})
}

// Leave lets a connection out, if it is still there.
func (l *Lobby) Leave(conn net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if i := slices.IndexFunc(l.waiting, func(v guest) bool { return v.conn == conn }); i >= 0 {
		l.waiting = slices.Delete(l.waiting, i, i+1)
	}
}
