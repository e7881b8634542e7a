package daemon

import (
	"net"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/rdmad/rdmad/internal/turnstile"
)

// maxWaiting bounds the connections of peers that have not said who they are.
const maxWaiting = 64

// lobby has the connections that have not said who they are. One more than it has
// room for pushes out the oldest of those from whom most have come: whoever comes
// with many, and waits, loses its own and nobody else's.
type lobby struct {
	mu      sync.Mutex
	waiting []visitor // the oldest first
}

// visitor is a connection in a lobby, and whose it is: a host's, or a user's.
type visitor struct {
	conn  net.Conn
	whose string
}

// enter lets a connection in, of which there may be most.
func (l *lobby) enter(conn net.Conn, whose string, most int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.waiting) >= max(1, most) {
		whose := make([]string, len(l.waiting))
		for i, v := range l.waiting {
			whose[i] = v.whose
		}
		i := turnstile.OldestOfMost(whose)
		// Its goroutine sees the end, counts it and leaves.
		_ = l.waiting[i].conn.Close()
		l.waiting = slices.Delete(l.waiting, i, i+1)
	}
	l.waiting = append(l.waiting, visitor{conn, whose})
}

// leave lets a connection out, if it is still there.
func (l *lobby) leave(conn net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if i := slices.IndexFunc(l.waiting, func(v visitor) bool { return v.conn == conn }); i >= 0 {
		l.waiting = slices.Delete(l.waiting, i, i+1)
	}
}

// leastAttaching is how many processes may always be about to attach.
const leastAttaching = 16

// mostAttaching is how many processes may be about to attach: as many as may be attached, but in what they have, which
// is a descriptor or two each, they must leave room for those that are.
func (c *conductor) mostAttaching() int {
	most := c.live().Limits.Workers + maxTools
	var files unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &files); err == nil {
		most = int(min(uint64(most), files.Cur/8))
	}
	return max(leastAttaching, most)
}
