package atomics

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/rdmad/rdmad/internal/perf/report"
)

// Result is what a run has found.
type Result struct {
	Info    report.Info `json:"test_info"`
	Results []Row       `json:"results"`
}

// Row is one type of operations. Its report.Row counts operations, those that have failed to
// count, too; latencies are from posting an operation to its completion.
type Row struct {
	// Type is one of Types.
	Type string `json:"atomic_type"`
	// Clients are the processes that have counted at the same time, each by so many Connections;
	// together they have made Increments.
	Clients     int    `json:"clients"`
	Connections int    `json:"connections"`
	Increments  uint64 `json:"increments"`
	// Failed is how many CompareSwap found that another was faster, and were tried again.
	Failed uint64 `json:"failed_swaps"`
	// Start and Final are the counter before and after.
	Start uint64 `json:"start"`
	Final uint64 `json:"final"`
	report.Row
}

func newResult(t *Tool, info report.Info) *Result {
	info.RTTFactor, info.TxDepth = 1, t.Depth
	return &Result{Info: info}
}

// WriteJSON writes the result as one indented object.
func (r *Result) WriteJSON(out io.Writer) error {
	e := json.NewEncoder(out)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(r)
}

// WriteTable writes the result for people.
func (r *Result) WriteTable(out io.Writer) error {
	for i := range r.Results {
		row := &r.Results[i]
		if err := r.report(row).WriteTable(out); err != nil {
			return err
		}
		_, err := fmt.Fprintf(out, "%d clients, processes with %d connections each, have made %d increments, each once: the counter went from %d to %d; %d swaps had to be tried again\n",
			row.Clients, row.Connections, row.Increments, row.Start, row.Final, row.Failed)
		if err != nil {
			return err
		}
	}
	return nil
}

// report is that of one type.
func (r *Result) report(row *Row) *report.Report {
	one := &report.Report{Info: r.Info, Results: []report.Row{row.Row}}
	one.Info.Test += " " + row.Type
	return one
}

// Judge returns a *report.MissedError if a type misses a threshold.
func (r *Result) Judge(t report.Thresholds) error {
	var all report.Report
	for _, row := range r.Results {
		all.Results = append(all.Results, row.Row)
	}
	return all.Judge(t)
}
