package bench

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/rdmad/rdmad/client"
	"github.com/rdmad/rdmad/internal/bench/latency"
)

// Result is what a run measured. Names of fields in JSON end in their unit.
type Result struct {
	Workload Workload `json:"workload"`
	// Node is the node that the workers were on, Target the called method.
	Node   string `json:"node"`
	Target string `json:"target"`
	// Fabric is empty if the node has no peers: then all stays within it.
	Fabric string `json:"fabric"`
	// Version is the daemon's.
	Version string `json:"version"`
	Size    int    `json:"size_bytes"`
	Clients int    `json:"clients"`
	// Depth is 0 for OneWay.
	Depth int `json:"depth,omitempty"`
	// Wait is how the worker processes waited for answers.
	Wait client.Mode `json:"wait"`
	// Messages is how many were sent and, unless they are one-way, answered.
	Messages uint64 `json:"messages"`
	// Mismatches is how many answers had the wrong content.
	Mismatches uint64  `json:"mismatches"`
	Elapsed    float64 `json:"elapsed_s"`
	// Rate is messages, which for all workloads but OneWay are calls, per
	// second.
	Rate float64 `json:"messages_per_s"`
	// Megabytes is 10^6 bytes of Size per second.
	Megabytes float64 `json:"mb_per_s"`
	// Latency is nil for OneWay.
	Latency *Latency `json:"latency,omitempty"`
	// RequestGroup and AnswerGroup are the average numbers of messages that
	// the local daemon sent or got with one post. Zero if none left the node, or if the daemon's core was replaced
	// meanwhile, which counts anew.
	RequestGroup float64 `json:"messages_per_request_group"`
	AnswerGroup  float64 `json:"messages_per_answer_group"`
	CPU          CPU     `json:"cpu"`
	// Ended are the roles of processes that took part and ended before the workers did: a core that was replaced.
	// CPU is without what they have used.
	Ended []string `json:"ended,omitempty"`
	// Interrupted: the run was ended by a signal, and this is what was measured until then.
	Interrupted bool `json:"interrupted,omitempty"`
}

// Latency is the distribution of full round trips, from before the call to after
// its answer was in the caller's memory. A percentile that too few lie beyond (of fewer than 1000 that is
// P999) is the largest of all.
type Latency struct {
	Min  float64 `json:"min_us"`
	Avg  float64 `json:"avg_us"`
	P50  float64 `json:"p50_us"`
	P90  float64 `json:"p90_us"`
	P99  float64 `json:"p99_us"`
	P999 float64 `json:"p99_9_us"`
	Max  float64 `json:"max_us"`
	// Histogram has every latency, in ns, in HdrHistogram's V2 compressed form.
	Histogram string `json:"histogram_ns"`
}

// CPU is the processor time, user and system, of the processes that took part, as far as they are known.
type CPU struct {
	// Total is the sum of all, and PerMillion what a million messages cost.
	Total      float64   `json:"total_s"`
	PerMillion float64   `json:"per_million_messages_s"`
	Processes  []Process `json:"processes"`
	// Complete: no process that took part is missing. Only a sandbox tells which they are; elsewhere those of
	// the other nodes, and services, are.
	Complete bool `json:"complete"`
}

// Process is the processor time of one process, or of several alike.
type Process struct {
	// Role is the node and what the process does there.
	Role string `json:"role"`
	// Number is how many processes this is.
	Number     int     `json:"number"`
	Time       float64 `json:"cpu_s"`
	PerMillion float64 `json:"per_million_messages_s"`
}

