package top

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	tea "charm.land/bubbletea/v2"

	"github.com/rdmad/rdmad/internal/status"
)

// busyNode is a node with much of everything, whose counters stand at n.
func busyNode(n uint64) *status.Node {
	s := &status.Node{
		Node: "a", Version: "9.9", Incarnation: "i", UptimeS: 100, Fabric: "tcp", PIDs: status.PIDs{Core: 7},
		Counters: map[string]uint64{"requests_sent": 10 * n, "request_groups": n, "maybe_executed": 3},
	}
	for i := range 40 {
		peer := fmt.Sprintf("node-with-a-long-name-%d", i)
		s.Peers = append(s.Peers, status.Peer{Name: peer, State: "connected", Address: "192.0.2.1:7000"})
		s.Lanes = append(s.Lanes, status.Lane{ID: uint16(i), Peer: peer, Class: "small", State: "up", Slots: 4096, Busy: i, Requests: uint64(i) * n, Groups: n, Domain: "default", Direction: "out"})
		s.Services = append(s.Services, status.Service{Service: "echo", Method: fmt.Sprint("m", i), Node: peer})
		s.Workers = append(s.Workers, status.Worker{ID: i, Name: "w\x1b[2J", Role: "client", PID: 1000 + i})
	}
	return s
}

// busyPicture is two looks at it, a second apart.
func busyPicture() *Picture {
	p, at := &Picture{}, time.Unix(1e9, 0)
	p.take(busyNode(100), nil, at)
	p.take(busyNode(200), nil, at.Add(time.Second))
	return p
}

func screenText(ls []line) string {
	var b strings.Builder
	for _, l := range ls {
		b.WriteString(l.text + "\n")
	}
	return b.String()
}

// Every view fits the terminal, whatever its size, and has no bytes that would change it.
func TestFits(t *testing.T) {
	stale := busyPicture()
	stale.take(nil, errors.New("gone"), time.Unix(1e9+60, 0))
	never := &Picture{}
	never.take(nil, errors.New("not there"), time.Unix(1e9, 0))
	for _, size := range [][2]int{{80, 24}, {200, 60}, {40, 10}, {20, 5}, {5, 2}, {1, 1}} {
		for _, p := range []*Picture{busyPicture(), stale, never, {}} {
			for tab := range len(sections) + 1 {
				for _, help := range []bool{false, true} {
					v := newView(size[0], size[1])
					v.tab, v.help, v.scroll = tab, help, 30
					ls := v.screen(p, time.Second)
					if len(ls) > max(size[1], 1) {
						t.Errorf("%v, tab %d: %d lines", size, tab, len(ls))
					}
					for _, l := range ls {
						if utf8.RuneCountInString(l.text) > size[0] || strings.ContainsRune(l.text, '\x1b') {
							t.Errorf("%v, tab %d: %q", size, tab, l.text)
						}
					}
				}
			}
		}
	}
}

// What the daemon says and what its file of counters says is not compared: their numbers of lanes are not the same.
func TestNoRatesBetweenDaemonAndFile(t *testing.T) {
	said := func(id uint16, peer string, requests uint64) *status.Node {
		s := busyNode(0)
		s.Lanes = []status.Lane{{ID: id, Peer: peer, Direction: "out", Domain: "d", Requests: requests}}
		return s
	}
	p, at := &Picture{}, time.Unix(1e9, 0)
	rate := func(s *status.Node, err error) float64 {
		at = at.Add(time.Second)
		p.take(s, err, at)
		return sections[1].rows(p)[0][slices.Index(sections[1].head, "REQ/S")].number
	}
	rate(said(3, "b", 1000), nil)
	if r := rate(said(3, "b", 1010), nil); r != 10 {
		t.Errorf("%v requests per second, as the daemon says", r)
	}
	counted := fmt.Errorf("%w: it hangs", ErrCountersOnly)
	if r := rate(said(3, "c", 5000), counted); r >= 0 {
		t.Errorf("%v requests per second, between two lanes", r)
	}
	if r := rate(said(3, "c", 5007), counted); r != 7 {
		t.Errorf("%v requests per second, as the file says", r)
	}
	if r := rate(said(3, "b", 9000), nil); r >= 0 {
		t.Errorf("%v requests per second, between two lanes", r)
	}
}

// On an ordinary terminal there is something of everything at once.
func TestOverview(t *testing.T) {
	text := screenText(newView(80, 24).screen(busyPicture(), time.Second))
	for _, want := range []string{
		"node a: running", "out 1000, 10.0 per group", "40 of 40", "PEER", "LANE", "SERVICE", "WORKER", "WHAT", "maybe_executed", "... 39 more", "q quit",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in:\n%s", want, text)
		}
	}
}

// A daemon that does not answer is said to be so, over what it has said last; another core
// begins anew.
func TestStale(t *testing.T) {
	p := busyPicture()
	p.take(nil, errors.New("it is gone"), p.At.Add(75*time.Second))
	text := screenText(newView(80, 24).screen(p, time.Second))
	for _, want := range []string{"STALE, of 1m15s ago: it is gone", "node a", "LANE"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in:\n%s", want, text)
		}
	}
	next := busyNode(1)
	next.PIDs.Core++
	p.take(next, nil, p.At.Add(80*time.Second))
	if text := screenText(newView(80, 24).screen(p, time.Second)); strings.Contains(text, "STALE") || !strings.Contains(text, "out -") {
		t.Errorf("another core:\n%s", text)
	}
}

