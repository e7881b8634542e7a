package client

import (
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/rdmad/rdmad/slots"
)

// spills are answers that the daemon has sent because this process did not take them:
// it has moved them out of their slots, or is about to. Each is there until the leader
// has looked for its future. They are private memory.
type spills struct {
	// any says that there are some.
	any atomic.Bool
	// mu also keeps deliver away from a future that is held for a moment, because its
	// request may be taken back.
	mu      sync.Mutex
	answers map[spillKey]slots.Spilled
	// strays are the futures whose place in their lane's table is another request's by
	// now: the daemon has moved their answers, which are on their way.
	strays map[spillKey]*Future
}

// spillKey names a request.
type spillKey struct {
	lane   uint16
	index  int
	ticket uint64
}

func keyOf(f *Future) spillKey { return spillKey{f.lane.id, f.run.Index, f.run.Ticket} }

// evict makes room for a request in slot i of the table, in which there is another one:
// the daemon has freed its slots, or somebody holds it. It is done when nobody does.
func (l *lane) evict(i int) {
	s := &l.conn.spills
	for c := &l.calls[i]; c.ticket.Load() != noCall; runtime.Gosched() {
		s.mu.Lock()
		if t, ok := l.outstanding(i); ok {
			if f := l.take(i, t); f != nil {
				if s.strays == nil {
					s.strays = make(map[spillKey]*Future)
				}
				s.strays[keyOf(f)] = f
			}
		}
		s.mu.Unlock()
	}
}

// retract takes the future of a request that was not published out of the table, or from among the
// strays: who has got its slots since has evicted it. It reports whether nobody has completed it.
func (l *lane) retract(u slots.Run) bool {
	s := &l.conn.spills
	s.mu.Lock() // somebody may hold the future, and let it go again
	defer s.mu.Unlock()
	key := spillKey{l.id, u.Index, u.Ticket}
	_, evicted := s.strays[key]
	delete(s.strays, key)
	return evicted || l.take(u.Index, u.Ticket) != nil
}

// stray reports whether the future is out of its lane's table and waits for its answer,
// which is on its way. mu is held.
func (s *spills) stray(f *Future) bool { return s.strays[keyOf(f)] == f }

// spilled is told of spilled answers by the session. The leader delivers them, or this
// goroutine if there is none.
func (c *Conn) spilled(answers []slots.Spilled) {
	s, n := &c.spills, 0
	s.mu.Lock()
	for _, a := range answers {
		if l := c.lanes[a.Lane].Load(); l == nil || a.Run.Index >= len(l.calls) {
			continue
		}
		if s.answers == nil {
			s.answers = make(map[spillKey]slots.Spilled)
		}
		s.answers[spillKey{a.Lane, a.Run.Index, a.Run.Ticket}] = a
		n++
	}
	if n > 0 {
		s.any.Store(true)
	}
	s.mu.Unlock()
	// Close must wait for who frees slots: it says that this process touches none any more. When the gate is
	// shut, Close delivers.
	if n > 0 && c.gate.enter() {
		c.wait.recheck()
		c.wait.reapIfFree()
		c.gate.leave()
	}
}

// deliver completes the futures of spilled answers, and drops those that were read
// from their slots in the meantime. Only the holder of lead may call it; wakeFree must
// follow.
func (w *waiting) deliver() (completed int) {
	s := &w.conn.spills
	if !s.any.Load() {
		return 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.any.Store(false)
	for key := range s.answers {
		if f := s.strays[key]; f != nil {
			delete(s.strays, key)
			f.finishMoved()
			completed++
			continue
		}
		l := w.conn.lanes[key.lane].Load()
		if f := l.take(key.index, key.ticket); f != nil {
			if l.ring.Acquire(f.run, w.conn.id) {
				// The daemon has not moved it yet, and will not: the slots are
				// this process's to free.
				w.frees(l, f.run.Len)
				l.ring.Consume(f.run)
			}
			f.finishMoved()
			completed++
		}
	}
	clear(s.answers)
	return completed
}

// has reports whether the future's answer is among the spilled ones. mu is held.
func (s *spills) has(f *Future) bool {
	_, ok := s.answers[keyOf(f)]
	return ok
}

// finishMoved completes a future whose answer was spilled. The caller has taken f out
// of the lane's table and holds spills.mu.
func (f *Future) finishMoved() {
	a := f.m.conn.spills.answers[keyOf(f)]
	f.moved = true
	// Checked as if it came from the slots: other processes of the domain could
	// write there.
	if err := a.Header.CheckAnswer(f.lane.ring.Geometry(), f.run.Len, f.run.Ticket); err != nil {
		f.end(nil, f.corrupt(err))
		return
	}
	f.end(f.judge(&a.Header, a.Payload))
}
