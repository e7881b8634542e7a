package top

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"
)

// Options are what "rdmad top" is told.
type Options struct {
	// Interval is the time between two looks, more than 0.
	Interval time.Duration
	// Count is after how many looks it ends; 0 for never.
	Count int
	// Filter is the text that rows must have.
	Filter string
	// Sort is the head of a column, in any case; empty: as the daemon says.
	Sort string
}

// Columns returns the heads of all columns, by which tables can be sorted.
func Columns() (heads []string) {
	for _, s := range sections {
		heads = append(heads, s.head...)
	}
	return heads
}

// sortBy sorts every section that has the column by it.
func (v *view) sortBy(column string) {
	for i, s := range sections {
		for k, head := range s.head {
			if strings.EqualFold(head, column) {
				v.sorted[i] = k
			}
		}
	}
}

// Plain writes tables again and again, until it has done so often enough or ctx ends. The
// first look must succeed; the error of the last one is returned.
func Plain(ctx context.Context, out io.Writer, source *Source, o Options) error {
	defer source.Close()
	v := newView(0, 0)
	v.filter = o.Filter
	v.sortBy(o.Sort)
	var p Picture
	for n := 1; ; n++ {
		s, err := source.Look(ctx)
		if ctx.Err() != nil {
			if p.Now == nil {
				return context.Cause(ctx)
			}
			return nil
		}
		p.take(s, err, time.Now())
		if p.Now == nil {
			return err
		}
		if _, err := io.WriteString(out, v.text(&p, o.Interval)); err != nil {
			return err
		}
		if n == o.Count {
			return p.Err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(o.Interval):
		}
	}
}

// text is a picture as plain tables. A picture that is old is a line.
func (v *view) text(p *Picture, interval time.Duration) string {
	var b strings.Builder
	if !p.fresh() {
		fmt.Fprintf(&b, "%s\n\n", v.header(p, interval)[0].text)
		return b.String()
	}
	for _, l := range v.header(p, interval) {
		b.WriteString(l.text + "\n")
	}
	for i := range sections {
		if t := v.table(p, i); len(t) > 0 {
			b.WriteString("\n" + strings.Join(t, "\n") + "\n")
		}
	}
	b.WriteString("\n")
	return b.String()
}
