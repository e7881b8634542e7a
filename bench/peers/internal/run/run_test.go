package run

import (
	"slices"
	"testing"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/rdmad/rdmad/bench/peers/internal/load"
	"github.com/rdmad/rdmad/bench/peers/internal/result"
	"github.com/rdmad/rdmad/bench/peers/internal/system"
	"github.com/rdmad/rdmad/internal/bench/latency"
	"github.com/rdmad/rdmad/internal/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

func TestRotated(t *testing.T) {
	list := []int{1, 2, 3}
	for by, want := range [][]int{{1, 2, 3}, {2, 3, 1}, {3, 1, 2}, {1, 2, 3}} {
		if got := rotated(list, by); !slices.Equal(got, want) {
			t.Errorf("by %d: %v, want %v", by, got, want)
		}
	}
	if got := rotated([]int(nil), 1); len(got) != 0 {
		t.Errorf("nothing becomes %v", got)
	}
}

// encoded returns n latencies of the given value, in us.
func encoded(t *testing.T, us int64, n int64) []byte {
	t.Helper()
	h := latency.New()
	if err := h.RecordValues(us*1000, n); err != nil {
		t.Fatal(err)
	}
	text, err := latency.Encode(h)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestSample(t *testing.T) {
	r := &run{latencies: map[*result.Cell]*hdrhistogram.Histogram{}}
	cell := new(result.Cell)
	m := &measured{
		results: []*load.Result{
			{Messages: 900, Begin: 7e9, End: 8.5e9, CPU: 100 * time.Millisecond, Histogram: encoded(t, 10, 900)},
			{Messages: 100, Begin: 7.5e9, End: 9e9, CPU: 200 * time.Millisecond, Histogram: encoded(t, 1000, 100)},
		},
		cpu:    700 * time.Millisecond,
		before: system.Traffic{Requests: 100, RequestGroups: 10},
		after:  system.Traffic{Requests: 1100, RequestGroups: 110},
	}
	s, err := r.sample(cell, &Workload{Size: 2000}, m)
	if err != nil {
		t.Fatal(err)
	}
	if s.Messages != 1000 || s.Elapsed != 2 || s.Rate != 500 || s.Megabytes != 1 || s.CPU != 1000 || s.Cores != 0.5 || s.RequestGroup != 10 || s.AnswerGroup != 0 {
		t.Errorf("%+v", s)
	}
	if near := func(a, b float64) bool { return a > b*0.99 && a < b*1.01 }; !near(s.P50, 10) || !near(s.P90, 10) || !near(s.P99, 1000) {
		t.Errorf("latencies %+v", s)
	}
	if points := curve(r.latencies[cell]); len(points) != 9 || points[8].Percent != 99 {
		t.Errorf("curve of 1000 latencies: %+v", points)
	}
	// Posts are timed where they arrive.
	m.arrived = 4 * time.Second
	if s, err := r.sample(cell, &Workload{Size: 64}, m); err != nil || s.Rate != 250 {
		t.Errorf("%+v, %v", s, err)
	}
	m.results[1].Mismatches = 1
	if _, err := r.sample(cell, &Workload{Size: 64}, m); err == nil {
		t.Error("a wrong answer is no failure")
	}
	if _, err := r.sample(cell, &Workload{Size: 64}, &measured{}); err == nil {
		t.Error("no messages are no failure")
	}
}

func TestBounded(t *testing.T) {
	o := Options{Workloads: []Workload{{Clients: 256, Size: 64 << 20}}}
	if w := o.bounded(0); w.Clients != 256 || w.Size != 64<<20 {
		t.Errorf("without bounds %+v", w)
	}
	o.MostClients, o.MostBytes = 5, 7
	if w := o.bounded(0); w.Clients != 5 || w.Size != 7 || o.Workloads[0].Clients != 256 {
		t.Errorf("with bounds %+v", w)
	}
}
