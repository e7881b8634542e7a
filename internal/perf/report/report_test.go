package report

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/rdmad/rdmad/internal/perf"
)

func near(got, want float64) bool { return math.Abs(got-want) <= want/500 }

// The figures of latencies are what they are called, of the halves of what was recorded.
func TestLatency(t *testing.T) {
	s := NewSamples(2)
	if s.Latency() != nil {
		t.Error("figures of nothing")
	}
	for i := int64(1); i <= 10_000; i++ {
		s.Record(2000 * i) // 1 to 10000 us
	}
	l := s.Latency()
	for name, c := range map[string][2]float64{
		"min": {l.Min, 1}, "max": {l.Max, 10_000}, "typical": {l.Typical, 5000}, "avg": {l.Average, 5000.5}, "stdev": {l.Stdev, 10_000 / math.Sqrt(12)},
		"50": {l.P50, 5000}, "90": {l.P90, 9000}, "99": {l.P99, 9900}, "99.9": {l.P999, 9990}, "99.99": {l.P9999, 9999},
	} {
		if !near(c[0], c[1]) {
			t.Errorf("%s: %v, want %v", name, c[0], c[1])
		}
	}
	if s.Count() != 10_000 {
		t.Errorf("%d samples", s.Count())
	}
	s.Record(int64(time.Hour)) // beyond what is told apart: kept, and the longest
	if got := s.Latency().Max; got != 1800e6 {
		t.Errorf("max %v", got)
	}
}

func TestSamplesDoNotAllocate(t *testing.T) {
	s := NewSamples(1)
	if n := testing.AllocsPerRun(100, func() { s.Record(12345) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// A million messages of 1 MiB in 2 s: by hand.
func TestBandwidth(t *testing.T) {
	b := NewBandwidth(1<<20, 1_000_000, 2e9, 1_000_000/1e9)
	if !near(b.Average, 500_000) || !near(b.MsgRate, 0.5) || !near(b.Peak, 1_000_000) {
		t.Errorf("%+v", b)
	}
	if b := NewBandwidth(8, 10, 1000, 0); b.Peak != 0 || b.Average <= 0 {
		t.Errorf("without parts: %+v", b)
	}
}

func sample() *Report {
	s := NewSamples(1)
	s.Record(2000)
	return &Report{
		Info: Info{Test: "x", Wait: "busy", RTTFactor: 1},
		Results: []Row{
			{Size: 64, Iterations: 1, Latency: s.Latency(), Bandwidth: NewBandwidth(64, 1000, 1e9, 0), ClientCPU: perf.CPU{Percent: 99}},
		},
	}
}

func TestThresholds(t *testing.T) {
	for _, c := range []struct {
		t    Thresholds
		miss []string
	}{
		{Thresholds{}, nil},
		{Thresholds{MaxP99: 3 * time.Microsecond, MinMsgRate: 0.0009, MinBandwidth: 0.06}, nil},
		{Thresholds{MaxP99: time.Microsecond}, []string{"--max-p99"}},
		{Thresholds{MinMsgRate: 0.0011}, []string{"--min-msgrate"}},
		{Thresholds{MinBandwidth: 0.07, MaxP99: 1}, []string{"--min-bw", "--max-p99"}},
	} {
		var missed *MissedError
		err := sample().Judge(c.t)
		if errors.As(err, &missed) != (c.miss != nil) || missed != nil && len(missed.Missed) != len(c.miss) {
			t.Errorf("%+v: %v", c.t, err)
			continue
		}
		for _, w := range c.miss {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%v does not name %s", err, w)
			}
		}
	}
}

// perftest's columns come first, in its order.
func TestColumns(t *testing.T) {
	var b strings.Builder
	if err := sample().WriteTable(&b); err != nil {
		t.Fatal(err)
	}
	for _, head := range []string{
		"#bytes #iterations t_min[usec] t_max[usec] t_typical[usec] t_avg[usec] t_stdev[usec] 99% percentile[usec] 99.9% percentile[usec] ",
		"#bytes #iterations BW peak[MB/sec] BW average[MB/sec] MsgRate[Mpps] ",
		"latencies are whole round trips ",
	} {
		found := false
		for line := range strings.Lines(b.String()) {
			found = found || strings.HasPrefix(strings.Join(strings.Fields(line), " ")+" ", head)
		}
		if !found {
			t.Errorf("no line begins with %q:\n%s", head, b.String())
		}
	}
}
