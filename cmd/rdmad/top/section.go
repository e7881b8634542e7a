package top

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/rdmad/rdmad/cmd/rdmad/table"
	"github.com/rdmad/rdmad/internal/status"
)

// cell is a value of a table: what is shown, and what it is sorted by.
type cell struct {
	text    string
	number  float64
	numeric bool
}

func text(s string) cell { return cell{text: table.Plain(s)} }

func count[N int | uint16 | uint32 | uint64](n N) cell {
	return cell{text: fmt.Sprint(n), number: float64(n), numeric: true}
}

// bound is a count of which 0 is none.
func bound(n int) cell { return cell{text: table.Bound(n), number: float64(n), numeric: true} }

// value is a number that is shown as a text; not known sorts last.
func value(n float64, known bool, shown string) cell {
	if !known {
		return cell{number: -1, numeric: true}
	}
	return cell{text: shown, number: n, numeric: true}
}

// rated is a rate.
func rated(r float64, known bool) cell { return value(r, known, perSecond(r, known)) }

// section is a table of the view. The columns that matter most come first: a narrow
// terminal cuts the last ones off.
type section struct {
	name string
	head []string
	rows func(*Picture) [][]cell
}

// column is a column of a table whose rows are made of values of type R.
type column[R any] struct {
	head string
	cell func(R) cell
}

// sectionOf makes a section of what its rows are made of.
func sectionOf[R any](name string, list func(*Picture) []R, columns []column[R]) section {
	s := section{name: name}
	for _, c := range columns {
		s.head = append(s.head, c.head)
	}
	s.rows = func(p *Picture) (rows [][]cell) {
		for _, r := range list(p) {
			row := make([]cell, len(columns))
			for i, c := range columns {
				row[i] = c.cell(r)
			}
			rows = append(rows, row)
		}
		return rows
	}
	return s
}

// sections are in the order in which they are shown. The view of all has the first ones.
var sections = []section{
	sectionOf("peers", func(p *Picture) []status.Peer { return p.Now.Peers }, peerColumns),
	sectionOf("lanes", laneRows, laneColumns),
	sectionOf("services", serviceRows, serviceColumns),
	sectionOf("workers", func(p *Picture) []status.Worker { return p.Now.Workers }, workerColumns),
	sectionOf("errors", errorRows, errorColumns),
}

// choose returns the rows that the filter wants, sorted by a column of the head (-1: as
// they are), numbers with the largest first.
func choose(rows [][]cell, filter string, column int, reverse bool) [][]cell {
	filter = strings.ToLower(filter)
	rows = slices.DeleteFunc(rows, func(r []cell) bool {
		return !slices.ContainsFunc(r, func(c cell) bool { return strings.Contains(strings.ToLower(c.text), filter) })
	})
	if column >= 0 {
		slices.SortStableFunc(rows, func(a, b []cell) int {
			x, y := a[column], b[column]
			order := cmp.Compare(x.text, y.text)
			if x.numeric && y.numeric {
				order = cmp.Compare(y.number, x.number)
			}
			if reverse {
				return -order
			}
			return order
		})
	} else if reverse {
		slices.Reverse(rows)
	}
	return rows
}

// lines formats rows, the head first; none if there are no rows. The head of the column
// that the rows are sorted by is marked.
func lines(head []string, rows [][]cell, column int, reverse bool) []string {
	marked := slices.Clone(head)
	if column >= 0 {
		marked[column] += map[bool]string{false: "*", true: "^"}[reverse]
	}
	t := table.New(marked...)
	for _, r := range rows {
		values := make([]any, len(r))
		for i, c := range r {
			values[i] = c.text
		}
		t.Row(values...)
	}
	return t.Lines()
}
