package agent

import (
	"fmt"
	"time"
)

// StandsStillAfter is how long operations may be under way to a peer without one of them completing, at least: more
// than its supervisor gives a core that hangs, as node.hang_limit is unless it is set. The kernel of a node
// that stands still keeps its connections, callers' deadlines do not end operations, and what these take of a service
// is taken from all its callers.
const StandsStillAfter = 30 * time.Second

// watch sees to it that there is a look at the connection later, if something is under way on it.
func (m *mover) watch() {
	if m.watching || m.Later == nil || m.End.next == m.End.done {
		return
	}
	m.watching, m.watched, m.doneThen = m.Later(), m.End, m.End.done
}

// LookAgain ends a connection on which nothing has completed since watch.
func (m *mover) LookAgain() {
	e, same := m.End, m.End == m.watched
	m.watching, m.watched = false, nil
	switch {
	case e == nil:
	case same && e.done == m.doneThen && e.next != e.done:
		m.Broken(fmt.Errorf("none of %d operations on regions under way was completed within %v", e.next-e.done, StandsStillAfter))
	default:
		m.watch()
	}
}
