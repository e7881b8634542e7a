package observe

import (
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rdmad/rdmad/internal/counters"
)

// collector makes metrics of what is counted when somebody asks.
type collector struct{ source Source }

func newCollector(s Source) *collector { return &collector{s} }

// Describe implements prometheus.Collector.
func (c *collector) Describe(to chan<- *prometheus.Desc) {
	for _, m := range table {
		to <- m.desc
	}
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(to chan<- prometheus.Metric) {
	snapshot, err := c.source.Snapshot()
	if err != nil {
		to <- prometheus.NewInvalidMetric(buildInfo.desc, err)
		return
	}
	o := out{to}
	o.node(snapshot, c.source.Facts())
	o.agents(snapshot)
	o.lanes(snapshot.Lanes)
	o.services(snapshot.Services)
}

// out is where metrics go.
type out struct{ to chan<- prometheus.Metric }

// value sends a counter or a gauge.
func (o out) value(m *Metric, v float64, labels ...string) {
	kind := prometheus.CounterValue
	if m.Kind == Gauge {
		kind = prometheus.GaugeValue
	}
	o.to <- prometheus.MustNewConstMetric(m.desc, kind, v, labels...)
}

func (o out) count(m *Metric, n uint64, labels ...string) { o.value(m, float64(n), labels...) }

// times sends a histogram of durations, with a bucket for each power of two.
func (o out) times(m *Metric, h *counters.Times, labels ...string) {
	buckets := map[float64]uint64{}
	total := uint64(0)
	for b, n := range h.Buckets {
		total += n
		if end := counters.TimeBound(b); end&(end-1) == 0 && end != 0 {
			buckets[seconds(end)] = total
		}
	}
	o.to <- prometheus.MustNewConstHistogram(m.desc, total, seconds(h.Sum), buckets, labels...)
}

func (o out) sizes(m *Metric, h *counters.Sizes, labels ...string) {
	buckets := map[float64]uint64{}
	total := uint64(0)
	for b, n := range h.Buckets {
		total += n
		if most := counters.SizeBound(b); most != 0 {
			buckets[float64(most)] = total
		}
	}
	o.to <- prometheus.MustNewConstHistogram(m.desc, total, float64(h.Sum), buckets, labels...)
}

func seconds(ns uint64) float64 { return float64(ns) / float64(time.Second) }

func (o out) node(s *counters.Snapshot, f Facts) {
	for i, n := range counters.Values(&s.Counts) {
		o.count(nodeCounts[i], n)
	}
	for _, p := range f.Peers {
		up := 0.0
		if p.Connected {
			up = 1
		}
		o.value(peerUp, up, p.Name)
		o.value(peerAge, p.AgeS, p.Name)
	}
	fabric := f.Fabric
	if fabric == "" {
		fabric = "none"
	}
	o.value(transport, 1, fabric, strings.ToValidUTF8(f.Detail, "\uFFFD"))
	o.value(configInfo, 1, s.Digest)
	o.value(buildInfo, 1, s.Program, s.Node)
	o.value(startTime, float64(s.Started.UnixMilli())/1000)
}

func (o out) agents(s *counters.Snapshot) {
	for i := range s.Agents {
		a, name := &s.Agents[i], strconv.Itoa(i)
		for k, n := range counters.Values(&a.Counts) {
			o.count(agentCounts[k], n, name)
		}
		o.times(cycles, &a.Cycles, name)
		o.value(longest, seconds(a.Cycles.Max), name)
		stuck := 0.0
		if a.State == counters.AgentWorking {
			stuck = max(0, time.Duration(s.Now-a.Beat).Seconds())
		}
		o.value(beat, stuck, name)
	}
}

// lanes sends what was counted of lanes. Those of a class are added up, so are all without
// a row of their own.
func (o out) lanes(list []counters.LaneSnapshot) {
	type key struct{ domain, peer, class, direction string }
	sums := map[key]*counters.LaneSnapshot{}
	for i := range list {
		l := &list[i]
		k := key{l.Domain, l.Peer, l.Class, l.Direction.String()}
		if l.Other {
			k = key{"other", "other", "other", "other"}
		}
		have := sums[k]
		if have == nil {
			one := *l
			one.Slots = 0
			have = &one
			sums[k] = have
		} else {
			have.Lane.Merge(&l.Lane)
		}
		have.Slots += l.Slots
	}
	for k, l := range sums {
		labels := []string{k.domain, k.peer, k.class, k.direction}
		o.count(laneRequests, l.Requests, labels...)
		o.count(laneAnswers, l.Answers, labels...)
		o.count(laneBytes, l.Bytes, labels...)
		o.count(laneFailures, l.Failures, labels...)
		o.count(backpressure, l.Backpressure, labels...)
		o.count(underWay, l.Busy, labels...)
		o.count(slotsOf, l.BusySlots, and(labels, "busy")...)
		if !l.Other {
			o.value(slotsOf, max(0, float64(l.Slots)-float64(l.BusySlots)), and(labels, "free")...)
		}
		o.outcomes(calls, &l.Outcomes, labels...)
		o.sizes(batchSize, &l.GroupSizes, labels...)
		stage := "round_trip"
		switch {
		case l.Other:
			stage = "other" // lanes of all directions have counted there
		case k.direction == counters.In.String():
			stage = "serve"
		}
		o.times(stages, &l.Latency, and(labels, stage)...)
		if stage != "serve" {
			o.times(stages, &l.Queue, and(labels, "queue")...)
		}
	}
}

// services sends what was counted of methods. All without a row of their own are added up, with one that has their names.
func (o out) services(list []counters.ServiceSnapshot) {
	other := counters.Service{}
	others := false
	for i := range list {
		s := &list[i]
		if s.Other || s.ServiceID == (counters.ServiceID{Domain: "other", Service: "other", Method: "other"}) {
			other.Merge(&s.Service)
			others = true
			continue
		}
		o.service(&s.Service, s.Domain, s.ServiceID.Service, s.Method)
	}
	if others {
		o.service(&other, "other", "other", "other")
	}
}

func (o out) service(s *counters.Service, labels ...string) {
	o.outcomes(requests, &s.Outcomes, labels...)
	o.times(duration, &s.Latency, labels...)
	o.times(waiting, &s.Wait, labels...)
}

// outcomes sends a counter for each outcome that there was, and for success.
func (o out) outcomes(m *Metric, c *counters.Outcomes, labels ...string) {
	by := c.Map()
	by[counters.OutcomeName(0)] += 0
	for name, n := range by {
		o.count(m, n, and(labels, name)...)
	}
}
