package status

// Why a trace has ended.
const (
	// TraceCount: there are as many as were asked for.
	TraceCount = "count"
	// TraceTimeout: the time is over.
	TraceTimeout = "timeout"
)

// Traced is what a tool gets that follows requests.
type Traced struct {
	// Traces are those that have become known since the last answer.
	Traces []Trace `json:"traces"`
	// Over is empty while there may be more, else TraceCount or TraceTimeout.
	Over string `json:"over,omitempty"`
	// Seen is how many requests matched, Skipped how many of them were not followed
	// because too many were at once, or had not been fetched.
	Seen    uint64 `json:"seen"`
	Skipped uint64 `json:"skipped,omitempty"`
}

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
