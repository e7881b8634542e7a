package daemon

import (
	"fmt"

	"github.com/rdmad/rdmad/internal/attach"
)

// ask begins with a question of a worker. While another one of its waits it takes room of its domain, and if there is none the worker
// is told to ask again later.
func (c *conductor) ask(w *worker, m *attach.Message) error {
	if !w.begins(m.Seq) {
		return nil // asked again after a core's death; the first one is being answered
	}
	if err := w.takePlace(); err != nil {
		return err
	}
	leave := func() {
		w.answered(m.Seq)
		<-w.asks
	}
	if len(w.asks) > 1 {
		name := w.domain.name
		if err := c.askRoom.take(name, len(c.cfg.Domains)); err != nil {
			return c.putOff(w, m.Seq, err)
		}
		leave = func() {
			c.askRoom.leave(name)
			w.answered(m.Seq)
			<-w.asks
		}
	}
	return c.beside(func() {
		defer leave()
		c.answer(w, m)
	})
}

// takePlace takes one of the places in which what a worker says is dealt with beside what it says next, as many as it may have
// questions. Who has dealt with it gives it back.
func (w *worker) takePlace() error {
	select {
	case w.asks <- struct{}{}:
		return nil
	default:
		return fmt.Errorf("%w: more than %d questions at once", attach.ErrLimit, attach.MaxAsks)
	}
}

// beside does something that a worker has said beside what it says next.
func (c *conductor) beside(f func()) error {
	if !c.spawn(f) {
		return fmt.Errorf("%w: node %s is stopping", attach.ErrClosed, c.node)
	}
	return nil
}

// begins notes that a question is being answered, and returns false if it is already.
// Only a worker that has seen another core take over asks twice.
func (w *worker) begins(seq uint64) bool {
	if !w.adopted {
		return true
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.asking[seq] {
		return false
	}
	w.asking[seq] = true
	return true
}

func (w *worker) answered(seq uint64) {
	w.mu.Lock()
	delete(w.asking, seq)
	w.mu.Unlock()
}

// putOff tells the worker to ask again later, in the place that the question has. However many it does so for, one goroutine of each
// worker has to wait for it to read.
func (c *conductor) putOff(w *worker, seq uint64, why error) error {
	w.mu.Lock()
	w.later = append(w.later, seq)
	first := len(w.later) == 1
	w.mu.Unlock()
	if !first {
		return nil
	}
	return c.beside(func() {
		for more := true; more; {
			w.mu.Lock()
			seq := w.later[0]
			w.mu.Unlock()
			w.reply(&attach.Message{Type: attach.TypeFail, Seq: seq, Fail: attach.FailFor(why)})
			w.mu.Lock()
			w.later = w.later[1:]
			more = len(w.later) > 0
			w.mu.Unlock()
			w.answered(seq)
			<-w.asks
		}
	})
}

// reply sends an answer.
func (w *worker) reply(a *attach.Message) {
	if err := w.conn.Send(a); err != nil {
		w.domain.conductor.log.Debug().Err(err).Int("worker", w.id).Msg("answer not sent")
		w.untold(err) // whoever has asked would wait for ever
	}
}
