package daemon

import (
	"fmt"

	"github.com/rdmad/rdmad/internal/attach"
)

// askPlaces is how many places there are for the questions of a worker, which may have attach.MaxAsks. An answer is with it a moment before
// its place is free, if who has answered does not run just then, and it may ask the next question meanwhile.
const askPlaces = attach.MaxAsks + attach.MaxAsks/4

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

// takePlace takes one of the places in which what a worker says is dealt with beside what it says next, a few more than it may have
// questions. Who has dealt with it gives it back, and waits for nobody between its answer and that.
func (w *worker) takePlace() error {
	select {
	case w.asks <- struct{}{}:
		return nil
	default:
		return fmt.Errorf("%w: many more than %d questions at once", attach.ErrLimit, attach.MaxAsks)
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
	w.askMu.Lock()
	defer w.askMu.Unlock()
	if w.asking[seq] {
		return false
	}
	w.asking[seq] = true
	return true
}

func (w *worker) answered(seq uint64) {
	w.askMu.Lock()
	delete(w.asking, seq)
	w.askMu.Unlock()
}

// putOff tells the worker to ask again later, in the place that the question has. However many it does so for, one goroutine of each
// worker has to wait for it to read.
func (c *conductor) putOff(w *worker, seq uint64, why error) error {
	w.askMu.Lock()
	w.later = append(w.later, seq)
	first := len(w.later) == 1
	w.askMu.Unlock()
	if !first {
		return nil
	}
	return c.beside(func() {
		for more := true; more; {
			w.askMu.Lock()
			seq := w.later[0]
			w.askMu.Unlock()
			w.reply(&attach.Message{Type: attach.TypeFail, Seq: seq, Fail: attach.FailFor(why)})
			w.askMu.Lock()
			w.later = w.later[1:]
			more = len(w.later) > 0
			w.askMu.Unlock()
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
