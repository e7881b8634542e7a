// Package table prints rows of columns for people, and formats what is in them.
package table

import (
	"fmt"
	"strings"
	"text/tabwriter"
	"time"
)

// Table is rows of columns, aligned. Empty cells are printed as a dash, except in columns
// without a heading, which hold remarks. It belongs to one goroutine.
type Table struct {
	head []string
	rows [][]string
}

// New returns a table without rows.
func New(head ...string) *Table { return &Table{head: head} }

// Row adds a row, with a value for each column of the head.
func (t *Table) Row(values ...any) {
	r := make([]string, len(values))
	for i, v := range values {
		r[i] = Plain(fmt.Sprint(v))
		if r[i] == "" && t.head[i] != "" {
			r[i] = "-"
		}
	}
	t.rows = append(t.rows, r)
}

// Print writes the table with an empty line before it, if it has rows.
func (t *Table) Print(b *strings.Builder) {
	if len(t.rows) == 0 {
		return
	}
	b.WriteByte('\n')
	t.PrintRows(b)
}

// PrintRows writes the table, if it has rows.
func (t *Table) PrintRows(b *strings.Builder) {
	for _, line := range t.Lines() {
		b.WriteString(line + "\n")
	}
}

// Lines returns the lines of the table, the head first; none if it has no rows.
func (t *Table) Lines() (lines []string) {
	if len(t.rows) == 0 {
		return nil
	}
	var aligned strings.Builder
	w := tabwriter.NewWriter(&aligned, 0, 0, 2, ' ', 0)
	for _, r := range append([][]string{t.head}, t.rows...) {
		fmt.Fprintln(w, strings.Join(r, "\t"))
	}
	// Writing to a strings.Builder cannot fail.
	_ = w.Flush()
	for line := range strings.Lines(aligned.String()) {
		lines = append(lines, strings.TrimRight(line, " \n"))
	}
	return lines
}

// Plain replaces what would disturb a terminal or a table: texts of other processes, nodes
// and certificates can be anything.
func Plain(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0 {
			return '?'
		}
		return r
	}, s)
}

// Date formats a day.
func Date(t time.Time) string { return t.UTC().Format(time.DateOnly) }

// Bound formats a limit, of which 0 is none.
func Bound(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprint(n)
}

// Micros formats a time in microseconds.
func Micros(us float64) string {
	return time.Duration(us * float64(time.Microsecond)).Round(10 * time.Microsecond).String()
}

// Seconds formats a time in seconds.
func Seconds(s float64) string {
	return time.Duration(s * float64(time.Second)).Round(time.Second).String()
}
