package daemon

import (
	"fmt"

	"github.com/rdmad/rdmad/slots"
)

// Trace is what became of one request. Times are in nanoseconds. Those of this node and of
// the peer are differences of readings of one clock each: the clocks of two nodes are not
// compared.
type Trace struct {
	Domain  string `json:"domain"`
	Service string `json:"service"`
	Method  string `json:"method"`
	// From is this node, To the one that serves the method; they may be the same.
	From string `json:"from"`
	To   string `json:"to"`
	// Kind is "request", "one-way" or "part": a part of a stream, or of a large message.
	Kind string `json:"kind"`
	// Outcome is "answered", a word for the error, or "under way".
	Outcome string `json:"outcome"`
	// Stage is the stage in which it is, if it is under way, else empty.
	Stage  string       `json:"stage,omitempty"`
	Caller TraceProcess `json:"caller"`
	// Handler is the process that had it; PID is 0 if that is not known.
	Handler TraceProcess `json:"handler"`
	// RequestBytes and AnswerBytes are the sizes of the payloads.
	RequestBytes int `json:"request_bytes"`
	AnswerBytes  int `json:"answer_bytes"`
	// Stages are in order: claim, queue, post, wire, inbox, handler and back. They add up
	// to TotalNS.
	Stages  []TraceStage `json:"stages"`
	TotalNS int64        `json:"total_ns"`
	Detail  TraceDetail  `json:"detail"`
	Path    TracePath    `json:"path"`
	// Notes say what is not known, and why.
	Notes []string `json:"notes,omitempty"`
}

// TraceProcess is a process that has to do with a request.
type TraceProcess struct {
	ID   int    `json:"id"`
	Name string `json:"name"`
	PID  int    `json:"pid"`
}

// TraceStage is one stage of a request.
type TraceStage struct {
	Stage string `json:"stage"`
	NS    int64  `json:"ns"`
	// Known is false if there are no stamps for it; NS is 0 then, and another stage
	// holds its time if that is known at all: see Notes.
	Known bool `json:"known"`
	// Clock is the node whose clock it was measured with, or "from less to" for what is
	// left of a time of the one when a time of the other is taken away.
	Clock string `json:"clock"`
}

// TraceDetail is what is known besides, in nanoseconds; 0 for unknown.
type TraceDetail struct {
	// CompletedNS is from the post to the provider's completion of the request, which
	// may come after the answer.
	CompletedNS int64 `json:"completed_ns"`
	// GivenNS is from the arrival to the waking of the handler's process.
	GivenNS int64 `json:"given_ns"`
	// CollectedNS is from the end of the handler to when its daemon saw that, PostedNS from
	// there to the post of the answer, and TakenNS from the arrival of the answer until the
	// caller took it.
	CollectedNS int64 `json:"collected_ns"`
	PostedNS    int64 `json:"posted_ns"`
	TakenNS     int64 `json:"taken_ns"`
}

// TracePath is the way that a request has gone.
type TracePath struct {
	// Local: it stayed on this node. Provider is what carried it otherwise, Device what
	// that says of the connection, if it does, and Address the peer's.
	Local    bool   `json:"local"`
	Provider string `json:"provider"`
	Device   string `json:"device,omitempty"`
	Address  string `json:"address,omitempty"`
	// Lane is the lane's id, Class its class and Number which of the class.
	Lane   uint16 `json:"lane"`
	Class  string `json:"class"`
	Number int    `json:"number"`
	// Slot is the first of Slots slots.
	Slot  int `json:"slot"`
	Slots int `json:"slots"`
	// GroupMessages and GroupSlots are the size of the group that it went with, WRs how
	// many work requests carried that, SlotsPerWR how many slots each on average, and
	// Inline whether the last of them had its data in it.
	GroupMessages int     `json:"group_messages"`
	GroupSlots    int     `json:"group_slots"`
	WRs           int     `json:"wrs"`
	SlotsPerWR    float64 `json:"slots_per_wr"`
	Inline        bool    `json:"inline"`
	// AnswerMessages is the size of the group that the answer came with.
	AnswerMessages int `json:"answer_group_messages"`
	// Queued: no process had room for it at first. Redispatched is how often it was taken
	// back from a process that went, Resent how often it was sent again.
	Queued       bool `json:"queued"`
	Redispatched int  `json:"redispatched"`
	Resent       int  `json:"resent"`
}

// foundTrace is what an agent has found.
type foundTrace struct {
	sent sentTrace
	// device is what the endpoint says of itself, lane the lane's id, node the one at its
	// other end, "" for this one.
	device string
	lane   uint16
	node   string
	// near is what is known of the other end of a local lane; nil for another.
	near *stageBody
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
