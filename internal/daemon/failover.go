package daemon

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rdmad/rdmad/internal/agent"
	"github.com/rdmad/rdmad/internal/event"
	"github.com/rdmad/rdmad/internal/fabric"
	"github.com/rdmad/rdmad/internal/fabrics"
	"github.com/rdmad/rdmad/internal/peerproto"
	"github.com/rdmad/rdmad/internal/printable"
	"github.com/rdmad/rdmad/slots"
)

// With fabric.provider = "auto" a node that has verbs has tcp behind it. A link uses one of
// them at a time, for everything between the two nodes. When lanes keep failing over the
// better one, the link goes on over the other, and from time to time tries the better one
// again. Nothing is special about such a change: the session ends and the next one uses
// another fabric; what is under way is resynchronised as after any loss of a link.

const (
	// troubleLimit failures of connections over a session's fabric, or of making an end of one,
	// within troubleTime make the link use another one.
	troubleLimit = 3
	troubleTime  = 30 * time.Second
	// Every further time a fabric is not offered for twice as long as the last time, up to
	// lastPenalty, unless it was good for goodTime in between.
	lastPenalty = 5 * time.Minute
	goodTime    = 10 * time.Minute
)

// firstPenalty is how long a fabric is not offered for the first time; shorter in tests.
var firstPenalty = 10 * time.Second

// trouble is what a link knows of failures of a fabric. conductor.mu guards it.
type trouble struct {
	failures []time.Time // over the present session
	until    time.Time   // it is not offered before
	penalty  time.Duration
}

// failed notes a failure and reports whether the fabric is to be left.
func (t *trouble) failed(now time.Time) bool {
	t.failures = slices.DeleteFunc(append(t.failures, now), func(f time.Time) bool { return now.Sub(f) > troubleTime })
	if len(t.failures) < troubleLimit {
		return false
	}
	t.failures = nil
	if t.penalty = 2 * t.penalty; t.penalty == 0 || now.Sub(t.until) > goodTime {
		t.penalty = firstPenalty
	}
	t.penalty = min(t.penalty, lastPenalty)
	t.until = now.Add(t.penalty)
	return true
}

// offers returns the names of the fabrics that this node would use for the link, the
// best first. One is always left.
func (l *link) offers() []string {
	c := l.conductor
	c.mu.Lock()
	defer c.mu.Unlock()
	var names []string
	for i, f := range c.fabrics {
		last := i == len(c.fabrics)-1 && len(names) == 0
		if t := l.troubles[f.Name]; last || t == nil || time.Now().After(t.until) {
			names = append(names, f.Name)
		}
	}
	return names
}

// commonFabric is the fabric for a session: the first offer of the node that dialled
// that the other one offers too.
func (c *conductor) commonFabric(dialled, taken *peerproto.Hello) (*fabrics.Fabric, error) {
	for _, name := range dialled.Fabrics {
		if !slices.Contains(taken.Fabrics, name) {
			continue
		}
		for _, f := range c.fabrics {
			if f.Name == name {
				return f, nil
			}
		}
	}
	peer, mine := dialled, taken
	if dialled.Node == c.node {
		peer, mine = taken, dialled
	}
	return nil, fmt.Errorf("node %s uses fabric %q, this node %q: see rdmad doctor on both, or give both the same fabric.provider",
		printable.Text(peer.Node), printable.Text(strings.Join(peer.Fabrics, ", ")), strings.Join(mine.Fabrics, ", "))
}

// Why sessions end that have nothing wrong.
var (
	errFailover = errors.New("connections over the link's fabric keep failing")
	errFailback = errors.New("trying the better fabric again")
)

// ofFabric reports whether an error for which a connection could not be made, or broke, is a failure of the fabric that this node
// has seen. What ends a connection besides is what a peer or a worker has said, that somebody has given it up, and that the peer
// has closed its end, for which it had a reason: if that was a failure of the fabric, the peer counts it.
func ofFabric(err error) bool {
	for _, other := range []error{slots.ErrProtocol, peerproto.ErrFrame, errTold, errOutdated, fabric.ErrPeerClosed, agent.ErrRetired, context.Canceled} {
		if errors.Is(err, other) {
			return false
		}
	}
	return true
}

// fabricFailed notes that a connection over the session's fabric could not be made, or
// broke, if it was for a failure of the fabric, and has the link use another one if that happens too often and there is one.
func (c *conductor) fabricFailed(s *session, err error) {
	if !ofFabric(err) {
		return
	}
	l := s.link
	c.mu.Lock()
	if len(c.fabrics) < 2 || s.fabric == c.fabrics[len(c.fabrics)-1] || l.session != s || s.Reason() != nil {
		c.mu.Unlock()
		return
	}
	t := l.troubles[s.fabric.Name]
	if t == nil {
		t = new(trouble)
		l.troubles[s.fabric.Name] = t
	}
	leave := t.failed(time.Now())
	penalty := t.penalty
	c.mu.Unlock()
	if leave {
		event.FabricLeft.On(&c.log).Err(err).Str("peer", l.name).Str("provider", s.fabric.Name).Dur("for", penalty).Msg("leaving a fabric that keeps failing")
		s.end(fmt.Errorf("%w: %w", errFailover, err))
	}
}

// failback ends the session when a better fabric than its own is offered again that was not when
// it began. One that was offered is not waited for: the peer does not have it, or does not offer it yet.
func (l *link) failback(s *session) {
	c := l.conductor
	c.mu.Lock()
	var at time.Time
	withheld := false
	for _, f := range c.fabrics {
		if f == s.fabric {
			break
		}
		if t := l.troubles[f.Name]; t != nil && !slices.Contains(s.offered, f.Name) {
			withheld = true
			if t.until.After(at) {
				at = t.until
			}
		}
	}
	c.mu.Unlock()
	if !withheld {
		return
	}
	again := time.NewTimer(time.Until(at) + time.Millisecond) // at once if the handshake took that long
	defer again.Stop()
	select {
	case <-again.C:
		c.log.Info().Str("peer", l.name).Str("provider", s.fabric.Name).Msg("trying the better fabric again")
		s.end(errFailback)
	case <-s.done:
	case <-c.ctx.Done():
	}
}
