package daemon

import (
	"time"

	"github.com/rdmad/rdmad/internal/counters"
)

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
	GroupSizes SizesStatus `json:"group_sizes"`
	// Latency is, for requests of this node, from when they were sent until their answers
	// came; for those of the peer from their arrival until their answers were ready. Queue
	// is how long groups waited that could not be sent at once.
	Latency TimesStatus `json:"latency"`
	Queue   TimesStatus `json:"queue"`
}

// ServiceCounted is what was counted of a method that this node serves.
type ServiceCounted struct {
	// Requests is how many were answered, and Outcomes how they ended.
	Requests uint64            `json:"requests"`
	Outcomes map[string]uint64 `json:"outcomes"`
	// Latency is from the arrival of a request until its answer was ready. Wait is how long
	// those waited that no process had room for when they came.
	Latency TimesStatus `json:"latency"`
	Wait    TimesStatus `json:"wait"`
}

// TimesStatus describes times that were counted, in microseconds. Quantiles are rounded
// up, by at most a quarter.
type TimesStatus struct {
	Count  uint64  `json:"count"`
	SumUS  float64 `json:"sum_us"`
	P50US  float64 `json:"p50_us"`
	P90US  float64 `json:"p90_us"`
	P99US  float64 `json:"p99_us"`
	P999US float64 `json:"p999_us"`
	MaxUS  float64 `json:"max_us"`
	// Buckets are those with something in them, the shortest times first. To get the
	// quantiles of the last seconds, subtract the counts of an earlier status. The last
	// bucket, of times beyond all bounds, has BelowUS 0.
	Buckets []DelayBucket `json:"buckets"`
}

// SizesStatus describes the sizes of groups, in messages. Quantiles are rounded up to the
// next power of two.
type SizesStatus struct {
	Count uint64 `json:"count"`
	// Messages is how many there were in all groups.
	Messages uint64 `json:"messages"`
	P50      uint64 `json:"p50"`
	P90      uint64 `json:"p90"`
	P99      uint64 `json:"p99"`
	Max      uint64 `json:"max"`
	// Buckets are those with something in them, the smallest groups first.
	Buckets []SizeBucket `json:"buckets"`
}

// SizeBucket counts the groups that are larger than those of the bucket before and have at
// most Most messages; 0 for no bound.
type SizeBucket struct {
	Most  uint64 `json:"most"`
	Count uint64 `json:"count"`
}

// CountedOfLane returns what a row of counters says of a lane, as the status has it.
func CountedOfLane(l *counters.Lane) LaneCounted {
	return LaneCounted{
		Bytes: l.Bytes, Answers: l.Answers, AnswerGroups: l.AnswerGroups, Failures: l.Failures, Backpressure: l.Backpressure,
		BusySlots: int(l.BusySlots), Outcomes: l.Outcomes.Map(),
		GroupSizes: SizesOf(&l.GroupSizes), Latency: TimesOf(&l.Latency), Queue: TimesOf(&l.Queue),
	}
}

// servicesCounted enters the methods that are served here into m, by id, on the agent's
// thread.
func (d *agentDomain) servicesCounted(m map[uint32]*ServiceCounted) {
	for _, method := range d.methods {
		if method == nil {
			continue
		}
		r := method.row
		m[method.id] = CountedOfService(r)
	}
}

// CountedOfService returns what a row of counters says of a method, as the status has it.
func CountedOfService(r *counters.Service) *ServiceCounted {
	return &ServiceCounted{Requests: r.Requests, Outcomes: r.Outcomes.Map(), Latency: TimesOf(&r.Latency), Wait: TimesOf(&r.Wait)}
}

// TimesOf describes a histogram of times.
func TimesOf(h *counters.Times) TimesStatus {
	at := func(q float64) float64 { return micros(h.Quantile(q)) }
	s := TimesStatus{
		Count: h.Count(), SumUS: micros(time.Duration(h.Sum)), P50US: at(0.5), P90US: at(0.9), P99US: at(0.99), P999US: at(0.999),
		MaxUS: micros(time.Duration(h.Max)), Buckets: []DelayBucket{},
	}
	for b, n := range h.Buckets {
		if n > 0 {
			s.Buckets = append(s.Buckets, DelayBucket{BelowUS: micros(time.Duration(counters.TimeBound(b))), Count: n})
		}
	}
	return s
}

// SizesOf describes a histogram of the sizes of groups.
func SizesOf(h *counters.Sizes) SizesStatus {
	s := SizesStatus{
		Count: h.Count(), Messages: h.Sum, P50: h.Quantile(0.5), P90: h.Quantile(0.9), P99: h.Quantile(0.99), Max: h.Max, Buckets: []SizeBucket{},
	}
	for b, n := range h.Buckets {
		if n > 0 {
			s.Buckets = append(s.Buckets, SizeBucket{Most: counters.SizeBound(b), Count: n})
		}
	}
	return s
}
