package daemon

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/rdmad/rdmad/internal/attach"
	"github.com/rdmad/rdmad/internal/config"
	"github.com/rdmad/rdmad/internal/event"
	"github.com/rdmad/rdmad/internal/peerproto"
	"github.com/rdmad/rdmad/internal/printable"
)

// link is what this node knows of a configured peer. Its fields below the gap
// are guarded by conductor.mu.
type link struct {
	conductor *conductor
	name      string

	// address is where the peer is dialled. ctx ends when it is not configured any more, at the time removed.
	address string
	ctx     context.Context
	cancel  context.CancelFunc
	removed time.Time

	session *session // nil while there is none
	// next are those that wait until it is forgotten: the newest of those that the peer has dialled, and of this node's.
	next [2]*session
	// incarnation is the peer's, as of the last session, and lost the name of that
	// session when it has ended. holding is that session while what was under way
	// waits for the next one.
	incarnation string
	core        int64 // which of its cores that was
	names       nameBearers
	lost        uint64
	holding     *session
	// since is when there began to be a session, or none; changed also when the peer began, or ceased, to drain.
	since, changed time.Time
	lastErr        error
	// refusedSince is since when the peer's address refuses connections; zero: it does not, or there is a session. gone: it has been seen to
	// do so again after refusedHold.
	refusedSince time.Time
	gone         bool
	// troubles are the failures of fabrics by their names.
	troubles map[string]*trouble
	draining bool // the peer takes no new requests
	drained  bool // the peer has nothing under way to this node, and will not while this node drains
	// undrained is closed when the peer takes requests again; nil unless it drains.
	undrained chan struct{}
	listed    bool // the session's directory has come
	directory map[string]map[methodKey]peerproto.Listing
}

func newLink(c *conductor, p config.Peer) *link {
	now := time.Now()
	l := &link{conductor: c, name: p.Name, address: p.Address, since: now, changed: now, troubles: make(map[string]*trouble)}
	l.begin()
	return l
}

// errNoPeer ends the sessions with a node that is not a peer any more.
var errNoPeer = errors.New("it is not a [[peer]] any more")

// begin makes the link one of a configured peer, until cancel is called. Later on
// conductor.mu is held.
func (l *link) begin() {
	parent := l.conductor.ctx
	if parent == nil {
		parent = context.Background()
	}
	l.ctx, l.cancel = context.WithCancel(parent)
	l.refusedSince, l.gone = time.Time{}, false // nobody has tried while it was none
}

// dialled returns the address at which the peer is dialled.
func (l *link) dialled() string {
	l.conductor.mu.Lock()
	defer l.conductor.mu.Unlock()
	return l.address
}

// sessionWith returns the session with a peer, or nil.
func (c *conductor) sessionWith(name string) *session {
	if l := c.allLinks()[name]; l != nil {
		return l.current()
	}
	return nil
}

// The waits between attempts to connect: they double, with jitter so that nodes
// that lost each other at once do not meet again at once.
const (
	firstRetry = 50 * time.Millisecond
	lastRetry  = 2 * time.Second
	// courtesy is how long the node with the greater name waits for the other
	// to dial, so that two nodes that know each other make one connection.
	courtesy = 500 * time.Millisecond
)

// sleep waits and reports whether ctx lives.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// dialLoop keeps the link connected until ctx ends.
func (l *link) dialLoop(ctx context.Context) {
	c := l.conductor
	wait := firstRetry
	var pause backoff
	for ctx.Err() == nil {
		s := l.current()
		if s == nil {
			if c.node > l.name && (!sleep(ctx, courtesy) || l.current() != nil) {
				continue
			}
			made, err := l.dial(ctx)
			if err != nil {
				l.failed(err)
				sleep(ctx, jitter(wait))
				wait = min(2*wait, lastRetry)
				continue
			}
			wait = firstRetry
			if !l.adopt(made) {
				continue
			}
			s = made // which may have ended by now: that it was there counts all the same
		}
		begun := time.Now()
		select {
		case <-s.forgotten:
			wait = firstRetry
			sleep(ctx, pause.after(time.Since(begun)))
		case <-ctx.Done():
		}
	}
}

func (l *link) current() *session {
	l.conductor.mu.Lock()
	defer l.conductor.mu.Unlock()
	return l.session
}

