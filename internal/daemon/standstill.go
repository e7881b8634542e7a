package daemon

import (
	"fmt"
	"time"
)

// standsStillAfter is how long operations may be under way to a peer without one of them completing, at least: more
// than its supervisor gives a core that hangs, as node.hang_limit is unless it is set. The kernel of a node
// that stands still keeps its connections, callers' deadlines do not end operations, and what these take of a service
// is taken from all its callers.
const standsStillAfter = 30 * time.Second

// watch sees to it that there is a look at the connection later, if something is under way on it.
func (m *mover) watch() {
	if m.watching || m.later == nil || m.end.next == m.end.done {
		return
	}
	m.watching, m.watched, m.doneThen = m.later(), m.end, m.end.done
}

// lookAgain ends a connection on which nothing has completed since watch.
func (m *mover) lookAgain() {
	e, same := m.end, m.end == m.watched
	m.watching, m.watched = false, nil
	switch {
	case e == nil:
	case same && e.done == m.doneThen && e.next != e.done:
		m.broken(fmt.Errorf("none of %d operations on regions under way was completed within %v", e.next-e.done, standsStillAfter))
	default:
		m.watch()
	}
}

// lookLater has the agent look whether operations under way get on, after a while.
func (b *bulk) lookLater() {
	late := time.NewTimer(max(b.domain.conductor.live().Node.LinkHold, standsStillAfter))
	defer late.Stop()
	select {
	case <-late.C:
		b.domain.agent.commands.call(b.view.mover.lookAgain)
	case <-b.domain.conductor.ctx.Done():
	}
}
