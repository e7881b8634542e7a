package agent

import (
	"time"

	"github.com/rdmad/rdmad/shm"
	"github.com/rdmad/rdmad/slots"
)

const (
	// handleMost and handleTime bound what an agent handles in one cycle: answers are sent at
	// its end, and everybody else waits for it. The time is looked at every handleLook
	// requests.
	handleMost = 1024
	handleTime = 100 * time.Microsecond
	handleLook = 16
)

// handleSoon handles requests whose handlers run on this thread, and returns how many.
func (d *Domain) handleSoon() (n int) {
	if d.soon.len() == 0 {
		return 0
	}
	back := false
	defer func() {
		if !back {
			// The handler has called runtime.Goexit, which nothing stops: the agent goes
			// on on another goroutine, and another thread.
			d.agent.life.Go(d.agent.run)
		}
	}()
	until := shm.Nanotime() + int64(handleTime)
	for d.soon.len() > 0 && n < handleMost {
		if n++; n%handleLook == 0 && shm.Nanotime() > until {
			break
		}
		r := d.soon.oldest()
		d.soon.drop() // before a handler that does not return
		if r.waits() {
			r.lane.handle(r.index)
		}
	}
	if d.soon.len() == 0 {
		d.soon.clear()
	}
	back = true
	return n
}

// handle has the request in slot i handled by the tenant of its method, or dispatches it like
// any other if that has left. The slot words and records say what they say when a process has a
// request: the next core, should this one end inside the handler, knows that it has begun.
func (l *InLane) handle(i int) {
	rec := &l.records[i]
	m := l.domain.Method(rec.method)
	if m == nil || m.Inline == nil || !m.Inline.hasMapped(l.id) {
		rec.alone = false
		l.dispatch(i)
		l.later() // it may have been refused
		return
	}
	w := m.Inline
	l.Ring.Deliver(i, int(rec.run), w.ID, rec.ticket)
	l.assign(i, w)
	l.countWait(rec)
	w.outstanding++
	h := slots.MakeHint(l.id, i, rec.ticket)
	m.Handle(h)
	if !l.finished(i, w) {
		// It has not taken it: its own threads do if they can.
		w.scan = !l.domain.hint(w, h) || w.scan
	}
}

// LeaveInline ends the handling of requests for w by the agent.
func (d *Domain) LeaveInline(w *Worker) {
	for _, m := range d.methods {
		if m != nil && m.Inline == w {
			m.Inline, m.Handle = nil, nil
		}
	}
}