// failed notes why the peer cannot be reached, and logs when that changes.
func (l *link) failed(err error) {
	c := l.conductor
	c.mu.Lock()
	if l.session != nil {
		c.mu.Unlock()
		return // the peer has connected meanwhile
	}
	changed := l.lastErr == nil || withoutSource(l.lastErr) != withoutSource(err)
	l.lastErr = err
	switch {
	case !errors.Is(err, syscall.ECONNREFUSED):
		l.refusedSince, l.gone = time.Time{}, false
	case l.refusedSince.IsZero():
		l.refusedSince = time.Now()
	default:
		l.gone = time.Since(l.refusedSince) >= refusedHold
	}
	if l.holding != nil {
		c.notify() // hold may know enough
	}
	ctx, address := l.ctx, l.address // a reload may change them
	c.mu.Unlock()
	if changed && ctx.Err() == nil {
		event.PeerUnreachable.On(&c.log).Err(err).Str("peer", l.name).Str("address", address).Msg("cannot connect to peer; will go on trying")
	}
}

// sourcePort is in the texts of errors of connections: another one for each attempt.
var sourcePort = regexp.MustCompile(`:[0-9]+->`)

// withoutSource returns the text of an error without the port that this node has used, which is no other reason.
func withoutSource(err error) string { return sourcePort.ReplaceAllString(err.Error(), "->") }

// adopt makes s the link's session, and has it served until it ends, or ends it. It reports whether it is, or was, served. When both
// nodes dialled, both keep the connection that the smaller name made; a new
// incarnation of the peer replaces whatever there was.
func (l *link) adopt(s *session) bool {
	c := l.conductor
	for {
		c.mu.Lock()
		l.leave(s)
		old := l.session
		if l.ctx.Err() != nil {
			c.mu.Unlock()
			why := errNoPeer
			if c.ctx.Err() != nil {
				why = errStopping
			}
			s.end(why)
			return false
		}
		if old == nil {
			break
		}
		c.mu.Unlock()
		if old.incarnation == s.incarnation && old.core == s.core && s.lost != old.id && s.dialler > old.dialler {
			s.end(fmt.Errorf("there is a connection to %s already", l.name))
			return false
		}
		old.end(fmt.Errorf("replaced by a newer connection of node %s", s.dialler))
		l.comes(s)
		select {
		case <-old.forgotten:
		case <-s.life.Done(): // replaced while it waited
			c.mu.Lock()
			l.leave(s)
			c.mu.Unlock()
			return false
		case <-c.ctx.Done():
			s.end(errStopping)
			return false
		}
	}
	l.session, l.lastErr, l.draining, l.drained, l.listed = s, nil, false, false, false
	l.since, l.refusedSince, l.gone = time.Now(), time.Time{}, false
	l.changed = l.since
	c.mu.Unlock()
	served := c.spawn(func() { l.serveSession(s) })
	if !served {
		s.end(errStopping)
	}
	return served
}

// comes makes s the one session of its dialler that waits for the link's last one to be forgotten. Which of two diallers'
// is kept both nodes decide in the same way, later.
func (l *link) comes(s *session) {
	c, own := l.conductor, 0
	if s.dialler == l.conductor.node {
		own = 1
	}
	c.mu.Lock()
	before := l.next[own]
	l.next[own] = s
	c.mu.Unlock()
	if before != nil && before != s {
		before.end(fmt.Errorf("replaced by a newer connection of node %s", s.dialler))
	}
}

// leave notes that s does not wait any more, with conductor.mu held.
func (l *link) leave(s *session) {
	for own, next := range l.next {
		if next == s {
			l.next[own] = nil
		}
	}
}

