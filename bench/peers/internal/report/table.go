// Package report makes what people read of results: tables, targets and plots.
package report

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/rdmad/rdmad/bench/peers/internal/result"
	"github.com/rdmad/rdmad/bench/peers/internal/run"
)

// base is the system that others are compared with.
const base = "rdmad"

// Table writes one table for each setting: workloads, and in each the systems.
func Table(out io.Writer, r *result.Results) error {
	var b strings.Builder
	m := &r.Machine
	fmt.Fprintf(&b, "%s, %d CPUs, Linux %s, %s, %s, revision %s, load average before %.1f\n", m.CPU, m.CPUs, m.Kernel, m.Go, m.Date, m.Revision, m.Load)
	fmt.Fprintf(&b, "%d rounds of %.2g s, interleaved: medians, of rates with quartiles. rdmad/this: medians of the ratios within a round\n", r.Rounds, r.Duration)
	for _, s := range settings {
		tableOf(&b, r, string(s))
	}
	_, err := io.WriteString(out, b.String())
	return err
}

var settingTexts = map[string]string{string(run.Free): "free: all processors", string(run.Pinned): "pinned: every process on one processor"}

func tableOf(b *strings.Builder, r *result.Results, setting string) {
	var rows strings.Builder
	w := tabwriter.NewWriter(&rows, 0, 0, 2, ' ', tabwriter.AlignRight)
	any := false
	for i := range run.Workloads {
		l := &run.Workloads[i]
		head := true
		for _, name := range l.Systems {
			c := r.Find(setting, l.Name, name)
			if c == nil {
				continue
			}
			if head {
				any = true
				longer := ""
				if l.Longer > 1 {
					longer = fmt.Sprintf(", measured %d times as long", l.Longer)
				}
				fmt.Fprintf(w, "\n%s: %s%s\n", l.Name, l.Text, longer)
				fmt.Fprintln(w, strings.Join(columns(l), "\t")+"\t")
				head = false
			}
			fmt.Fprintln(w, strings.Join(row(r, c, l), "\t")+"\t")
			for _, e := range c.Errors {
				fmt.Fprintf(w, "%s FAILED: %s\n", name, e)
			}
		}
	}
	if !any {
		return
	}
	_ = w.Flush() // writing to a strings.Builder cannot fail
	fmt.Fprintf(b, "\n%s\n", settingTexts[setting])
	b.WriteString(rows.String())
}

func columns(l *run.Workload) []string {
	if l.Idle {
		return []string{"system", "processors used"}
	}
	return []string{"system", "1/s", "quartiles", "MB/s", "p50 us", "p90", "p99", "p99.9", "CPU s/million", "group", "answers", "rdmad/this: 1/s", "p50", "p99"}
}

func row(r *result.Results, c *result.Cell, l *run.Workload) []string {
	if l.Idle {
		return []string{c.System, number(c.Of(result.Cores), "%.4f")}
	}
	rate := c.Of(result.Rate)
	cells := []string{c.System, number(rate, "%.0f"), "", number(c.Of(result.Megabytes), "%.1f")}
	if rate.N > 0 {
		cells[2] = fmt.Sprintf("%.0f-%.0f", rate.Lower, rate.Upper)
	}
	for _, v := range []result.Value{result.P50, result.P90, result.P99, result.P999} {
		cells = append(cells, number(c.Of(v), "%.1f"))
	}
	cells = append(cells, number(c.Of(result.CPU), "%.2f"), number(c.Of(result.Group), "%.1f"), number(c.Of(result.AnswerGroup), "%.1f"))
	own := r.Find(c.Setting, c.Workload, base)
	for _, v := range []result.Value{result.Rate, result.P50, result.P99} {
		text := ""
		if own != nil && own != c {
			text = number(own.Ratio(v, c), "%.2f")
		}
		cells = append(cells, text)
	}
	return cells
}

// number formats a median; nothing was measured if it is empty, or if it is zero of what is not
// there in every workload.
func number(s result.Spread, format string) string {
	if s.N == 0 {
		return "-"
	}
	if s.Median == 0 && format != "%.4f" {
		return ""
	}
	return fmt.Sprintf(format, s.Median)
}
