package top

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/rdmad/rdmad/cmd/rdmad/look"
	"github.com/rdmad/rdmad/cmd/rdmad/table"
)

// style is how a line looks.
type style int

const (
	plain style = iota
	title
	heading
	warning
	hint
)

// line is a line of the screen.
type line struct {
	text  string
	style style
}

// view is what people have chosen to see.
type view struct {
	width, height int
	// tab is 0 for all sections, else one more than the section's number.
	tab int
	// sorted is the column that each section is sorted by, -1 for none.
	sorted  [8]int
	reverse bool
	filter  string
	typing  bool // the filter
	paused  bool
	help    bool
	scroll  int
}

func newView(width, height int) *view {
	v := &view{width: width, height: height}
	for i := range v.sorted {
		v.sorted[i] = -1
	}
	return v
}

// screen returns the lines of the screen: as many as it is high, none longer than it is
// wide.
func (v *view) screen(p *Picture, interval time.Duration) []line {
	ls := v.header(p, interval)
	ls = append(ls, line{v.tabs(), hint})
	foot := line{" q quit  tab 1-5 0 sections  s sort  r reverse  / filter  p pause  ? help", hint}
	if v.typing {
		foot = line{"filter: " + v.filter + "_  (enter keeps it, escape ends it)", title}
	}
	room := max(v.height-len(ls)-1, 1)
	var body []line
	switch {
	case v.help:
		body = helpLines
	case p.Now == nil:
		body = []line{{"nothing is known of the node yet", plain}}
	case v.tab == 0:
		body = v.all(p, room)
	default:
		body = v.one(p, v.tab-1, room)
	}
	body = body[:min(len(body), room)]
	ls = append(ls, body...)
	for len(ls) < v.height-1 {
		ls = append(ls, line{})
	}
	ls = append(ls[:min(len(ls), max(v.height-1, 0))], foot)
	for i := range ls {
		ls[i].text = cut(ls[i].text, v.width)
	}
	return ls
}

// cut shortens a line to a width.
func cut(s string, width int) string {
	if utf8.RuneCountInString(s) <= width {
		return s
	}
	return string([]rune(s)[:max(width, 0)])
}

// header says how the node is, in three lines; and what is wrong with the picture.
func (v *view) header(p *Picture, interval time.Duration) (ls []line) {
	switch {
	case p.Err == nil:
	case p.Now == nil:
		ls = append(ls, line{"never seen: " + table.Plain(p.Err.Error()), warning})
	case p.fresh():
		ls = append(ls, line{table.Plain(p.Err.Error()), warning})
	default:
		ls = append(ls, line{fmt.Sprintf("STALE, of %s ago: %s", table.Seconds(p.Looked.Sub(p.At).Seconds()), table.Plain(p.Err.Error())), warning})
	}
	if p.Now == nil {
		return ls
	}
	return append(ls, summary(p, v.paused, interval)...)
}

