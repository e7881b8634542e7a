package report

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/rdmad/rdmad/bench/peers/internal/result"
	"github.com/rdmad/rdmad/bench/peers/internal/run"
)

// Target is something that rdmad wants to reach.
type Target struct {
	// Name is the group that it belongs to, and Text says what is to be reached.
	Name, Text string
	// Setting is where.
	Setting run.Setting
	// Most is set if the value may be no more than Bound, instead of no less.
	Most  bool
	Bound float64
	// measure returns the value.
	measure func(at) result.Spread
}

// at finds cells of one setting.
type at struct {
	results *result.Results
	setting run.Setting
}

func (a at) cell(workload, system string) *result.Cell {
	return a.results.Find(string(a.setting), workload, system)
}

// ratio measures a value of rdmad in a workload divided by that of another system.
func ratio(v result.Value, workload, to string) func(at) result.Spread {
	return func(a at) result.Spread { return a.cell(workload, base).Ratio(v, a.cell(workload, to)) }
}

// value measures a value of rdmad.
func value(v result.Value, workload string) func(at) result.Spread {
	return func(a at) result.Spread { return a.cell(workload, base).Of(v) }
}

// between divides a value of one cell by that of another.
func between(v result.Value, workload, system, toWorkload, toSystem string) func(at) result.Spread {
	return func(a at) result.Spread { return a.cell(workload, system).Ratio(v, a.cell(toWorkload, toSystem)) }
}

// best is the rate with 256 processes to the best of that with 8 and 64.
func best(a at) result.Spread {
	many := a.cell("fan-256", base)
	eight, sixty := many.Ratio(result.Rate, a.cell("fan-8", base)), many.Ratio(result.Rate, a.cell("fan-64", base))
	if eight.N == 0 || sixty.N > 0 && sixty.Median < eight.Median {
		return sixty
	}
	return eight
}

// noProcessor is what an idle rdmad may use and still be said to use 0.0 %: that is less than 0.05 % for
// each of its five processes, two supervisors, two cores and a service.
const noProcessor = 5 * 0.0005

