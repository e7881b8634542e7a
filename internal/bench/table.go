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
	outstanding := fmt.Sprintf(" x %d outstanding", r.Depth)
	if r.Workload == OneWay {
		outstanding = ""
	}
	way := "over " + r.Fabric
	if r.Fabric == "" {
		way = "within the node"
	}
	fmt.Fprintf(&b, "%s: %d processes%s, %d bytes, %s from node %s %s, %.2f s\n\n",
		r.Workload, r.Clients, outstanding, r.Size, r.Target, r.Node, way, r.Elapsed)
	if l := r.Latency; l != nil {
		b.WriteString("latency is the full round trip, in us\n")
		columns(&b, []string{"min", "avg", "p50", "p90", "p99", "p99.9", "max"},
			[]string{us(l.Min), us(l.Avg), us(l.P50), r.beyond(10, l.P90), r.beyond(100, l.P99), r.beyond(1000, l.P999), us(l.Max)})
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
	if !r.CPU.Complete && len(r.Ended) == 0 {
		b.WriteString("in it are the workers and the daemon of this node; not services, nor other nodes, which only a sandbox tells of\n")
	}
	if len(r.Ended) > 0 {
		fmt.Fprintf(&b, "ended during the measurement, and what it used is missing: %s\n", strings.Join(r.Ended, ", "))
	}
	if r.Interrupted {
		b.WriteString("interrupted: this is what was measured until then\n")
	}
	if r.Mismatches > 0 {
		fmt.Fprintf(&b, "%d of %d answers had the wrong content\n", r.Mismatches, r.Messages)
	}
	_, err := io.WriteString(out, b.String())
	return err
}

// beyond formats a percentile, if there are enough messages that one of them lies beyond.
func (r *Result) beyond(enough uint64, percentile float64) string {
	if r.Messages < enough {
		return "-"
	}
	return us(percentile)
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
