package randomfill

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/rdmad/rdmad/internal/perf/report"
)

// Result is what a client says of a run, all of which was verified.
type Result struct {
	Info report.Info `json:"test_info"`
	Layout
	Rounds uint64 `json:"rounds"`
	Seed   uint64 `json:"seed"`
	// QueueFull is how often the server's queue had no room for a write, which was tried again.
	QueueFull uint64 `json:"queue_full"`
	// Ordered says that the server's device keeps the order of writes. Of one that does not, all
	// others are completed before the last.
	Ordered bool `json:"ordered_writes"`
	// Results is one row. It has the size of a page as its size, pages as its iterations, the
	// bandwidth of the server's writes, and the latency of whole requests: from posting one to
	// the immediate of its last page. Making the random bytes is part of that, and not of the
	// bandwidth.
	Results []report.Row `json:"results"`
}

// report is what is the same for all tools.
func (r *Result) report() *report.Report { return &report.Report{Info: r.Info, Results: r.Results} }

// WriteJSON writes the result as one indented object.
func (r *Result) WriteJSON(out io.Writer) error {
	e := json.NewEncoder(out)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(r)
}

// WriteTable writes the result for people.
func (r *Result) WriteTable(out io.Writer) error {
	if err := r.report().WriteTable(out); err != nil {
		return err
	}
	order := "the last of them at once, as this device keeps the order of writes"
	if !r.Ordered {
		order = "the last of them when all others had completed"
	}
	_, err := fmt.Fprintf(out, "%d requests for %d pages of each of %d regions of %d bytes, all bytes as the seed %d says, and no other was touched\n"+
		"latencies are those of requests; pages were written by one write each, %s; the queue was full %d times\n",
		r.Rounds, r.Pages, Regions, r.Region, r.Seed, order, r.QueueFull)
	return err
}

// Judge returns a *report.MissedError if a threshold is missed.
func (r *Result) Judge(t report.Thresholds) error { return r.report().Judge(t) }