// summary is the header of a node that is known.
func summary(p *Picture, paused bool, interval time.Duration) (ls []line) {
	s := p.Now
	state, how := "running", title
	if s.Draining {
		state, how = "draining", warning
	}
	if s.Drain != nil {
		state, how = "out of service, "+look.Progress(s.Drain), warning
	}
	mode := "every " + interval.String()
	if paused {
		mode = "PAUSED"
	}
	ls = append(ls, line{fmt.Sprintf("node %s: %s, up %s, rdmad %s, %s, core %d  %s %s", s.Node, state, table.Seconds(s.UptimeS), s.Version,
		cmp.Or(s.Fabric, "no fabric"), s.PIDs.Core, p.At.Format(time.TimeOnly), mode), how})
	out, known := p.counter("requests_sent")
	groups, _ := p.counter("request_groups")
	in, _ := p.counter("requests_received")
	local, _ := p.counter("local_requests")
	in = max(0, in-local) // received are those within the node, too
	sent, _ := p.counter("request_bytes")
	answered, _ := p.counter("answer_bytes")
	size := "-"
	if groups > 0 {
		size = fmt.Sprintf("%.1f", out/groups)
	}
	ls = append(ls, line{fmt.Sprintf("requests/s: out %s, %s per group, in %s, local %s; sent %s", orDash(perSecond(out, known)), size,
		orDash(perSecond(in, known)), orDash(perSecond(local, known)), bytesPerSecond(sent+answered, known)), plain})
	up, busy, slots := 0, 0, 0
	for _, l := range s.Lanes {
		if l.State == "up" {
			up++
		}
		busy, slots = busy+l.Busy, slots+l.Slots
	}
	connected := 0
	for _, r := range s.Peers {
		if r.State == "connected" {
			connected++
		}
	}
	bad := len(errorRows(p))
	how = plain
	if bad > 0 || connected < len(s.Peers) || s.FallbackReason != "" {
		how = warning
	}
	told := func(n int) string {
		if p.counted {
			return "-"
		}
		return strconv.Itoa(n)
	}
	return append(ls, line{fmt.Sprintf("peers %s of %s, lanes %s of %d up, %d requests under way (%d slots), %d services, %s workers, %s kinds of errors",
		told(connected), told(len(s.Peers)), told(up), len(s.Lanes), busy, slots, len(s.Services), told(len(s.Workers)), told(bad)), how})
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// tabs names the sections, the one that is shown in brackets.
func (v *view) tabs() string {
	var b strings.Builder
	for i := range len(sections) + 1 {
		name := "all"
		if i > 0 {
			name = sections[i-1].name
		}
		form := " %d %s "
		if i == v.tab {
			form = "[%d %s]"
		}
		fmt.Fprintf(&b, form, i, name)
	}
	if v.filter != "" && !v.typing {
		fmt.Fprintf(&b, "  filter: %s", v.filter)
	}
	return b.String()
}

// table returns the lines of a section, the head first.
func (v *view) table(p *Picture, i int) []string {
	s := &sections[i]
	return lines(s.head, choose(s.rows(p), v.filter, v.sorted[i], v.reverse), v.sorted[i], v.reverse)
}

// one shows a section as far as there is room for it, from the row that it is scrolled to.
func (v *view) one(p *Picture, i, room int) (ls []line) {
	t := v.table(p, i)
	if len(t) == 0 {
		return []line{{"no " + sections[i].name, plain}}
	}
	v.scroll = max(min(v.scroll, len(t)-room), 0)
	ls = append(ls, line{t[0], heading})
	for _, row := range t[1+v.scroll:] {
		ls = append(ls, line{row, plain})
	}
	if len(ls) > room {
		more := len(ls) - room + 1
		ls = append(ls[:max(room-1, 1)], line{fmt.Sprintf("... %d more below", more), hint})
	}
	return ls
}

// all shows all sections that have rows. If there is no room for all rows, each section
// gets its share of it.
func (v *view) all(p *Picture, room int) (ls []line) {
	var tables [][]string
	for i := range sections {
		if t := v.table(p, i); len(t) > 0 {
			tables = append(tables, t)
		}
	}
	for i, t := range tables {
		share := room / (len(tables) - i)
		shown := t[:min(len(t), max(share, 2))]
		for k, row := range shown {
			how := plain
			if k == 0 {
				how = heading
			}
			if k > 0 && k == len(shown)-1 && len(shown) < len(t) {
				row, how = fmt.Sprintf("... %d more", len(t)-k), hint
			}
			ls = append(ls, line{row, how})
		}
		room -= len(shown)
	}
	return ls
}

// helpLines is what "?" shows.
var helpLines = []line{
	{"Keys", heading},
	{"tab, shift+tab, 0 to 5   the next section, the one before, all or one of them", plain},
	{"up, down, page up/down   scroll; home and end: to the first and the last row", plain},
	{"s, S, r                  sort by the next column, the one before, the other way", plain},
	{"/                        show only rows with a text; escape shows all again", plain},
	{"p, space                 pause, and go on", plain},
	{"+, -                     look more often, less often", plain},
	{"q, ctrl+c                quit", plain},
	{"?, h                     this help, and back", plain},
	{"", plain},
	{"Rates are of the last interval. BUSY: requests under way. REQ/GRP: requests per", plain},
	{"group. SHARE: slots that a worker may hold now. P50, P99: latencies of the last", plain},
	{"interval, of lanes as the daemon sees them, of services from arrival to answer.", plain},
	{"\"STALE\": the daemon does not answer; what is shown is the last that it said,", plain},
	{"and is followed by what it says when it is back. \"COUNTERS ONLY\": it hangs, and", plain},
	{"what is shown is from the file of its counters, without peers and workers.", plain},
}
