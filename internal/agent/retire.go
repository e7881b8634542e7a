package agent

import (
	"fmt"

	"github.com/rdmad/rdmad/internal/attach"
	"github.com/rdmad/rdmad/slots"
)

// Ending is a connection of a lane that ends with its domain's memory.
type Ending struct {
	Conn     Opening
	Lane     uint16
	Incoming bool
}

// Retire ends what is under way in a domain whose memory is given up, so that every
// request of this node has an outcome, and every one of a peer an answer that is about to
// be sent. Nothing that is answered is lost, what no handler has started is not executed.
// The agent goes on with the domain until CutOff.
func (d *Domain) Retire(why string) (ends []Ending) {
	d.Retired = true
	d.Strikes = StrikeRules{}
	for _, w := range d.present {
		d.collectAll(w)
		w.Ops = nil
	}
	d.abandon(func(*operation) bool { return true }, slots.OpExpired)
	for _, m := range d.methods {
		if m != nil {
			for _, w := range m.workers {
				w.served = nil
			}
			m.workers, m.Inline, m.Handle = nil, nil, nil
			d.refuseQueue(m)
		}
	}
	for _, l := range d.InLanes {
		l.giveBack(why)
		l.OnQuiet, l.OnBroken = nil, nil
		for range l.geo.Slots {
			if l.answers.Pending() == 0 || l.Send() == 0 {
				break
			}
		}
	}
	for _, l := range d.OutLanes {
		if l.End != nil {
			ends = append(ends, Ending{l.End.Opening, l.id, false})
		}
		l.OnBroken = nil
		l.Down(why)
	}
	return ends
}

// giveBack answers the requests that no handler has finished.
func (l *InLane) giveBack(why string) {
	for i := range l.records {
		rec := &l.records[i]
		if !rec.active {
			continue
		}
		if g := rec.grants; g != nil && g.dying {
			continue // its handler had it, and is dead: operated comes back to it
		}
		if rec.worker == 0 || l.Ring.Withdraw(i, l.Ring.AnswerWord(i)) {
			l.refuse(i, slots.StatusNotExecuted, why)
			continue
		}
		if g := rec.grants; g != nil && g.die() {
			l.unassign(i) // operated comes back to it
			continue
		}
		l.domain.agent.Count.MaybeExecuted++
		l.refuse(i, slots.StatusMaybeExecuted, why)
	}
}

// Flushed reports whether the answers of a retired domain are on their way.
func (d *Domain) Flushed() bool {
	for _, l := range d.InLanes {
		if p := l.End; p != nil && (l.answers.Pending() > 0 || p.underWay()) {
			return false
		}
	}
	return true
}

// CutOff closes what a retired domain has with peers, and makes its agent forget it:
// after that the agent looks at no memory of a lane of it.
func (d *Domain) CutOff() (ends []Ending) {
	for _, p := range d.Peers {
		p.Suspend(d)
		p.Forget()
	}
	d.abandon(func(*operation) bool { return true }, slots.OpExpired)
	for _, l := range d.InLanes {
		if l.End != nil {
			ends = append(ends, Ending{l.End.Opening, l.id, true})
		}
		l.Suspend()
		for i := range l.records {
			if g := l.records[i].grants; g != nil {
				l.records[i].grants = nil
				g.close()
			}
		}
	}
	d.uncount()
	d.outs, d.ins = [slots.MaxLanes]*OutLane{}, [slots.MaxLanes]*InLane{}
	d.OutLanes, d.InLanes, d.againOut, d.againIn, d.freed = nil, nil, nil, nil, nil
	d.delayed, d.due, d.Tracer = nil, 0, nil
	d.touched, d.completed, d.againWorkers = nil, nil, nil
	d.Looks.Later = nil
	d.agent.Domains = Without(d.agent.Domains, d)
	return ends
}

// ErrRetired is returned for what was begun in memory that is given up.
var ErrRetired = fmt.Errorf("%w: the domain gets new memory", attach.ErrClosed)
