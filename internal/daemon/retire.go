package daemon

import "github.com/rdmad/rdmad/slots"

// ending is a connection of a lane that ends with its domain's memory.
type ending struct {
	conn     opening
	lane     uint16
	incoming bool
}

// retire ends what is under way in a domain whose memory is given up, so that every
// request of this node has an outcome, and every one of a peer an answer that is about to
// be sent. Nothing that is answered is lost, what no handler has started is not executed.
// The agent goes on with the domain until cutOff.
func (d *agentDomain) retire(why string) (ends []ending) {
	d.retired = true
	d.strikes = strikeRules{}
	for _, w := range d.present {
		d.collectAll(w)
		w.ops = nil
	}
	d.abandon(func(*agentOp) bool { return true }, slots.OpExpired)
	for _, m := range d.methods {
		if m != nil {
			m.workers, m.inline, m.handle = nil, nil, nil
			d.refuseQueue(m)
		}
	}
	for _, l := range d.inLanes {
		l.giveBack(why)
		l.onQuiet, l.onBroken = nil, nil
		for range l.geo.Slots {
			if l.answers.Pending() == 0 || l.send() == 0 {
				break
			}
		}
	}
	for _, l := range d.outLanes {
		if l.pair != nil {
			ends = append(ends, ending{l.pair.opening, l.id, false})
		}
		l.onBroken = nil
		l.down(why)
	}
	return ends
}

// giveBack answers the requests that no handler has finished.
func (l *inLane) giveBack(why string) {
	for i := range l.records {
		rec := &l.records[i]
		if !rec.active {
			continue
		}
		if g := rec.grants; g != nil && g.dying {
			continue // its handler had it, and is dead: operated comes back to it
		}
		if rec.worker == 0 || l.ring.Withdraw(i, l.ring.AnswerWord(i)) {
			l.refuse(i, slots.StatusNotExecuted, why)
			continue
		}
		if g := rec.grants; g != nil && g.die() {
			l.unassign(i) // operated comes back to it
			continue
		}
		l.domain.agent.count.MaybeExecuted++
		l.refuse(i, slots.StatusMaybeExecuted, why)
	}
}

// flushed reports whether the answers of a retired domain are on their way.
func (d *agentDomain) flushed() bool {
	for _, l := range d.inLanes {
		if p := l.pair; p != nil && (l.answers.Pending() > 0 || len(p.wrs) > 0 || p.done+1 < p.next) {
			return false
		}
	}
	return true
}

// cutOff closes what a retired domain has with peers, and makes its agent forget it:
// after that the agent looks at no memory of a lane of it.
func (d *agentDomain) cutOff() (ends []ending) {
	for _, p := range d.peers {
		p.suspend(d)
		p.forget()
	}
	d.abandon(func(*agentOp) bool { return true }, slots.OpExpired)
	for _, l := range d.inLanes {
		if l.pair != nil {
			ends = append(ends, ending{l.pair.opening, l.id, true})
		}
		l.suspend()
		for i := range l.records {
			if g := l.records[i].grants; g != nil {
				l.records[i].grants = nil
				g.close()
			}
		}
	}
	d.uncount()
	d.outs, d.ins = [slots.MaxLanes]*outLane{}, [slots.MaxLanes]*inLane{}
	d.outLanes, d.inLanes, d.againOut, d.againIn, d.freed = nil, nil, nil, nil, nil
	d.delayed, d.due, d.tracer = nil, 0, nil
	d.touched, d.completed, d.againOps, d.againWorkers = nil, nil, nil, nil
	d.looks.later = nil
	d.agent.domains = without(d.agent.domains, d)
	return ends
}
