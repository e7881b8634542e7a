package main

import (
	"errors"
	"fmt"
	"io"
	"text/tabwriter"
)

// Verdict is a figure of rdmad as a multiple of what the device does without it, beside
// the multiple that is wanted.
type Verdict struct {
	Target string `json:"target"`
	Idle   string `json:"idle"`
	// Embedded: of a service in the core of its node.
	Embedded bool `json:"embedded"`
	// Against says what it is a multiple of.
	Against string  `json:"against"`
	Ratio   float64 `json:"ratio"`
	// Wanted is the least that Ratio may be, or the most if AtMost is true.
	Wanted float64 `json:"wanted"`
	AtMost bool    `json:"at_most"`
	Met    bool    `json:"met"`
}

// target is a Verdict to be given. Groups are on; agents idle as the ping-pong does, and see setting.wait.
type target struct {
	name string
	load load
	// tool is the tool of perftest whose rate at toolSize counts; empty: bare, in
	// the same idle strategy.
	tool     string
	toolSize int
	bare     bare
	// p50: the round trip counts, of which less is better, and not the rate.
	p50    bool
	wanted map[string]float64 // by idle strategy
}

func both(v float64) map[string]float64 { return map[string]float64{"busy": v, "event": v} }

var targets = []target{
	{name: "storm of 8 x 64", load: load{"call", 64, 8, 64}, tool: "ib_write_bw", toolSize: 64, wanted: both(3)},
	{name: "one caller, p50", load: load{"call", 64, 1, 1}, bare: bare{request: 64, answer: 64, outstanding: 1}, p50: true, wanted: both(2.5)},
	// Twice what eight processes reach that share a queue pair without groups.
	{name: "8 callers", load: load{"call", 64, 8, 1}, bare: bare{request: 64, answer: 64, outstanding: 8},
		wanted: map[string]float64{"busy": 0.5, "event": 0.4}},
	{name: "8 KiB to 8 callers", load: load{"pages", 8 << 10, 8, 1}, bare: bare{request: 64, answer: 8 << 10, outstanding: 8}, wanted: both(0.8)},
	{name: "answers of 1 MiB", load: load{"pages", bulkSize, 1, 4}, tool: "ib_write_bw", toolSize: bulkSize, wanted: both(0.9)},
	{name: "requests of 1 MiB", load: load{"stream", bulkSize, 1, 4}, tool: "ib_read_bw", toolSize: bulkSize, wanted: both(0.9)},
}

// judge fills in Targets from the rest of the report.
func (r *Report) judge() {
	for _, t := range targets {
		for _, s := range settings {
			if !s.groups {
				continue
			}
			v := Verdict{Target: t.name, Idle: s.idle, Embedded: s.embedded, Against: t.tool, Wanted: t.wanted[s.idle], AtMost: t.p50}
			if t.tool == "" {
				v.Against = "bare ping-pong"
			}
			ours, theirs := r.figure(t, s), r.limit(t, s.idle)
			if ours == 0 || theirs == 0 {
				continue // not measured
			}
			v.Ratio = ours / theirs
			v.Met = v.Ratio >= v.Wanted
			if v.AtMost {
				v.Met = v.Ratio <= v.Wanted
			}
			r.Targets = append(r.Targets, v)
		}
	}
}

// figure is what rdmad has done.
func (r *Report) figure(t target, s setting) float64 {
	for _, v := range r.Rdmad {
		if (point{setting{v.Idle, v.Groups, v.Embedded}, load{v.Workload, v.Size, v.Clients, v.Depth}}) == (point{s, t.load}) {
			if t.p50 {
				return v.P50US
			}
			return v.Rate
		}
	}
	return 0
}

// limit is what the device has done without rdmad.
func (r *Report) limit(t target, idle string) float64 {
	for _, v := range r.Raw {
		if v.Tool == t.tool && v.Size == t.toolSize {
			return v.Rate
		}
	}
	for _, v := range r.PingPong {
		if v.Idle == idle && (bare{"", v.Request, v.Answer, v.Outstanding}) == t.bare {
			if t.p50 {
				return v.P50US
			}
			return v.Rate
		}
	}
	return 0
}

// printTargets writes the table for people.
func (r *Report) printTargets(out io.Writer) error {
	_, err := fmt.Fprintln(out)
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "target\tidle\tservice\tratio\tof\twanted\t\t")
	for _, v := range r.Targets {
		wanted, met := "at least", "not met"
		if v.AtMost {
			wanted = "at most"
		}
		if v.Met {
			met = "met"
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%.2f\t%s\t%s %g\t%s\t\n", v.Target, v.Idle, where(v.Embedded), v.Ratio, v.Against, wanted, v.Wanted, met)
	}
	return errors.Join(err, t.Flush())
}
