package daemon

import (
	"github.com/rdmad/rdmad/internal/fabric"
	"github.com/rdmad/rdmad/slots"
)

// broken implements laneEnd.
func (l *outLane) broken(c *fabric.Completion) { l.fail("connection lost", cause(l.pair.ep, c)) }

// violation ends a lane whose peer breaks the protocol: what it says of the requests
// would be worth no more than its answers. A local lane goes on.
func (l *outLane) violation(what string) {
	l.domain.agent.count.ProtocolErrors++
	if l.pair == nil {
		return
	}
	l.domain.agent.count.LaneFailures++
	l.row.Failures++
	l.down(what)
	if l.onBroken != nil {
		go l.onBroken(laneError(what, slots.ErrProtocol))
	}
}

// fail suspends the lane and tells the conductor.
func (l *outLane) fail(what string, err error) {
	if l.pair == nil {
		return
	}
	l.domain.agent.count.LaneFailures++
	l.row.Failures++
	l.suspend()
	if l.onBroken != nil {
		go l.onBroken(laneError(what, err))
	}
}

// suspend closes the fabric side and lets everything else be: requests wait, those
// that were sent for what the peer will say of them (resync), the others to be sent.
func (l *outLane) suspend() {
	if l.pair != nil {
		l.pair.close(l.domain.agent)
		l.pair = nil
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

// down suspends the lane and gives every request in the ring an outcome: what was
// sent may have been executed, what was only published was not.
func (l *outLane) down(why string) {
	l.closed.Store(1)
	l.suspend()
	l.mirror.Store(0)
	// SYNC POINT (lane closed): stored before the last look at the words; a
	// worker publishes before it looks at the state.
	l.ring.SetState(slots.LaneClosed)
	for i := range l.journal {
		if l.journal[i].taken {
			l.outcome(i, slots.StatusMaybeExecuted, why)
		}
	}
	for i := range l.journal {
		if w := l.ring.Word(i); w.State() == slots.Pub && l.ring.CheckRun(i, w) == nil {
			var h slots.Header
			h.Decode(l.ring.HeaderAt(i))
			l.refuse(i, w, h.Kind, slots.StatusNotExecuted, why)
		}
	}
	l.wakeUsers()
}

// isClosed reports whether the lane is down, and not only suspended. Any goroutine may
// call it. The ring's state, which says so to workers, is theirs to write.
func (l *outLane) isClosed() bool { return l.closed.Load() != 0 }

// up connects the lane to a new endpoint.
func (l *outLane) up(p *endpointPair) error {
	l.pair = p
	l.plan.SetUnordered(nil)
	if p.unordered {
		l.plan.SetUnordered(l.landed)
	}
	if err := p.start(l.domain.agent, l); err != nil {
		l.suspend()
		return err
	}
	l.plan.Rescan()
	l.draining = false
	l.closed.Store(0)
	l.ring.SetState(slots.LaneOpen)
	return nil
}
