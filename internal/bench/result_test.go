package bench

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/rdmad/rdmad/internal/bench/latency"
)

// worked returns what a process reports that made calls of the given latencies from begin to end.
func worked(t *testing.T, begin, end, cpu time.Duration, latencies ...time.Duration) *workerResult {
	t.Helper()
	h := latency.New()
	for _, l := range latencies {
		if err := h.RecordValue(int64(l)); err != nil {
			t.Fatal(err)
		}
	}
	encoded, err := latency.Encode(h)
	if err != nil {
		t.Fatal(err)
	}
	return &workerResult{Messages: uint64(len(latencies)), Begin: int64(begin), End: int64(end), CPU: cpu, Histogram: encoded}
}

func observed(requests, groups uint64, core time.Duration) *observation {
	o := &observation{cpu: []processTime{{role: "a.core", pid: 7, used: core}}}
	o.status.Node = "a"
	o.status.Fabric = "tcp"
	o.status.Counters = map[string]uint64{"requests_sent": requests, "request_groups": groups}
	return o
}

func TestSummarize(t *testing.T) {
	const us = time.Microsecond
	spec := &Spec{Workload: Call, Size: 1000, Clients: 2, Depth: 1, Duration: time.Second}
	workers := []*workerResult{
		worked(t, 9*time.Second, 10500*time.Millisecond, 100*time.Millisecond, 10*us, 20*us),
		worked(t, 9500*time.Millisecond, 11*time.Second, 300*time.Millisecond, 30*us, 40*us),
	}
	workers[1].Mismatches = 1
	r, err := summarize(spec, workers, 0, observed(100, 50, time.Second), observed(148, 62, 2*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		what      string
		got, want float64
	}{
		{"messages", float64(r.Messages), 4},
		{"mismatches", float64(r.Mismatches), 1},
		{"elapsed", r.Elapsed, 2},
		{"rate", r.Rate, 2},
		{"MB/s", r.Megabytes, 0.002},
		{"min", r.Latency.Min, 10},
		{"p50", r.Latency.P50, 20},
		{"max", r.Latency.Max, 40},
		{"avg", r.Latency.Avg, 25},
		{"request group", r.RequestGroup, 4},
		{"answer group", r.AnswerGroup, 0},
		{"CPU", r.CPU.Total, 1.4},
		{"CPU per million", r.CPU.PerMillion, 350000},
	} {
		// The histogram keeps three digits.
		if diff := c.got - c.want; diff > c.want/500+1e-9 || diff < -c.want/500-1e-9 {
			t.Errorf("%s is %v, want %v", c.what, c.got, c.want)
		}
	}
	if len(r.CPU.Processes) != 2 || r.CPU.Processes[0].Number != 2 || r.CPU.Processes[1].Role != "a.core" {
		t.Errorf("processes: %+v", r.CPU.Processes)
	}
}

func TestSummarizeRefuses(t *testing.T) {
	spec := &Spec{Workload: Call, Size: 1, Clients: 1, Duration: time.Second}
	before := observed(0, 0, 0)
	if r, err := summarize(spec, []*workerResult{worked(t, 0, time.Second, 0)}, 0, before, before); err == nil {
		t.Errorf("a run without messages: %+v", r)
	}
	damaged := worked(t, time.Second, 0, time.Millisecond)
	damaged.Histogram = []byte("none")
	if r, err := summarize(spec, []*workerResult{damaged}, 0, before, before); err == nil {
		t.Errorf("a damaged histogram: %+v", r)
	}
}

// A one-way run takes as long as it takes to arrive, and has no latencies.
func TestSummarizeOneWay(t *testing.T) {
	spec := &Spec{Workload: OneWay, Size: 64, Clients: 1, Duration: time.Second}
	before := observed(0, 0, 0)
	r, err := summarize(spec, []*workerResult{{Messages: 10, End: int64(time.Second)}}, 2*time.Second, before, before)
	if err != nil {
		t.Fatal(err)
	}
	if r.Latency != nil || r.Rate != 5 {
		t.Errorf("%+v", r)
	}
}

func TestOutput(t *testing.T) {
	spec := &Spec{Workload: Call, Size: 64, Clients: 8, Depth: 2, Duration: time.Second}
	r, err := summarize(spec, []*workerResult{worked(t, 0, time.Second, time.Second, time.Millisecond)}, 0, observed(0, 0, 0), observed(3, 2, 0))
	if err != nil {
		t.Fatal(err)
	}
	var table strings.Builder
	if err := r.Table(&table); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"8 processes x 2 outstanding", "full round trip", "p99.9", "calls/s", "a.workers (8)", "total", "1.5", "in it are the workers and the daemon of this node; not services, nor other nodes", "     -"} {
		if !strings.Contains(table.String(), want) {
			t.Errorf("no %q in:\n%s", want, table.String())
		}
	}
	r.Fabric = "" // of a node without peers
	table.Reset()
	if err := r.Table(&table); err != nil || !strings.Contains(table.String(), "from node a within the node, 1.00 s") {
		t.Errorf("%v:\n%s", err, table.String())
	}
	data, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"messages_per_s":1`, `"p99_us":`, `"histogram_ns":`, `"elapsed_s":1`, `"cpu":{`} {
		if !strings.Contains(string(data), want) {
			t.Errorf("no %q in %s", want, data)
		}
	}
}

// The counters of a core that was replaced say nothing about those of the next one.
func TestCoreReplaced(t *testing.T) {
	spec := &Spec{Workload: Call, Size: 1000, Clients: 1, Depth: 1, Duration: time.Second}
	before, after := observed(100, 10, time.Second), observed(50, 20, 2*time.Second)
	before.status.PIDs.Core, after.status.PIDs.Core, after.cpu[0].pid = 7, 8, 8
	r, err := summarize(spec, []*workerResult{worked(t, 0, time.Second, time.Millisecond, time.Microsecond)}, 0, before, after)
	if err != nil {
		t.Fatal(err)
	}
	if r.RequestGroup != 0 || r.AnswerGroup != 0 {
		t.Errorf("groups of %v and %v", r.RequestGroup, r.AnswerGroup)
	}
	var out strings.Builder
	if err := r.Table(&out); err != nil || len(r.Ended) != 1 || !strings.Contains(out.String(), "is missing: a.core") {
		t.Errorf("%v, %v:\n%s", r.Ended, err, out.String())
	}
}

// What processes call on their own node comes in no group, and makes the groups of others no larger.
func TestGroupsOfAnswersBesideLocalCalls(t *testing.T) {
	look := func(remote, groups, local uint64) *observation {
		o := observed(remote, groups, time.Second)
		o.status.Counters["answers_received"], o.status.Counters["answer_groups_received"] = remote+local, groups
		o.status.Lanes = []laneStatus{
			{Direction: "out", Answers: remote, AnswerGroups: groups},
			{Direction: "local", Answers: local},
			{Direction: "in", Answers: 7 * remote, AnswerGroups: remote},
		}
		return o
	}
	spec := &Spec{Workload: Call, Size: 64, Clients: 1, Depth: 1, Duration: time.Second}
	r, err := summarize(spec, []*workerResult{worked(t, 0, time.Second, 0, time.Microsecond)}, 0, look(100, 100, 50), look(1100, 600, 10050))
	if err != nil {
		t.Fatal(err)
	}
	if r.AnswerGroup != 2 {
		t.Errorf("%v answers in a group, want 2", r.AnswerGroup)
	}
}
