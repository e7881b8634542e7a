package agent

import (
	"fmt"

	"github.com/rdmad/rdmad/internal/peerproto"
	"github.com/rdmad/rdmad/shm"
	"github.com/rdmad/rdmad/slots"
)

// FoundTrace is what an agent has found.
type FoundTrace struct {
	Sent SentTrace
	// Device is what the endpoint says of itself, Lane the lane's id, Node the one at its
	// other end, "" for this one.
	Device string
	Lane   uint16
	Node   string
	// Near is what is known of the other end of a local lane; nil for another.
	Near *peerproto.Stage
}

// Found returns a copy of an entry, with what goes with it.
func (t *Tracer) Found(e *SentTrace) FoundTrace {
	f := FoundTrace{Sent: *e, Lane: e.lane.id, Node: e.lane.peerName()}
	if p := e.lane.Pair; p != nil {
		f.Device = Describe(p.Endpoint)
	}
	if e.lane.Local != nil {
		if h := t.Find(e.Mark); h != nil {
			b := h.Stages(e.end())
			f.Near = &b
		}
	}
	f.Sent.lane = nil // the agent's
	return f
}

// outcomes are the words for how a request has ended.
var outcomes = map[slots.Status]string{
	slots.StatusOK: "answered", slots.StatusRemote: "remote error", slots.StatusNoService: "no such service",
	slots.StatusTooLarge: "answer too large", slots.StatusDeadline: "deadline passed", slots.StatusNotExecuted: "not executed",
	slots.StatusMaybeExecuted: "may have been executed", slots.StatusInvalid: "invalid request", slots.StatusNotExported: "region not exported",
}

// Outcome returns the word for how the request has ended.
func (e *SentTrace) Outcome() string {
	switch {
	case e.Arrived == 0 && e.settled == 0:
		return "under way"
	case e.Arrived == 0:
		return "ended by this daemon"
	}
	if s, ok := outcomes[e.Answer.Status]; ok {
		return s
	}
	return fmt.Sprintf("status %d", e.Answer.Status)
}

// Kind returns the word for what it is.
func (e *SentTrace) Kind() string {
	switch {
	case e.Header.Flags&slots.FlagPart != 0:
		return "part"
	case e.Header.Kind == slots.KindOneWay:
		return "one-way"
	}
	return "request"
}

// WithTracer calls f on the agent's thread, with fresh if there is no tracer. False: there
// is none at all. It is for other goroutines than the agent's.
func (d *Domain) WithTracer(fresh *Tracer, f func(*Tracer)) (ok bool) {
	d.agent.Commands.Call(func() {
		if d.Tracer == nil && !d.Retired {
			d.Tracer = fresh
		}
		if d.Tracer != nil {
			ok = true
			f(d.Tracer)
			d.EndTracer()
		}
	})
	return ok
}

// EndTracer forgets a tracer that nobody needs.
func (d *Domain) EndTracer() {
	if d.Tracer != nil && d.Tracer.idle(shm.Nanotime()) {
		d.Tracer = nil
	}
}
