package daemon

import (
	"fmt"

	"github.com/rdmad/rdmad/internal/peerproto"
	"github.com/rdmad/rdmad/slots"
)

// foundTrace is what an agent has found.
type foundTrace struct {
	sent sentTrace
	// device is what the endpoint says of itself, lane the lane's id, node the one at its
	// other end, "" for this one.
	device string
	lane   uint16
	node   string
	// near is what is known of the other end of a local lane; nil for another.
	near *peerproto.Stage
}

// found returns a copy of an entry, with what goes with it.
func (t *tracer) found(e *sentTrace) foundTrace {
	f := foundTrace{sent: *e, lane: e.lane.id, node: e.lane.peerName()}
	if p := e.lane.pair; p != nil {
		f.device = describe(p.ep)
	}
	if e.lane.local != nil {
		if h := t.find(e.mark); h != nil {
			b := h.stages(e.end(true))
			f.near = &b
		}
	}
	f.sent.lane = nil // the agent's
	return f
}

// outcomes are the words for how a request has ended.
var outcomes = map[slots.Status]string{
	slots.StatusOK: "answered", slots.StatusRemote: "remote error", slots.StatusNoService: "no such service",
	slots.StatusTooLarge: "answer too large", slots.StatusDeadline: "deadline passed", slots.StatusNotExecuted: "not executed",
	slots.StatusMaybeExecuted: "may have been executed", slots.StatusInvalid: "invalid request", slots.StatusNotExported: "region not exported",
}

// outcome returns the word for how the request has ended.
func (e *sentTrace) outcome() string {
	switch {
	case e.arrived == 0 && e.settled == 0:
		return "under way"
	case e.arrived == 0:
		return "ended by this daemon"
	}
	if s, ok := outcomes[e.answer.Status]; ok {
		return s
	}
	return fmt.Sprintf("status %d", e.answer.Status)
}

// kind returns the word for what it is.
func (e *sentTrace) kind() string {
	switch {
	case e.header.Flags&slots.FlagPart != 0:
		return "part"
	case e.header.Kind == slots.KindOneWay:
		return "one-way"
	}
	return "request"
}
