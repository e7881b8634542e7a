// Package result is what a comparison measured, and the statistics over its rounds.
package result

import (
	"cmp"
	"math"
	"slices"
	"strconv"
)

// Results are everything that a comparison measured. Names of fields in JSON end in their unit.
type Results struct {
	Machine Machine `json:"machine"`
	// Rounds is how many rounds there were, and Duration how long each measurement took, or a part of what it took (Sample.Elapsed).
	Rounds   int     `json:"rounds"`
	Duration float64 `json:"duration_s"`
	// Part: not everything was measured that can be, or next to nothing of each.
	Part  bool    `json:"part,omitempty"`
	Cells []*Cell `json:"cells"`
}

// Machine is where it was measured.
type Machine struct {
	CPU    string `json:"cpu"`
	CPUs   int    `json:"cpus"`
	Kernel string `json:"kernel"`
	Go     string `json:"go"`
	Date   string `json:"date"`
	// Revision is that of this repository.
	Revision string `json:"revision"`
	// Load is the load average over a minute before the comparison began: what else was running.
	Load float64 `json:"load_average"`
}

// Cell is one system with one workload in one setting.
type Cell struct {
	Setting  string `json:"setting"`
	Workload string `json:"workload"`
	System   string `json:"system"`
	// Samples has one entry for each round, nil if the system failed in it.
	Samples []*Sample `json:"samples"`
	// Errors are why.
	Errors []string `json:"errors,omitempty"`
	// Curve is the latencies of all rounds together.
	Curve []Point `json:"curve,omitempty"`
	// GroupSizes are the groups of requests of all rounds together, the smallest first.
	GroupSizes []GroupSize `json:"group_sizes,omitempty"`
}

// GroupSize is how many groups had at most Most messages, and more than those of the size before. Most is a power of
// two, or 0 for those that are larger than all others.
type GroupSize struct {
	Most   uint64 `json:"most"`
	Groups uint64 `json:"groups"`
}

// AddGroups adds the groups that were counted between two looks, by their sizes.
func (c *Cell) AddGroups(before, after map[uint64]uint64) {
	for most, n := range after {
		if n <= before[most] {
			continue
		}
		i, found := slices.BinarySearchFunc(c.GroupSizes, most, func(g GroupSize, most uint64) int { return cmp.Compare(g.Most-1, most-1) })
		if !found {
			c.GroupSizes = slices.Insert(c.GroupSizes, i, GroupSize{Most: most})
		}
		c.GroupSizes[i].Groups += n - before[most]
	}
}

// Point is a latency that a part of all messages, in percent, did not exceed.
type Point struct {
	Percent float64 `json:"percent"`
	Latency float64 `json:"us"`
}

// Sample is one measurement.
type Sample struct {
	Messages uint64  `json:"messages"`
	Elapsed  float64 `json:"elapsed_s"`
	Rate     float64 `json:"messages_per_s"`
	// Megabytes is 10^6 bytes of answers, or of posts, per second.
	Megabytes float64 `json:"mb_per_s"`
	// Latencies are zero for posts, and where there are too few to have one beyond: ten for P90, a hundred
	// for P99, a thousand for P999.
	P50  float64 `json:"p50_us,omitempty"`
	P90  float64 `json:"p90_us,omitempty"`
	P99  float64 `json:"p99_us,omitempty"`
	P999 float64 `json:"p99_9_us,omitempty"`
	// CPU is the processor time of all processes of the system for a million messages.
	CPU float64 `json:"cpu_per_million_messages_s"`
	// Cores is how many processors the system kept busy.
	Cores float64 `json:"cores"`
	// RequestGroup and AnswerGroup are the average numbers of messages in a group; zero for
	// systems without groups.
	RequestGroup float64 `json:"messages_per_request_group,omitempty"`
	AnswerGroup  float64 `json:"messages_per_answer_group,omitempty"`
}

// Round leaves five digits of each number: more than any of them means.
func (s *Sample) Round() {
	for _, v := range []*float64{
		&s.Elapsed, &s.Rate, &s.Megabytes, &s.P50, &s.P90, &s.P99, &s.P999, &s.CPU, &s.Cores, &s.RequestGroup, &s.AnswerGroup,
	} {
		// What it has written it can read.
		*v, _ = strconv.ParseFloat(strconv.FormatFloat(*v, 'g', 5, 64), 64)
	}
}

// Value is one of the numbers of a sample, NaN if the sample has none.
type Value func(*Sample) float64

// The values that tables and targets use.
var (
	Rate  Value = func(s *Sample) float64 { return s.Rate }
	P50   Value = func(s *Sample) float64 { return orNone(s.P50) }
	P90   Value = func(s *Sample) float64 { return orNone(s.P90) }
	P99   Value = func(s *Sample) float64 { return orNone(s.P99) }
	P999  Value = func(s *Sample) float64 { return orNone(s.P999) }
	CPU   Value = func(s *Sample) float64 { return s.CPU }
	Cores Value = func(s *Sample) float64 { return s.Cores }
	// Group is the average size of a group of requests.
	Group Value = func(s *Sample) float64 { return s.RequestGroup }
	// AnswerGroup is that of answers.
	AnswerGroup Value = func(s *Sample) float64 { return s.AnswerGroup }
	// Megabytes is the rate in bytes.
	Megabytes Value = func(s *Sample) float64 { return s.Megabytes }
)

// orNone returns a latency, of which zero is none.
func orNone(latency float64) float64 {
	if latency == 0 {
		return math.NaN()
	}
	return latency
}

// Find returns the cell, or nil.
func (r *Results) Find(setting, workload, system string) *Cell {
	for _, c := range r.Cells {
		if c.Setting == setting && c.Workload == workload && c.System == system {
			return c
		}
	}
	return nil
}

// Failed reports whether a system failed anywhere.
func (r *Results) Failed() bool {
	return slices.ContainsFunc(r.Cells, func(c *Cell) bool { return len(c.Errors) > 0 })
}

// Spread is the median and the quartiles of a value over rounds. N is how many there were.
type Spread struct {
	N                    int
	Median, Lower, Upper float64
}

// Of returns the spread of a value. A nil Cell has none.
func (c *Cell) Of(v Value) Spread {
	var values []float64
	if c != nil {
		for _, s := range c.Samples {
			if s != nil && !math.IsNaN(v(s)) {
				values = append(values, v(s))
			}
		}
	}
	return spread(values)
}

// Ratio returns the spread of a value of the cell divided by that of another cell in the same
// round. Rounds in which one of the two failed are left out.
func (c *Cell) Ratio(v Value, to *Cell) Spread {
	var values []float64
	if c != nil && to != nil {
		for i := range min(len(c.Samples), len(to.Samples)) {
			if a, b := c.Samples[i], to.Samples[i]; a != nil && b != nil && v(b) > 0 && !math.IsNaN(v(a)) {
				values = append(values, v(a)/v(b))
			}
		}
	}
	return spread(values)
}

func spread(values []float64) Spread {
	slices.Sort(values)
	return Spread{N: len(values), Median: quantile(values, 0.5), Lower: quantile(values, 0.25), Upper: quantile(values, 0.75)}
}

// quantile interpolates between the two sorted values next to the quantile. It is 0 for none.
func quantile(sorted []float64, q float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	at := q * float64(len(sorted)-1)
	low := int(math.Floor(at))
	high := min(low+1, len(sorted)-1)
	return sorted[low] + (at-float64(low))*(sorted[high]-sorted[low])
}