func (l *link) serveSession(s *session) {
	c := l.conductor
	c.log.Info().Str("peer", l.name).Str("incarnation", s.incarnation).Str("provider", s.fabric.Name).Msg("peer connected")
	c.mu.Lock()
	restarted := l.incarnation != "" && l.incarnation != s.incarnation
	replaced := l.core != s.core
	l.incarnation, l.core, l.holding = s.incarnation, s.core, nil
	other := l.names.bear(s.incarnation, s.conn.RemoteAddr().String(), time.Now())
	atomic.AddUint64(&c.counts().LinksMade, 1)
	if l.lost != 0 {
		atomic.AddUint64(&c.counts().Reconnects, 1)
	}
	c.notify()
	c.mu.Unlock()
	if other != "" {
		event.PeerTwice.On(&c.log).Str("peer", l.name).Str("address", s.conn.RemoteAddr().String()).Str("other", other).Msg("two daemons say that they are this peer")
	}
	if restarted {
		c.lanesLost(l.name, fmt.Sprintf("node %s has been started anew", l.name))
	} else if replaced {
		c.bulksWith(l.name, (*bulk).forget)
	}
	// Besides: what is read must not wait for what is written, or two nodes with much to say would wait for each other.
	c.spawn(func() {
		s.publishing.Lock()
		s.sendDirectory()
		s.publishing.Unlock()
	})
	c.spawn(func() { c.repeatExports(s) })
	c.spawn(func() { c.awaitPeerRepeated(s) })
	c.lanesReopened(s)
	c.spawn(func() { l.failback(s) })
	s.serve()
	reason := s.Reason()
	if c.ctx.Err() == nil {
		event.PeerDisconnected.On(&c.log).Err(reason).Str("peer", l.name).Msg("peer disconnected")
		atomic.AddUint64(&c.counts().LinksLost, 1)
	}
	c.lanesSuspended(l.name)
	c.mu.Lock()
	l.session, l.lastErr, l.directory, l.listed = nil, reason, nil, false
	l.since = time.Now()
	l.changed = l.since
	l.lost, l.holding, s.cut = s.id, s, l.owed()
	c.notify()
	c.mu.Unlock()
	close(s.forgotten)
	c.spawn(func() { l.hold(s) })
}

// end ends the link's session, if any.
func (l *link) end(err error) {
	if s := l.current(); s != nil {
		s.end(err)
	}
}

// lookup finds a method on the peer, with conductor.mu held. retry says that
// waiting may help.
func (l *link) lookup(d *domain, key methodKey) (p place, retry bool, err error) {
	switch {
	case l.session == nil || l.session.Reason() != nil: // or about to be
		cause := ""
		if l.lastErr != nil {
			cause = ": " + l.lastErr.Error()
		}
		return p, true, fmt.Errorf("%w: node %s (%s) is not connected%s", attach.ErrNoService, l.name, l.address, cause)
	case !l.listed:
		return p, true, fmt.Errorf("%w: node %s has not said what it serves", attach.ErrNoService, l.name)
	case l.draining:
		return p, true, fmt.Errorf("%w: node %s is draining", attach.ErrNoService, l.name)
	}
	e, ok := l.directory[d.name][key]
	if !ok {
		return p, false, fmt.Errorf("%w: node %s does not serve %s/%s in domain %s", attach.ErrNoService, l.name, key.service, key.method, d.name)
	}
	return place{node: l.name, session: l.session, id: e.ID, answer: e.Answer, carries: e.Carries && l.session.carries}, false, nil
}

// errNoAttempt is why a peer is not connected that has not been refused, or lost, yet.
var errNoAttempt = errors.New("the first attempt to connect has not ended yet")

// connected waits until the named peer is connected.
func (c *conductor) connected(ctx context.Context, gone <-chan struct{}, name string) (*session, error) {
	for over := false; ; {
		c.mu.Lock()
		l := c.links[name]
		changed := c.changed
		var s *session
		var lastErr error
		if l != nil {
			s, lastErr = l.session, l.lastErr
		}
		if s != nil && s.Reason() != nil {
			s, lastErr = nil, s.Reason() // in a moment it is not the link's any more
		}
		c.mu.Unlock()
		if l == nil {
			return nil, fmt.Errorf("%w: node %q is not a [[peer]] of node %s", attach.ErrNoService, printable.Text(name), c.node)
		}
		if s != nil {
			return s, nil
		}
		if !over {
			select {
			case <-changed:
				continue
			case <-ctx.Done():
				over = true // unless it is connected by now
				continue
			case <-gone:
			}
		}
		if lastErr == nil {
			lastErr = errNoAttempt
		}
		return nil, fmt.Errorf("%w: node %s is not connected: %w", attach.ErrNoService, name, lastErr)
	}
}
