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

// looksOnMore is in how many more cycles nothing must have completed before a connection is taken to be dead. Commands come before
// the completions of their cycle, and a busy agent looks for events at every lookEvery-th cycle only, for some tens of descriptors each
// time: after a freeze of the whole process the time is over, and all that has completed meanwhile is still to be looked at. Each of
// these cycles is a busy one.
const looksOnMore = 16*lookEvery + 1

// LookAgain ends a connection on which nothing has completed since watch.
func (m *mover) LookAgain() { m.lookAgain(looksOnMore) }

// lookAgain is LookAgain that looks in so many more cycles before it believes that nothing has completed.
func (m *mover) lookAgain(more int) {
	e, same := m.End, m.End == m.watched
	stands := e != nil && same && e.done == m.doneThen && e.next != e.done
	if stands && more > 0 && m.domain.agent.Commands.Do(func() { m.lookAgain(more - 1) }) {
		return
	}
	m.watching, m.watched = false, nil
	switch {
	case e == nil:
	case stands:
		m.Broken(fmt.Errorf("none of %d operations on regions under way was completed within %v", e.next-e.done, StandsStillAfter))
	default:
		m.watch()
	}
}
