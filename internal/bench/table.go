package bench

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// Table writes the result for people.
func (r *Result) Table(out io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %d processes x %d outstanding, %d bytes, %s from node %s over %s, %.2f s\n\n",
		r.Workload, r.Clients, r.Depth, r.Size, r.Target, r.Node, r.Fabric, r.Elapsed)
	if l := r.Latency; l != nil {
		b.WriteString("latency is the full round trip, in us\n")
		columns(&b, []string{"min", "avg", "p50", "p90", "p99", "p99.9", "max"},
			[]string{us(l.Min), us(l.Avg), us(l.P50), us(l.P90), us(l.P99), us(l.P999), us(l.Max)})
	}
	rate := "calls/s"
	if r.Workload == OneWay {
		rate = "messages/s"
	}
	columns(&b, []string{rate, "MB/s (10^6)", "requests/group", "answers/group"},
		[]string{us(r.Rate), fmt.Sprintf("%.1f", r.Megabytes), group(r.RequestGroup), group(r.AnswerGroup)})
	b.WriteString("CPU seconds per million messages\n")
	names, values := []string{}, []string{}
	for _, p := range r.CPU.Processes {
		name := p.Role
		if p.Number > 1 {
			name = fmt.Sprintf("%s (%d)", p.Role, p.Number)
		}
		names = append(names, name)
		values = append(values, fmt.Sprintf("%.3f", p.PerMillion))
	}
	columns(&b, append(names, "total"), append(values, fmt.Sprintf("%.3f", r.CPU.PerMillion)))
	if len(r.Ended) > 0 {
		fmt.Fprintf(&b, "ended during the measurement, and what it used is missing: %s\n", strings.Join(r.Ended, ", "))
	}
	if r.Mismatches > 0 {
		fmt.Fprintf(&b, "%d of %d answers had the wrong content\n", r.Mismatches, r.Messages)
	}
	_, err := io.WriteString(out, b.String())
	return err
}

// columns writes a line of names and a line of values below, aligned right.
func columns(b *strings.Builder, names, values []string) {
	t := tabwriter.NewWriter(b, 9, 0, 2, ' ', tabwriter.AlignRight)
	for _, row := range [][]string{names, values} {
		fmt.Fprintln(t, strings.Join(row, "\t")+"\t")
	}
	// Writing to a strings.Builder cannot fail.
	_ = t.Flush()
	b.WriteString("\n")
}

// us formats microseconds, or a rate, with as many digits as they are worth.
func us(v float64) string {
	if v < 100 {
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.0f", v)
}

func group(v float64) string {
	if v == 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f", v)
}