// summarize adds up the results of the processes. elapsed is zero when the
// run took from the first message of any process to the last answer of any: not all begin at once.
func summarize(spec *Spec, workers []*workerResult, elapsed time.Duration, before, after *observation) (*Result, error) {
	r := &Result{
		Workload: spec.Workload, Node: after.status.Node, Target: spec.address(spec.Workload.method()),
		Fabric: after.status.Fabric, Version: after.status.Version,
		Size: spec.Size, Clients: spec.Clients, Depth: spec.Depth, Wait: spec.Wait,
	}
	all := latency.New()
	var used time.Duration
	begin, end := int64(math.MaxInt64), int64(math.MinInt64)
	for i, w := range workers {
		r.Messages += w.Messages
		r.Mismatches += w.Mismatches
		r.Interrupted = r.Interrupted || w.Interrupted
		used += w.CPU
		if spec.Workload == OneWay {
			continue
		}
		begin, end = min(begin, w.Begin), max(end, w.End)
		if err := latency.Merge(all, w.Histogram); err != nil {
			return nil, fmt.Errorf("worker process %d: %w", i+1, err)
		}
	}
	if spec.Workload != OneWay {
		elapsed = time.Duration(end - begin)
	}
	if r.Messages == 0 && r.Interrupted {
		return nil, ErrInterrupted
	}
	if r.Messages == 0 || elapsed <= 0 {
		return nil, fmt.Errorf("no message was finished in %v", spec.Duration)
	}
	r.Elapsed = elapsed.Seconds()
	r.Rate = float64(r.Messages) / r.Elapsed
	r.Megabytes = r.Rate * float64(r.Size) / 1e6
	if spec.Workload != OneWay {
		var err error
		if r.Latency, err = latencyOf(all); err != nil {
			return nil, err
		}
	}
	if before.status.PIDs.Core == after.status.PIDs.Core {
		grown := func(counter string) float64 {
			return float64(after.status.Counters[counter] - before.status.Counters[counter])
		}
		r.RequestGroup = ratio(grown("requests_sent"), grown("request_groups"))
		// Of lanes to peers: answers_received has those of services of the caller's own node, too.
		answers, groups := answersOf(&after.status)
		answersBefore, groupsBefore := answersOf(&before.status)
		// A lane that has gone meanwhile takes its counts along.
		r.AnswerGroup = max(0, ratio(float64(answers)-float64(answersBefore), float64(groups)-float64(groupsBefore)))
	}
	for _, b := range before.cpu {
		if !slices.ContainsFunc(after.cpu, b.is) {
			r.Ended = append(r.Ended, b.role)
		}
	}
	r.CPU = cpuOf(r, used, before, after)
	return r, nil
}

// answersOf returns how many answers have come by the lanes to peers, and in how many groups.
func answersOf(s *daemonStatus) (answers, groups uint64) {
	for i := range s.Lanes {
		if l := &s.Lanes[i]; l.Direction == "out" {
			answers += l.Answers
			groups += l.AnswerGroups
		}
	}
	return answers, groups
}

// ratio returns a/b, and 0 where there is none.
func ratio(a, b float64) float64 {
	if b == 0 {
		return 0
	}
	return a / b
}

func latencyOf(h *hdrhistogram.Histogram) (*Latency, error) {
	encoded, err := latency.Encode(h)
	if err != nil {
		return nil, err
	}
	us := func(ns int64) float64 { return float64(ns) / 1e3 }
	return &Latency{
		Min:  us(h.Min()),
		Avg:  h.Mean() / 1e3,
		P50:  us(h.ValueAtPercentile(50)),
		P90:  us(h.ValueAtPercentile(90)),
		P99:  us(h.ValueAtPercentile(99)),
		P999: us(h.ValueAtPercentile(99.9)),
		Max:  us(h.Max()),

		Histogram: string(encoded),
	}, nil
}

// cpuOf adds up the processor time of the workers, which they measured, and of
// the processes that were observed before and after the run.
func cpuOf(r *Result, workers time.Duration, before, after *observation) CPU {
	millions := float64(r.Messages) / 1e6
	var c CPU
	add := func(role string, number int, used time.Duration) {
		s := used.Seconds()
		c.Processes = append(c.Processes, Process{Role: role, Number: number, Time: s, PerMillion: s / millions})
		c.Total += s
	}
	add(r.Node+".workers", r.Clients, workers)
	for _, p := range after.cpu {
		if i := slices.IndexFunc(before.cpu, p.is); i >= 0 {
			add(p.role, 1, p.used-before.cpu[i].used)
		}
	}
	c.PerMillion = c.Total / millions
	c.Complete = after.complete && len(r.Ended) == 0
	return c
}
