package agent

import (
	"github.com/rdmad/rdmad/internal/fabric"
	"github.com/rdmad/rdmad/slots"
)

// broken implements connectionEnd.
func (l *OutLane) broken(c *fabric.Completion) { l.Fail("connection lost", cause(l.End.Endpoint, c)) }

// violation implements connectionEnd: it ends a lane whose peer breaks the protocol, because what it says of the requests
// would be worth no more than its answers. A local lane goes on.
func (l *OutLane) violation(what string) {
	l.domain.agent.Count.ProtocolErrors++
	if l.End == nil {
		return
	}
	l.domain.agent.Count.LaneFailures++
	l.Row.Failures++
	l.Down(what)
	if l.OnBroken != nil {
		go l.OnBroken(laneError(what, slots.ErrProtocol))
	}
}

// Fail suspends the lane and tells the conductor.
func (l *OutLane) Fail(what string, err error) {
	if l.End == nil {
		return
	}
	l.domain.agent.Count.LaneFailures++
	l.Row.Failures++
	l.Suspend()
	if l.OnBroken != nil {
		go l.OnBroken(laneError(what, err))
	}
}

// Suspend closes the fabric side and lets everything else be: requests wait, those
// that were sent for what the peer will say of them (Resync), the others to be sent.
func (l *OutLane) Suspend() {
	if l.End != nil {
		l.End.close(l.domain.agent)
		l.End = nil
	}
	for _, i := range l.deferred {
		l.settle(i) // nothing can land in its slots any more
	}
	l.deferred = l.deferred[:0]
	for i := range l.journal {
		l.journal[i].wr = 0 // the next connection counts anew
	}
	l.resend = l.resend[:0]
}

// Down suspends the lane and gives every request in the ring an outcome: what was
// sent may have been executed, what was only published was not.
func (l *OutLane) Down(why string) {
	l.Closed.Store(1)
	l.Suspend()
	l.Mirror.Store(0)
	// SYNC POINT (lane closed): stored before the last look at the words; a
	// worker publishes before it looks at the state.
	l.Ring.SetState(slots.LaneClosed)
	for i := range l.journal {
		if l.journal[i].taken {
			l.outcome(i, slots.StatusMaybeExecuted, why)
		}
	}
	for i := range l.journal {
		if w := l.Ring.Word(i); w.State() == slots.Pub && l.Ring.CheckRun(i, w) == nil {
			var h slots.Header
			h.Decode(l.Ring.HeaderAt(i))
			l.refuse(i, w, h.Kind, slots.StatusNotExecuted, why)
		}
	}
	l.wakeUsers()
}

// IsClosed reports whether the lane is down, and not only suspended. Any goroutine may
// call it. The ring's state, which says so to workers, is theirs to write.
func (l *OutLane) IsClosed() bool { return l.Closed.Load() != 0 }

// Up connects the lane to a new endpoint.
func (l *OutLane) Up(p *LaneEndpoint) error {
	l.End = p
	l.Plan.SetUnordered(nil)
	if p.unordered {
		l.Plan.SetUnordered(l.landed)
	}
	if err := p.start(l.domain.agent, l); err != nil {
		l.Suspend()
		return err
	}
	l.Plan.Rescan()
	l.Draining = false
	l.Closed.Store(0)
	l.Ring.SetState(slots.LaneOpen)
	return nil
}