// What the file of counters does not have is shown as unknown, not as none.
func TestCountersOnly(t *testing.T) {
	known := &status.Node{
		Node: "a", Incarnation: "i", PIDs: status.PIDs{Core: 7}, Counters: map[string]uint64{"maybe_executed": 3},
		Lanes:    []status.Lane{{ID: 1, Peer: "b", Class: "small", State: "-", Slots: 64, Direction: "out"}},
		Services: []status.Service{{Service: "echo", Method: "echo", Node: "a"}},
	}
	var p Picture
	p.take(known, fmt.Errorf("%w: it hangs", ErrCountersOnly), time.Unix(1e9, 0))
	for range 2 {
		text := strings.Join(strings.Fields(screenText(newView(200, 24).screen(&p, time.Second))), " ")
		for _, want := range []string{
			"peers - of -, lanes - of 1 up, 0 requests under way (64 slots), 1 services, - workers, - kinds of errors",
			"1 out b small - 0 64 - - - - - - - 0", "echo echo a - - - - - -",
		} {
			if !strings.Contains(text, want) {
				t.Errorf("no %q in:\n%s", want, text)
			}
		}
		// It stays unknown when not even the file is there any more.
		p.take(nil, errors.New("it is gone"), time.Unix(1e9+5, 0))
	}
	p.take(known, nil, time.Unix(1e9+6, 0))
	if text := screenText(newView(200, 24).screen(&p, time.Second)); !strings.Contains(text, "peers 0 of 0, lanes 0 of 1 up") {
		t.Errorf("a daemon that answers again:\n%s", text)
	}
}

// Keys choose, sort, filter, pause and end.
func TestKeys(t *testing.T) {
	m := &model{ctx: t.Context(), options: Options{Interval: time.Second}, view: newView(80, 24), picture: *busyPicture(), looking: true}
	press := func(keys ...string) (text string, quits bool) {
		t.Helper()
		for _, k := range keys {
			msg := tea.KeyPressMsg{Text: k, Code: []rune(k)[0]}
			if code, ok := map[string]rune{"enter": tea.KeyEnter, "esc": tea.KeyEscape, "tab": tea.KeyTab, "down": tea.KeyDown}[k]; ok {
				msg = tea.KeyPressMsg{Code: code}
			}
			_, cmd := m.Update(msg)
			if cmd != nil {
				_, quits = cmd().(tea.QuitMsg)
			}
		}
		return screenText(m.view.screen(&m.picture, m.options.Interval)), quits
	}
	has := func(text, want string) {
		t.Helper()
		if !strings.Contains(text, want) {
			t.Errorf("no %q in:\n%s", want, text)
		}
	}
	text, _ := press("2")
	has(text, "[2 lanes]")
	has(text, "\n0     out")
	text, _ = press("s", "s", "s", "s", "s", "s")
	has(text, "BUSY*")
	has(text, "\n39    out")
	text, _ = press("r")
	has(text, "BUSY^")
	has(text, "\n0     out")
	text, _ = press("/", "n", "a", "m", "e", "-", "7")
	has(text, "filter: name-7_")
	if strings.Contains(text, "name-8") {
		t.Errorf("not filtered:\n%s", text)
	}
	text, _ = press("enter")
	has(text, "  filter: name-7")
	text, _ = press("esc", "down", "down")
	has(text, "\n2     out")
	text, _ = press("?")
	has(text, "Keys")
	text, _ = press("?", "tab")
	has(text, "[3 services]")
	text, _ = press("p")
	has(text, "PAUSED")
	if _, cmd := m.Update(due{}); cmd != nil || m.looking {
		t.Error("it looks although it is paused")
	}
	if _, _ = press("+"); m.options.Interval != 500*time.Millisecond {
		t.Errorf("interval %v", m.options.Interval)
	}
	m.options.Interval = 5 * time.Minute // as it was asked for
	if _, _ = press("-"); m.options.Interval != 5*time.Minute {
		t.Errorf("less often than every 5m is every %v", m.options.Interval)
	}
	if _, quits := press("q"); !quits {
		t.Error("q does not quit")
	}
	m.Update(tea.WindowSizeMsg{Width: 30, Height: 8})
	if ls := m.view.screen(&m.picture, time.Second); len(ls) != 8 {
		t.Errorf("%d lines after a change of the size", len(ls))
	}
}

// Latencies are those of the interval, by the difference of two states.
func TestIntervalQuantiles(t *testing.T) {
	before := &status.Times{Count: 1000, P50US: 10, P99US: 10, MaxUS: 10, Buckets: []status.DelayBucket{{BelowUS: 10, Count: 1000}}}
	now := &status.Times{Count: 1100, P50US: 10, P99US: 200, MaxUS: 900, Buckets: []status.DelayBucket{{BelowUS: 10, Count: 1000}, {BelowUS: 200, Count: 98}, {BelowUS: 1000, Count: 2}}}
	for _, c := range []struct {
		now, before *status.Times
		p50, p99    float64
	}{{now, before, 200, 900}, {now, nil, 10, 200}, {before, before, 10, 10}, {before, now, 10, 10}} {
		if got := timesOf(c.now, c.before); got.p50 != c.p50 || got.p99 != c.p99 {
			t.Errorf("%+v, want %v and %v", got, c.p50, c.p99)
		}
	}
}

// Requests within the node are said to be local, and not those of peers as well.
func TestLocalRequestsAreNotIn(t *testing.T) {
	p, at := &Picture{}, time.Unix(1e9, 0)
	for i := range uint64(2) {
		n := busyNode(100)
		n.Counters["local_requests"], n.Counters["requests_received"] = 1000*i, 1500*i
		p.take(n, nil, at.Add(time.Duration(i)*time.Second))
	}
	if text := screenText(summary(p, false, time.Second)); !strings.Contains(text, "in 500, local 1000") {
		t.Error(text)
	}
}
