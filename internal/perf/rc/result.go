package rc

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/rdmad/rdmad/internal/fabric"
	"github.com/rdmad/rdmad/internal/perf"
	"github.com/rdmad/rdmad/internal/perf/report"
)

// Result is what a run has found. All of its steps were verified on both sides.
type Result struct {
	Size   int    `json:"size"`
	Seed   uint64 `json:"seed"`
	Client Side   `json:"client"`
	Server Side   `json:"server"`
	Steps  []Step `json:"steps"`
}

// Side is what a side uses and is made of.
type Side struct {
	Used perf.Used `json:"used"`
	// Attributes are the endpoint's; empty if its provider does not tell.
	Attributes []fabric.Attribute `json:"attributes"`
}

// Step is one operation.
type Step struct {
	// Op is "send", "write" or "read", From the side that has posted it.
	Op   string `json:"op"`
	From string `json:"from"`
	// Bytes is how many were moved, Digest their SHA-256, which both sides have.
	Bytes  int    `json:"bytes"`
	Digest string `json:"sha256"`
	// Microseconds is from the post to the completion, once and cold: no measurement of what
	// the fabric can do.
	Microseconds float64 `json:"t_us"`
}

// Judge returns a *report.MissedError if an operation misses a threshold: each is all there is of its
// kind, so its time is its 99th percentile.
func (r *Result) Judge(t report.Thresholds) error {
	var all report.Report
	for _, s := range r.Steps {
		all.Results = append(all.Results, report.Row{
			Size: s.Bytes, Iterations: 1, Latency: &report.Latency{P99: s.Microseconds},
			Bandwidth: report.NewBandwidth(s.Bytes, 1, int64(s.Microseconds*1e3), 0),
		})
	}
	return all.Judge(t)
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
	var b strings.Builder
	r.attributes(&b)
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "STEP\tOPERATION\tPOSTED BY\tBYTES\tTIME[usec]\tSHA-256\tVERIFIED")
	for i, s := range r.Steps {
		fmt.Fprintf(w, "%d\t%s\t%s\t%d\t%.1f\t%.16s\tby both sides\n", i+1, s.Op, s.From, s.Bytes, s.Microseconds, s.Digest)
	}
	// Writing to a strings.Builder cannot fail.
	_ = w.Flush()
	_, err := io.WriteString(out, b.String())
	return err
}

// attributes writes what both ends are made of, beside each other.
func (r *Result) attributes(b *strings.Builder) {
	type key struct{ stage, name string }
	server := map[key]string{}
	for _, a := range r.Server.Attributes {
		server[key{a.Stage, a.Name}] = a.Value
	}
	w := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "STAGE\tATTRIBUTE\tCLIENT\tSERVER")
	told := map[key]bool{}
	for _, a := range r.Client.Attributes {
		k := key{a.Stage, a.Name}
		told[k] = true
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", a.Stage, a.Name, a.Value, orDash(server[k]))
	}
	for _, a := range r.Server.Attributes {
		if !told[key{a.Stage, a.Name}] {
			fmt.Fprintf(w, "%s\t%s\t-\t%s\n", a.Stage, a.Name, a.Value)
		}
	}
	// Writing to a strings.Builder cannot fail.
	_ = w.Flush()
	b.WriteByte('\n')
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
