package observe

import (
	"net"
	"net/http"
	"slices"
	"sync"
)

// room bounds the connections of a listener. Connections that rest, because they wait for
// their next request or have not begun their first, do not keep others out: when there are
// too many, the one that has rested longest is ended. If none rests, whoever comes waits
// until a request has ended; all of them have time limits. All methods are safe for
// concurrent use.
type room struct {
	net.Listener
	most int

	mu sync.Mutex
	// count is how many connections there are, and resting those of them that rest, the
	// one that has for longest first.
	count   int
	resting []*guest
	// freed is signalled, under mu, when one rests or ends, and when the room is closed.
	freed  sync.Cond
	closed bool
}

// guest is a connection in a room.
type guest struct {
	net.Conn
	room *room
	// gone is set, under the room's mu, when it no longer counts.
	gone bool
}

func newRoom(l net.Listener, most int) *room {
	r := &room{Listener: l, most: most}
	r.freed.L = &r.mu
	return r
}

// Accept implements net.Listener.
func (r *room) Accept() (net.Conn, error) {
	c, err := r.Listener.Accept()
	if err != nil {
		return nil, err
	}
	g := &guest{Conn: c, room: r}
	victim, ok := r.enter(g)
	if victim != nil {
		_ = victim.Conn.Close() // whatever it says, the connection is gone
	}
	if !ok {
		_ = c.Close()
		return nil, net.ErrClosed
	}
	return g, nil
}

// enter lets a connection in, and returns the one that must be ended for it, if any. It is
// false if the room is closed before there is a place.
func (r *room) enter(g *guest) (victim *guest, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for r.count >= r.most && len(r.resting) == 0 && !r.closed {
		r.freed.Wait()
	}
	if r.closed {
		return nil, false
	}
	if r.count >= r.most {
		victim = r.resting[0]
		r.leave(victim)
	}
	r.count++
	r.resting = append(r.resting, g)
	return victim, true
}

// leave takes a connection out, once. The caller holds mu.
func (r *room) leave(g *guest) {
	if g.gone {
		return
	}
	g.gone = true
	r.count--
	r.wake(g)
	r.freed.Signal()
}

// wake takes a connection out of those that rest. The caller holds mu.
func (r *room) wake(g *guest) {
	if i := slices.Index(r.resting, g); i >= 0 {
		r.resting = slices.Delete(r.resting, i, i+1)
	}
}

// Close implements net.Listener. Connections live on.
func (r *room) Close() error {
	r.mu.Lock()
	r.closed = true
	r.freed.Broadcast()
	r.mu.Unlock()
	return r.Listener.Close()
}

// Close implements net.Conn.
func (g *guest) Close() error {
	g.room.mu.Lock()
	g.room.leave(g)
	g.room.mu.Unlock()
	return g.Conn.Close()
}

// note is a server's ConnState: it learns which connections rest.
func note(c net.Conn, state http.ConnState) {
	g, ok := c.(*guest)
	if !ok {
		return
	}
	r := g.room
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case g.gone:
	case state == http.StateActive:
		r.wake(g)
	case state == http.StateIdle:
		r.wake(g)
		r.resting = append(r.resting, g)
		r.freed.Signal()
	}
}
