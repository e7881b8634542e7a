package agent

import "slices"

// turns are the requests for a method that wait in this daemon, because the processes
// of the service have enough to do. The callers take turns, by deficit round robin:
// each may have as many bytes of slots as any other, however many requests it sends
// and however large they are. It belongs to the agent.
type turns struct {
	callers map[caller]*line
	// order are the callers whose requests wait; the first one's turn it is.
	order []*line
	n     int // requests
	// sweepAt is with how many of them those are dropped that wait no more.
	sweepAt int
	spare   []*line
	// last is the line that was found last, nil for none: requests of one caller often come
	// one after the other, and the table costs more than all else that is done here.
	last *line
}

// caller is a process that makes requests: the lane by which they come and its
// attach id at the other end.
type caller struct {
	lane *InLane
	id   uint16
}

// line is the requests of one caller that wait.
type line struct {
	caller
	fifo
	// deficit is how many bytes it may still have in this turn. If the turn ended
	// because it was full, it goes on with the rest of it.
	deficit int
	full    bool
}

// caller returns who makes the request.
func (r Queued) caller() caller { return caller{r.lane, r.lane.records[r.index].from} }

// turnBytes is what a caller may have more in each turn: a few small messages. A
// request that is larger waits for some turns.
const turnBytes = 1024

// verdict says what has become of a request that was to be handed on.
type verdict int

const (
	given verdict = iota // a process has it
	gone                 // it needs none any more
	full                 // no process has room for this caller
)

// add puts a request at the end of its caller's line.
func (q *turns) add(r Queued) {
	c := r.caller()
	l := q.find(c)
	if l == nil {
		if q.callers == nil {
			q.callers = make(map[caller]*line)
		}
		if n := len(q.spare); n > 0 {
			l, q.spare = q.spare[n-1], q.spare[:n-1]
		} else {
			l = new(line)
		}
		l.caller, l.deficit, l.full = c, 0, false
		q.callers[c], q.last = l, l
		q.order = append(q.order, l)
	}
	l.add(r)
	q.n++
}

// find returns the line of the caller, or nil.
func (q *turns) find(c caller) *line {
	if l := q.last; l != nil && l.caller == c {
		return l
	}
	l := q.callers[c]
	if l != nil {
		q.last = l
	}
	return l
}

// has reports whether requests of the caller wait.
func (q *turns) has(c caller) bool { return q.n > 0 && q.find(c) != nil }

// drain hands requests on, turn by turn, until nothing is left that hand takes.
func (q *turns) drain(hand func(Queued) verdict) {
	idle := 0 // turns since something was handed on, or waited for a larger deficit
	for len(q.order) > 0 && idle < len(q.order) {
		l := q.order[0]
		if !l.full {
			l.deficit += turnBytes
		}
		before := l.len()
		more := l.drain(hand, true)
		q.n -= before - l.len()
		if l.full {
			break
		}
		if idle++; more || l.len() < before {
			idle = 0
		}
		q.order = append(q.order[:0], q.order[1:]...)
		if l.len() == 0 {
			q.end(l)
		} else {
			q.order = append(q.order, l)
		}
	}
	if len(q.order) == 0 || !q.order[0].full {
		return
	}
	// The first one's turn goes on when there is room. Others may have some even so,
	// which they pay for in their next turn.
	for i := 1; i < len(q.order); i++ {
		l := q.order[i]
		before := l.len()
		l.drain(hand, false)
		l.full = false
		q.n -= before - l.len()
		if l.len() == 0 {
			q.end(l)
			q.order = append(q.order[:i], q.order[i+1:]...)
			i--
		}
	}
}

// drain hands requests of one caller on, until one is larger than what is left of its
// turn, which more says, or there is no room, which full says. Out of its turn only
// room counts.
func (l *line) drain(hand func(Queued) verdict, turn bool) (more bool) {
	l.full = false
	for l.len() > 0 {
		r := l.oldest()
		cost := r.lane.cost(r.index)
		if turn && cost > l.deficit {
			return true
		}
		switch hand(r) {
		case given:
			l.deficit -= cost
		case full:
			l.full = true
			return false
		case gone:
		}
		l.drop()
	}
	return false
}

// end forgets a caller of whom nothing waits, and what is left of its turn.
func (q *turns) end(l *line) {
	delete(q.callers, l.caller)
	if q.last == l {
		q.last = nil
	}
	l.caller = caller{}
	l.clear()
	q.spare = append(q.spare, l)
}

// forget drops the requests of a lane.
func (q *turns) forget(lane *InLane) {
	q.order = slices.DeleteFunc(q.order, func(l *line) bool {
		if l.lane != lane {
			return false
		}
		q.n -= l.len()
		q.end(l)
		return true
	})
}

// sweep is fifo.sweep for all lines.
func (q *turns) sweep() {
	q.n = 0
	q.order = slices.DeleteFunc(q.order, func(l *line) bool {
		l.sweep()
		q.n += l.len()
		if l.len() > 0 {
			return false
		}
		q.end(l)
		return true
	})
	q.sweepAt = max(minSweep, 2*q.n)
}

// cost is what the request in slot i counts for, in bytes.
func (l *InLane) cost(i int) int { return int(l.records[i].run) * l.geo.SlotSize }

// mustWait decides whether the request in slot i of l must wait for its caller's turn
// rather than go to w, and if so lets it.
func (m *Method) mustWait(i int, l *InLane, w *Worker) bool {
	r := Queued{l, i, l.records[i].ticket}
	c := r.caller()
	m.crowd.note(c, l.domain.now)
	if !m.turns.has(c) && m.room(w, c, l.domain) {
		return false
	}
	l.domain.agent.Count.Queued++
	if m.turns.n >= m.turns.sweepAt {
		m.turns.sweep()
	}
	m.turns.add(r)
	return true
}

// takeTurns hands on requests that waited for their callers' turns. Methods take turns
// in being the first.
func (d *Domain) takeTurns() {
	n := len(d.methods)
	d.firstMethod++
	for k := range n {
		if m := d.methods[(d.firstMethod+k)%n]; m != nil && m.turns.n > 0 {
			d.draining = m
			m.turns.drain(d.onTurn)
		}
	}
}

// handOn dispatches a request whose turn it is, of the method that is being drained.
func (d *Domain) handOn(r Queued) verdict {
	m := d.draining
	if !r.waits() {
		return gone // answered otherwise meanwhile
	}
	if w := m.pick(r.lane.id); w != nil && m.room(w, r.caller(), d) && r.lane.give(r.index, w) {
		return given
	}
	return full
}
