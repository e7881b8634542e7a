package status

import "github.com/rdmad/rdmad/internal/counters"

// LaneCounted is what was counted of a lane since the core started, or since the lane came
// up in it.
type LaneCounted struct {
	// Bytes is the size of the writes of an out lane, and of the payloads that came by an
	// in lane. Answers is how many came back, or were sent back, in AnswerGroups groups.
	Bytes        uint64 `json:"bytes"`
	Answers      uint64 `json:"answers"`
	AnswerGroups uint64 `json:"answer_groups"`
	// Failures is how often the connection broke, Backpressure how often there was something
	// to send and no room on it.
	Failures     uint64 `json:"failures"`
	Backpressure uint64 `json:"backpressure"`
	// BusySlots is how many slots the requests under way have.
	BusySlots int `json:"busy_slots"`
	// Outcomes counts requests by how they ended, those that ended at all.
	Outcomes map[string]uint64 `json:"outcomes"`
	// GroupSizes are the groups of requests.
	GroupSizes Sizes `json:"group_sizes"`
	// Latency is, for requests of this node, from when they were sent until their answers
	// came; for those of the peer from their arrival until their answers were ready. Queue
	// is how long groups waited that could not be sent at once.
	Latency Times `json:"latency"`
	Queue   Times `json:"queue"`
}

// ServiceCounted is what was counted of a method that this node serves.
type ServiceCounted struct {
	// Requests is how many were answered, and Outcomes how they ended.
	Requests uint64            `json:"requests"`
	Outcomes map[string]uint64 `json:"outcomes"`
	// Latency is from the arrival of a request until its answer was ready. Wait is how long
	// those waited that no process had room for when they came.
	Latency Times `json:"latency"`
	Wait    Times `json:"wait"`
}

// CountedOfLane returns what a row of counters says of a lane, as the status has it.
func CountedOfLane(l *counters.Lane) LaneCounted {
	return LaneCounted{
		Bytes: l.Bytes, Answers: l.Answers, AnswerGroups: l.AnswerGroups, Failures: l.Failures, Backpressure: l.Backpressure,
		BusySlots: int(l.BusySlots), Outcomes: l.Outcomes.Map(),
		GroupSizes: SizesOf(&l.GroupSizes), Latency: TimesOf(&l.Latency), Queue: TimesOf(&l.Queue),
	}
}

// CountedOfService returns what a row of counters says of a method, as the status has it.
func CountedOfService(r *counters.Service) *ServiceCounted {
	return &ServiceCounted{Requests: r.Requests, Outcomes: r.Outcomes.Map(), Latency: TimesOf(&r.Latency), Wait: TimesOf(&r.Wait)}
}
