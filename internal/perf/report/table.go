package report

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// WriteTable writes the report for people: how it was measured, then a row for each size.
func (r *Report) WriteTable(out io.Writer) error {
	var b strings.Builder
	r.Info.write(&b)
	if len(r.Results) > 0 {
		if r.Results[0].Latency != nil {
			r.latencies(&b)
		}
		if r.Results[0].Bandwidth != nil {
			r.bandwidths(&b)
		}
	}
	_, err := io.WriteString(out, b.String())
	return err
}

func (i Info) write(b *strings.Builder) {
	fmt.Fprintf(b, "%s, waiting %s", i.Test, i.Wait)
	if i.Bidirectional {
		b.WriteString(", in both directions")
	}
	if i.Queues > 1 {
		fmt.Fprintf(b, ", %d queue pairs", i.Queues)
	}
	if i.TxDepth > 0 {
		fmt.Fprintf(b, ", tx depth %d", i.TxDepth)
	}
	if i.RxDepth > 0 {
		fmt.Fprintf(b, ", rx depth %d", i.RxDepth)
	}
	fmt.Fprintf(b, ", inline up to %d bytes", i.Inline)
	if i.Verified {
		b.WriteString(", every byte verified")
	}
	b.WriteByte('\n')
	switch i.RTTFactor {
	case 1:
		b.WriteString("latencies are whole round trips\n")
	case 2:
		b.WriteString("latencies are half of a round trip\n")
	}
}

func (r *Report) latencies(b *strings.Builder) {
	rows(b, "#bytes\t#iterations\tt_min[usec]\tt_max[usec]\tt_typical[usec]\tt_avg[usec]\tt_stdev[usec]\t99% percentile[usec]\t99.9% percentile[usec]\t"+
		"50%[usec]\t90%[usec]\t99.99%[usec]\tCPU client[%]\tCPU server[%]", r.Results, func(w io.Writer, x Row) {
		l := x.Latency
		fmt.Fprintf(w, "%d\t%d\t%.2f\t%.2f\t%.2f\t%.2f\t%.2f\t%.2f\t%.2f\t%.2f\t%.2f\t%.2f\t%.0f\t%.0f\n",
			x.Size, l.N, l.Min, l.Max, l.Typical, l.Average, l.Stdev, l.P99, l.P999, l.P50, l.P90, l.P9999,
			x.ClientCPU.Percent, x.ServerCPU.Percent)
	})
}

func (r *Report) bandwidths(b *strings.Builder) {
	rows(b, "#bytes\t#iterations\tBW peak[MB/sec]\tBW average[MB/sec]\tMsgRate[Mpps]\tCPU client[%]\tCPU server[%]", r.Results, func(w io.Writer, x Row) {
		v := x.Bandwidth
		peak := "-"
		if v.Peak > 0 {
			peak = fmt.Sprintf("%.2f", v.Peak)
		}
		fmt.Fprintf(w, "%d\t%d\t%s\t%.2f\t%.6f\t%.0f\t%.0f\n", x.Size, x.Iterations, peak, v.Average, v.MsgRate, x.ClientCPU.Percent, x.ServerCPU.Percent)
	})
}

// rows writes a head and a line for each row, in columns.
func rows(b *strings.Builder, head string, all []Row, line func(io.Writer, Row)) {
	w := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, head)
	for _, r := range all {
		line(w, r)
	}
	// Writing to a strings.Builder cannot fail.
	_ = w.Flush()
}
