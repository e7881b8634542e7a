package agent

import (
	"slices"

	"github.com/rdmad/rdmad/shm"
	"github.com/rdmad/rdmad/slots"
)

// When a connection for operations is lost, nobody knows which of the work requests under
// way were done. Reads and writes are done again, over the next connection: the same bytes
// go to the same place, and the call that they are for is not answered yet. An atomic
// operation is never done twice: one that may have been done ends as lost.
//
// Until the next connection is up, what was handed to the last one is loose: a peer that stands
// still, or is slow, may still take it from there. Only then is it certain that nothing happens
// any more: the peer closes its end of the old connection before it accepts another. So an operation
// with something loose has no result before, whether it was given up or not: what its handler says
// thereafter must find a region that does not change. The end of the session ends the wait, too: what the
// handler says goes by the next one, before which the peer has closed everything of the last.

// redoLimit is how often a work request is done again while the link lives. A link that
// was lost counts for nothing: then it was not the request's fault.
const redoLimit = 3

// Broken ends a connection that has failed while the link lives.
func (m *mover) Broken(err error) {
	onBroken := m.End.OnBroken
	m.domain.agent.Count.RegionLinkFailures++
	m.fail()
	exhausted := false
	for i := range m.redo {
		p := &m.redo[i]
		if p.tries++; p.tries > redoLimit && p.op.status == slots.OpOK {
			p.op.status = slots.OpLost
			exhausted = true
		}
	}
	if exhausted {
		m.abandon(func(o *operation) bool { return o.status == slots.OpLost }, slots.OpLost)
	}
	if onBroken != nil {
		go onBroken(err)
	}
}

// fail closes the connection and keeps what was under way.
func (m *mover) fail() {
	e := m.End
	if e == nil {
		return
	}
	m.End = nil
	e.Close()
	m.unpark()
	m.redo = append(e.drop(), m.redo...)
}

// suspend closes the connection, and keeps another one from being opened, until resume.
func (m *mover) suspend() {
	m.suspended, m.opening = true, false // Connected will find it so
	m.fail()
	for i := range m.redo {
		m.redo[i].tries, m.redo[i].loose = 0, false
	}
	for _, o := range m.abandonRedo(func(o *operation) bool { return o.status != slots.OpOK }, slots.OpLost) {
		m.domain.complete(o)
	}
	m.loseHeart()
}

// loseHeart gives up all that waits, if nothing of it has completed for longer than there is patience while one session after the
// other has ended: every other bound is for one session, and a peer that makes a new one each time would keep what its calls have of
// a service for ever. All of it is certain not to happen any more.
func (m *mover) loseHeart() {
	switch now := shm.Nanotime(); {
	case !m.waiting():
		m.barren = 0
	case m.barren == 0:
		m.barren = now
	case m.Patience != nil && now-m.barren > int64(m.Patience()):
		m.barren = 0
		m.abandon(func(*operation) bool { return true }, slots.OpLost)
	}
}

// Uncertain reports whether the peer may still do something of what was under way on a connection
// that is lost. If there is to be no other one, the session must end.
func (m *mover) Uncertain() bool {
	return m.End == nil && slices.ContainsFunc(m.redo, func(p bulkPost) bool { return p.loose })
}

// resume lets operations go on. The connection is opened when one needs it, or at once
// if that is expected soon.
func (m *mover) resume(soon bool) {
	m.suspended = false
	if soon || m.busy() {
		m.open()
	}
}

// again posts what there is room for of what was under way on the last connection, and
// returns how much. What is left in redo waits for completions, or for memory to be
// registered.
func (m *mover) again() (work int) {
	n := 0
	for ; n < len(m.redo) && m.End.room(); n++ {
		p := &m.redo[n]
		o := p.op
		if o.kind.Atomic() && o.status == slots.OpOK {
			switch {
			case p.sent:
				o.status = slots.OpLost
			case !m.End.Atomics:
				o.status = slots.OpUnsupported
			}
		}
		if o.status != slots.OpOK {
			if m.drop(p) {
				m.domain.complete(o)
			}
			work++
			continue
		}
		if !m.End.post(m, p) {
			break
		}
		work++
	}
	m.redo = m.redo[:copy(m.redo, m.redo[n:])]
	return work
}

// redoes reports whether something of o is to be done again with the local memory r.
func (m *mover) redoes(o *operation, r *Region) bool {
	for i := range m.redo {
		if p := &m.redo[i]; p.op == o && p.local == r {
			return true
		}
	}
	return false
}

// drop gives up a work request that was to be done again. True: nothing else is left of its operation.
func (m *mover) drop(p *bulkPost) (last bool) {
	if p.local != nil {
		p.local.release()
	}
	p.op.posted--
	return p.op.done && p.op.posted == 0
}

// abandonRedo drops what was to be done again of the operations that match, but for what is
// loose, and returns those of which nothing else is left.
func (m *mover) abandonRedo(match func(*operation) bool, status slots.OpStatus) (ended []*operation) {
	dropped := 0
	// All are looked at before the first is dropped: match may look at redo.
	for i := range m.redo {
		if m.redo[i].abandoned = match(m.redo[i].op); m.redo[i].abandoned {
			dropped++
		}
	}
	if dropped == 0 {
		return nil
	}
	kept := m.redo[:0]
	for _, p := range m.redo {
		if p.abandoned && p.op.status == slots.OpOK {
			p.op.status = status
		}
		switch {
		case !p.abandoned || p.loose && m.End == nil:
			kept = append(kept, p)
		case m.drop(&p):
			ended = append(ended, p.op)
		}
	}
	clear(m.redo[len(kept):])
	m.redo = kept
	return ended
}