// Targets are all that follow from a comparison.
var Targets = []Target{
	{"P1", "one caller: p50, of tcp", run.Pinned, true, 1.8, ratio(result.P50, "call", "tcp")},
	{"P1", "one caller: p50, of grpc", run.Pinned, true, 0.4, ratio(result.P50, "call", "grpc")},
	{"P1", "one caller, service embedded: p50, of tcp", run.Pinned, true, 1.4, between(result.P50, "call", "rdmad-embedded", "call", "tcp")},
	{"P1", "one caller: p99, of grpc", run.Pinned, true, 0.6, ratio(result.P99, "call", "grpc")},
	{"P1", "one caller: p50, of grpc", run.Free, true, 0.75, ratio(result.P50, "call", "grpc")},
	{"P1", "one caller: p99, of grpc", run.Free, true, 0.75, ratio(result.P99, "call", "grpc")},
	{"P2", "storm: calls/s, of grpc", run.Free, false, 45, ratio(result.Rate, "storm-64", "grpc")},
	{"P2", "storm: calls/s, of nats", run.Free, false, 15, ratio(result.Rate, "storm-64", "nats")},
	{"P2", "storm: calls/s, of tcp-coalesced", run.Free, false, 0.65, ratio(result.Rate, "storm-64", "tcp-coalesced")},
	{"P2", "storm: calls/s, of grpc", run.Pinned, false, 90, ratio(result.Rate, "storm-64", "grpc")},
	{"P2", "storm: calls/s, of tcp-coalesced", run.Pinned, false, 1.4, ratio(result.Rate, "storm-64", "tcp-coalesced")},
	{"P2", "storm: CPU s per million", run.Free, true, 0.5, value(result.CPU, "storm-64")},
	{"P2", "storm: CPU s per million", run.Pinned, true, 0.5, value(result.CPU, "storm-64")},
	{"P2b", "8 callers, one outstanding each: calls/s, of grpc", run.Free, false, 5, ratio(result.Rate, "callers", "grpc")},
	{"P2b", "8 callers, one outstanding each: calls/s, of grpc", run.Pinned, false, 8, ratio(result.Rate, "callers", "grpc")},
	{"P3", "pages, 64 outstanding: calls/s, of tcp", run.Free, false, 0.7, ratio(result.Rate, "pages-64", "tcp")},
	{"P3", "pages, 64 outstanding: calls/s, of grpc", run.Free, false, 4, ratio(result.Rate, "pages-64", "grpc")},
	{"P3", "pages, one outstanding each: p99, of grpc", run.Free, true, 0.6, ratio(result.P99, "pages-1", "grpc")},
	{"P4", "answers of 1 MiB: MB/s, of tcp", run.Free, false, 0.8, ratio(result.Rate, "bulk-1m", "tcp")},
	{"P4", "answers of 1 MiB: MB/s, of grpc", run.Free, false, 3, ratio(result.Rate, "bulk-1m", "grpc")},
	{"P4", "answers of 64 MiB: MB/s, of tcp", run.Free, false, 0.8, ratio(result.Rate, "bulk-64m", "tcp")},
	{"P4", "answers of 64 MiB: MB/s, of grpc", run.Free, false, 3, ratio(result.Rate, "bulk-64m", "grpc")},
	{"P4", "1 MiB into regions: MB/s, of tcp", run.Free, false, 0.8, between(result.Rate, "bulk-1m", "rdmad-region", "bulk-1m", "tcp")},
	{"P4", "1 MiB into regions: MB/s, of grpc", run.Free, false, 3, between(result.Rate, "bulk-1m", "rdmad-region", "bulk-1m", "grpc")},
	{"P4", "64 MiB into regions: MB/s, of tcp", run.Free, false, 0.8, between(result.Rate, "bulk-64m", "rdmad-region", "bulk-64m", "tcp")},
	{"P4", "64 MiB into regions: MB/s, of grpc", run.Free, false, 3, between(result.Rate, "bulk-64m", "rdmad-region", "bulk-64m", "grpc")},
	{"P5", "one-way: messages/s, of calls/s of the storm", run.Free, false, 1.3, between(result.Rate, "oneway", base, "storm-64", base)},
	{"P6", "256 processes: calls/s, of the best of 8 and 64", run.Free, false, 0.9, best},
	{"P7", "idle: processors used by five processes", run.Free, true, noProcessor, value(result.Cores, "idle")},
	{"P8", "on one node, one caller: p50, of unix", run.Pinned, true, 1.2, between(result.P50, "call", "rdmad-local", "call", "unix")},
	{"P8", "on one node, one caller: p50, of unix", run.Free, true, 1, between(result.P50, "call", "rdmad-local", "call", "unix")},
	{"P8", "on one node, storm: calls/s, of unix", run.Free, false, 4, between(result.Rate, "storm-64", "rdmad-local", "storm-64", "unix")},
	{"P9", "groups of one message, storm: calls/s, of those of rdmad", run.Free, true, 0.6, between(result.Rate, "storm-64", "rdmad-single", "storm-64", base)},
	{"P9", "storm: messages in a group of requests", run.Free, false, 16, value(result.Group, "storm-64")},
}

// Judged is a target and what was measured.
type Judged struct {
	Target
	Measured result.Spread
}

// Met reports whether the median reaches the target. It is false if nothing was measured.
func (j *Judged) Met() bool {
	if j.Measured.N == 0 {
		return false
	}
	if j.Most {
		return j.Measured.Median <= j.Bound
	}
	return j.Measured.Median >= j.Bound
}

// Judge compares results with the targets.
func Judge(r *result.Results) []Judged {
	var all []Judged
	for _, t := range Targets {
		all = append(all, Judged{t, t.measure(at{r, t.Setting})})
	}
	return all
}

// TargetTable writes the targets, what was measured, and whether they are met.
func TargetTable(out io.Writer, r *result.Results) error {
	var b strings.Builder
	b.WriteString("\ntargets: medians of the ratios within a round, with quartiles\n")
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "\tsetting\twhat\ttarget\tmeasured\tquartiles\t")
	for _, j := range Judge(r) {
		sign, verdict := ">=", "not met"
		if j.Most {
			sign = "<="
		}
		if j.Met() {
			verdict = "met"
		}
		measured, quartiles := fmt.Sprintf("%.3g", j.Measured.Median), fmt.Sprintf("%.3g-%.3g", j.Measured.Lower, j.Measured.Upper)
		if j.Measured.N == 0 {
			measured, quartiles, verdict = "-", "-", "not measured"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s %.3g\t%s\t%s\t%s\n", j.Name, j.Setting, j.Text, sign, j.Bound, measured, quartiles, verdict)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	_, err := io.WriteString(out, b.String())
	return err
}
