package observe

import (
	"context"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"
)

// The time that a connection has in a full room before it may be ended for a newcomer.
const (
	// A connection has settleTime for its first request, and a request busyTime: clients
	// that do not read their answers have requests under way for longer.
	settleTime = time.Second
	busyTime   = 500 * time.Millisecond
	// hurriedTime is instead of settleTime while more than half of the room wait for their
	// first requests, which only happens when somebody makes it happen.
	hurriedTime = 50 * time.Millisecond
)

// room bounds the connections of a listener. Connections that rest, because they wait for
// their next request or do not begin their first, do not keep others out: when there are
// too many, the one that has rested longest is ended. If none rests, it is the one whose
// request has been under way longest, if for longer than busyTime; kept ones are not ended.
// Else whoever comes waits until there is one. All methods are safe for concurrent use.
type room struct {
	net.Listener
	most int
	// settle and busy are settleTime and busyTime.
	settle, busy time.Duration

	mu     sync.Mutex
	guests []*guest
	// waiting is how many wait in enter. freed is signalled, under mu, when one rests or
	// ends, when it is time to look again, and when the room is closed.
	waiting int
	freed   sync.Cond
	closed  bool
}

// guest is a connection in a room. What follows room is under the room's mu.
type guest struct {
	net.Conn
	room *room
	does doing
	// since is when it began to do that.
	since time.Time
	// gone: it no longer counts.
	gone bool
}

// doing is what a guest does.
type doing int

const (
	settles doing = iota // it has had no request
	rests                // it waits for its next
	works                // it has one under way
	kept                 // it has one under way for which it is kept
)

func newRoom(l net.Listener, most int) *room {
	r := &room{Listener: l, most: most, settle: settleTime, busy: busyTime}
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
	for len(r.guests) >= r.most && !r.closed {
		v, wait := r.choose(time.Now())
		if v != nil {
			victim = v
			r.leave(v)
			break
		}
		r.sleep(wait)
	}
	if r.closed {
		return victim, false
	}
	g.since = time.Now()
	r.guests = append(r.guests, g)
	return victim, true
}

// choose returns who must make room, or nil and how long it takes at most until there is
// one; 0: that is not known. The caller holds mu.
func (r *room) choose(now time.Time) (victim *guest, wait time.Duration) {
	settling := 0
	for _, g := range r.guests {
		if g.does == settles {
			settling++
		}
	}
	settle := r.settle
	if settling > r.most/2 {
		settle = hurriedTime
	}
	for _, g := range r.guests {
		var rest time.Duration // until it may be ended
		switch g.does {
		case settles:
			rest = settle - now.Sub(g.since)
		case works:
			rest = r.busy - now.Sub(g.since)
		case kept:
			continue
		}
		switch {
		case rest > 0:
			if wait == 0 || rest < wait {
				wait = rest
			}
		case victim == nil, before(g, victim):
			victim = g
		}
	}
	return victim, wait
}

// before reports whether g is to be ended rather than h: one that works is the last choice.
func before(g, h *guest) bool {
	if a, b := g.does == works, h.does == works; a != b {
		return b
	}
	return g.since.Before(h.since)
}

// sleep waits until somebody may have made room, or the time is up, if it is not 0. The
// caller holds mu.
func (r *room) sleep(limit time.Duration) {
	if limit > 0 {
		defer time.AfterFunc(limit, func() {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.freed.Broadcast()
		}).Stop()
	}
	r.waiting++
	r.freed.Wait()
	r.waiting--
}

// leave takes a connection out, once. The caller holds mu.
func (r *room) leave(g *guest) {
	if g.gone {
		return
	}
	g.gone = true
	if i := slices.Index(r.guests, g); i >= 0 {
		r.guests = slices.Delete(r.guests, i, i+1)
	}
	r.freed.Signal()
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

// become says what a guest does from now on. One that rests while somebody waits is ended
// at once: its next request may have come already, and then it rests for no time.
func (g *guest) become(what doing) {
	r := g.room
	r.mu.Lock()
	defer r.mu.Unlock()
	if g.gone {
		return
	}
	g.does, g.since = what, time.Now()
	if what == rests && r.waiting > 0 && len(r.guests) >= r.most {
		r.leave(g)
		_ = g.Conn.Close() // whatever it says, the connection is gone
	}
}

// note is a server's ConnState: it learns which connections rest.
func note(c net.Conn, state http.ConnState) {
	g, ok := c.(*guest)
	switch {
	case !ok:
	case state == http.StateActive:
		g.become(works)
	case state == http.StateIdle:
		g.become(rests)
	}
}

// connKey is under what the context of a request has its connection.
type connKey struct{}

// withConn is a server's ConnContext.
func withConn(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, c)
}

// Keep says that a request, which a Server serves, takes long, and that its connection is
// not to be ended meanwhile for one that comes. Whoever calls it has a limit on how many
// there are of such requests, and ends those whose answers are not read.
func Keep(r *http.Request) {
	if g, ok := r.Context().Value(connKey{}).(*guest); ok {
		g.become(kept)
	}
}
