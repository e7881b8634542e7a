package report

import (
	"fmt"
	"math"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

const (
	// longest is the longest latency that is told from longer ones.
	longest = 100 * time.Second
	// digits is the precision of percentiles.
	digits = 3
)

// Samples collects latencies without allocating. It belongs to one goroutine.
type Samples struct {
	hist     *hdrhistogram.Histogram
	factor   int64
	count    uint64
	min, max int64
	sum, sq  float64
}

// NewSamples makes one whose latencies are the recorded times divided by factor: 2 for round
// trips that are reported as one way.
func NewSamples(factor int) *Samples {
	return &Samples{hist: hdrhistogram.New(1, int64(longest), digits), factor: int64(factor), min: math.MaxInt64}
}

// Record adds a time in nanoseconds.
func (s *Samples) Record(ns int64) {
	ns = max(ns, 0) / s.factor
	s.count++
	s.min, s.max = min(s.min, ns), max(s.max, ns)
	s.sum += float64(ns)
	s.sq += float64(ns) * float64(ns)
	// It takes everything up to longest.
	_ = s.hist.RecordValue(min(ns, int64(longest)))
}

// Count returns the number of samples.
func (s *Samples) Count() uint64 { return s.count }

// At returns the latency in microseconds that the given percentage of samples does not
// exceed.
func (s *Samples) At(percentage float64) float64 {
	return min(micros(float64(s.hist.ValueAtQuantile(percentage))), micros(float64(s.max)))
}

// Latency is what perftest says of latencies, with its keys, and more percentiles; all in
// microseconds.
type Latency struct {
	// N is how many latencies these are.
	N       uint64  `json:"n_latencies"`
	Min     float64 `json:"t_min"`
	Max     float64 `json:"t_max"`
	Typical float64 `json:"t_typical"`
	Average float64 `json:"t_avg"`
	Stdev   float64 `json:"t_stdev"`
	P99     float64 `json:"percentile_99"`
	P999    float64 `json:"percentile_99.9"`
	P50     float64 `json:"percentile_50"`
	P90     float64 `json:"percentile_90"`
	P9999   float64 `json:"percentile_99.99"`
}

// Latency returns the figures of the samples; nil if there are none.
func (s *Samples) Latency() *Latency {
	if s.count == 0 {
		return nil
	}
	n := float64(s.count)
	mean := s.sum / n
	return &Latency{
		N: s.count, Min: micros(float64(s.min)), Max: micros(float64(s.max)), Typical: s.At(50), Average: micros(mean),
		Stdev: micros(math.Sqrt(max(s.sq/n-mean*mean, 0))),
		P50:   s.At(50), P90: s.At(90), P99: s.At(99), P999: s.At(99.9), P9999: s.At(99.99),
	}
}

func micros(ns float64) float64 { return ns / 1e3 }

// Packed is what Samples have collected, to be told to another process.
type Packed struct {
	Factor int64   `json:"factor"`
	Count  uint64  `json:"count"`
	Min    int64   `json:"min"`
	Max    int64   `json:"max"`
	Sum    float64 `json:"sum"`
	Square float64 `json:"square"`
	// Values are nanoseconds and how many samples have them, to the precision of percentiles.
	Values [][2]int64 `json:"values"`
}

// Pack returns what was collected.
func (s *Samples) Pack() Packed {
	p := Packed{Factor: s.factor, Count: s.count, Min: s.min, Max: s.max, Sum: s.sum, Square: s.sq}
	for _, b := range s.hist.Distribution() {
		if b.Count > 0 {
			p.Values = append(p.Values, [2]int64{b.From, b.Count})
		}
	}
	return p
}

// Add adds what others have collected. What comes from elsewhere is checked.
func (s *Samples) Add(p Packed) error {
	if p.Factor != s.factor {
		return fmt.Errorf("report: latencies divided by %d and by %d", p.Factor, s.factor)
	}
	for _, v := range p.Values {
		if v[1] < 0 {
			return fmt.Errorf("report: %d samples", v[1])
		}
		if err := s.hist.RecordValues(v[0], v[1]); err != nil {
			return fmt.Errorf("report: %w", err)
		}
	}
	s.count += p.Count
	s.min, s.max = min(s.min, p.Min), max(s.max, p.Max)
	s.sum += p.Sum
	s.sq += p.Square
	return nil
}
