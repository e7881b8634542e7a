package browser

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/rdmad/rdmad/client"
	"github.com/rdmad/rdmad/cmd/rdmad/sandbox"
	"github.com/rdmad/rdmad/internal/status"
)

// number reads a number that the page shows with its digits in groups.
func number(t *testing.T, text string) uint64 {
	t.Helper()
	n, err := strconv.ParseUint(strings.ReplaceAll(text, "\u202f", ""), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// The page says what "rdmad status --json" says.
func TestContent(t *testing.T) {
	n := newNodes(t, sandbox.Settings{TLS: true})
	stop := n.load("--clients", "3", "--depth", "8")
	p := newTab(t, n.pageA, 1280, 900)
	p.live()
	p.await("the load", `document.querySelectorAll("#workers tbody tr").length >= 4`)
	p.screenshot("load")
	stop()
	p.await("the load has gone", `document.querySelectorAll("#workers tbody tr").length <= 2`)
	p.samples(2)

	s := n.status(n.a)
	if got := eval[string](p, `document.getElementById("node").textContent`); got != "a" {
		t.Errorf("node %q", got)
	}
	facts := eval[string](p, `document.querySelector("#overview dl").textContent`)
	for _, want := range []string{s.Version, s.Incarnation, s.Listen, fmt.Sprint(s.PIDs.Core), s.TLS.Name, s.Fabric} {
		if !strings.Contains(facts, want) {
			t.Errorf("the overview lacks %q: %s", want, facts)
		}
	}
	for _, peer := range s.Peers {
		row := p.row("links", "peer", peer.Name)
		if row == nil || row["state"] != peer.State || row["fabric"] != peer.Fabric || !strings.Contains(row["tls"], peer.TLS.Version) || !strings.Contains(row["tls"], peer.TLS.Peer.Name) {
			t.Errorf("peer %+v is shown as %v", peer, row)
		}
	}
	lanes := p.rows("lanes")
	if len(lanes) != len(s.Lanes) {
		t.Errorf("%d lanes, want %d", len(lanes), len(s.Lanes))
	}
	for _, l := range s.Lanes {
		if !slices.ContainsFunc(lanes, func(row map[string]string) bool {
			return strings.Contains(row["lane"], fmt.Sprintf("\n%d, %s", l.ID, l.Domain)) && strings.HasPrefix(row["class"], fmt.Sprintf("%s %d\n", l.Class, l.Number)) && row["state"] == l.State
		}) {
			t.Errorf("lane %+v is not among %v", l, lanes)
		}
	}
	services := p.rows("services")
	if len(services) != len(s.Services) {
		t.Errorf("%d services, want %d", len(services), len(s.Services))
	}
	for _, v := range s.Services {
		if row := p.row("services", "method", v.Service+"/"+v.Method); row == nil || row["node"] != v.Node {
			t.Errorf("service %+v is shown as %v", v, row)
		}
	}
	// Nothing is under way any more, so this does not change; and what does not count
	// here counts the work of the agents, who are asked for the status.
	for _, name := range []string{"requests_sent", "answers_received", "request_groups", "request_bytes"} {
		row := p.row("counters", "name", name)
		if row == nil || s.Counters[name] == 0 || number(t, row["value"]) != s.Counters[name] {
			t.Errorf("counter %s is %d, shown as %v", name, s.Counters[name], row)
		}
	}
}

// Under load the page changes by itself, and nothing in it moves.
func TestLive(t *testing.T) {
	n := newNodes(t, sandbox.Settings{})
	n.load("--clients", "2", "--depth", "4")
	url := n.pageA
	for _, width := range []int64{1280, 360} {
		p := newTab(t, url, width, 800)
		p.live()
		p.await("a rate", `/^[1-9]/.test(document.querySelector("[data-tile=sent] .big").textContent)`)
		before := n.status(n.a).Counters["requests_sent"]
		p.samples(2)
		eval[bool](p, `(window.shifts = [], new PerformanceObserver((l) => {
			for (const e of l.getEntries()) window.shifts.push(...e.sources.map((s) => e.value + " " + (s.node?.outerHTML ?? s.node?.parentNode?.outerHTML ?? "")));
		}).observe({ type: "layout-shift" }), true)`)
		p.samples(4)
		if shifts := eval[[]string](p, `window.shifts`); len(shifts) > 0 {
			t.Errorf("%d pixels wide: the page has moved: %.300q", width, shifts)
		}
		shown := number(t, p.row("counters", "name", "requests_sent")["value"])
		if after := n.status(n.a).Counters["requests_sent"]; shown < before || shown > after {
			t.Errorf("requests_sent is shown as %d, and was %d before and %d after", shown, before, after)
		}
		p.await("a lane's rate", `[...document.querySelectorAll("#lanes td[data-column=rate] .words")].some((w) => /^[1-9]/.test(w.textContent))`)
	}
}

// While there is no daemon the page says so, and since when; when it comes back the page
// goes on, with numbers of its own.
func TestRestart(t *testing.T) {
	n := newNodes(t, sandbox.Settings{})
	stop := n.load("--clients", "2", "--depth", "4")
	p := newTab(t, n.pageA, 1280, 800)
	p.live()
	p.await("a rate", `/^[1-9]/.test(document.querySelector("[data-tile=sent] .big").textContent)`)
	p.await("all of the core's life", `document.querySelector("#overview dl").textContent.includes(`+quoted(fmt.Sprint(n.status(n.a).PIDs.Core))+`)`)

	core := n.status(n.a).PIDs.Core
	if err := syscall.Kill(core, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	p.await("the next core", `!document.querySelector("#overview dl").textContent.includes(`+quoted(fmt.Sprint(core, " (core)"))+`)`)
	p.live()
	if got := eval[string](p, `document.querySelector("[data-tile=sent] .big").textContent`); strings.Contains(got, "-") {
		t.Errorf("a negative rate: %q", got)
	}

	stop()
	if err := n.a.Stop(); err != nil {
		t.Fatal(err)
	}
	p.await("the page knows", `document.getElementById("freshness").dataset.state === "lost"`)
	if got := eval[string](p, `document.getElementById("freshness-text").textContent`); !strings.HasPrefix(got, "No data since ") {
		t.Errorf("without a daemon the page says %q", got)
	}
	if !eval[bool](p, `document.body.hasAttribute("data-stale") && document.getElementById("announcer").textContent.startsWith("No data")`) {
		t.Error("the numbers look fresh, or nobody was told")
	}
	// First it says that the connection has ended, and then that there is no other.
	p.await("the reason", `document.getElementById("notice").checkVisibility() && document.getElementById("notice").textContent.includes("the daemon does not answer")`)
	p.screenshot("stopped")
	if err := n.a.Start(); err != nil {
		t.Fatal(err)
	}
	p.live()
	if eval[bool](p, `document.body.hasAttribute("data-stale")`) {
		t.Error("the numbers look old")
	}
	if row := p.row("counters", "name", "requests_sent"); row != nil {
		t.Errorf("nobody has sent anything since, and it is shown as %v", row)
	}
	if got := eval[string](p, `document.getElementById("announcer").textContent`); got != "The daemon answers again" {
		t.Errorf("announced: %q", got)
	}
}

// A peer that goes away is seen as a link that is down, with the reason among the errors.
func TestPeerGone(t *testing.T) {
	n := newNodes(t, sandbox.Settings{})
	p := newTab(t, n.pageA, 1280, 800)
	p.live()
	p.await("the link", `document.querySelector("#links [data-column=state] [data-level=good]")`)
	if err := n.echo.Stop(limit); err != nil {
		t.Error(err)
	}
	if err := n.b.Stop(); err != nil {
		t.Fatal(err)
	}
	p.await("the link is down", `document.querySelector("#links tr[data-mark=bad] [data-column=state] [data-level=bad]")`)
	p.await("the error", `document.querySelectorAll("#errors tbody tr").length > 0`)
	if got := eval[string](p, `document.querySelector("#nav a[href='#links'] .trouble").textContent`); got != "1" {
		t.Errorf("the mark at the top says %q", got)
	}
	p.samples(1)
	s := n.status(n.a)
	if row := p.row("links", "peer", "b"); row["error"] == "" || row["error"] == "–" || s.Peers[0].State != "down" {
		t.Errorf("%+v is shown as %v", s.Peers[0], row)
	}
	for _, e := range s.Errors {
		row := p.row("errors", "code", string(e.Code)+"\n"+e.Subject)
		for row == nil && p.ctx.Err() == nil { // it came after the last sample
			p.samples(1)
			row = p.row("errors", "code", string(e.Code)+"\n"+e.Subject)
		}
		if row == nil || row["level"] != e.Level {
			t.Errorf("%+v is not among %v", e, p.rows("errors"))
		}
	}
	p.screenshot("down")
	if err := n.b.Start(); err != nil {
		t.Fatal(err)
	}
	p.await("the link is back", `document.querySelector("#links [data-column=state] [data-level=good]")`)
}

// A process may call itself what it likes.
func TestHostileWorker(t *testing.T) {
	n := newNodes(t, sandbox.Settings{})
	const name = `<img src=x onerror=pwned=1>"'&lt;`
	conn, err := client.Attach(bounded(t), n.a.Socket, client.Name(name))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	p := newTab(t, n.pageA, 1280, 800)
	p.live()
	if p.row("workers", "name", name) == nil {
		t.Errorf("it is not among %v", p.rows("workers"))
	}
	if eval[bool](p, `document.querySelector("main img") !== null || "pwned" in window`) {
		t.Error("the name has become HTML")
	}
}

// Latencies of services and lanes, and sizes of groups, are those that the status has:
// without traffic all since the start, under load those of the last seconds.
func TestHistograms(t *testing.T) {
	n := newNodes(t, sandbox.Settings{})
	stop := n.load("--clients", "2", "--depth", "8")
	p := newTab(t, n.pageB, 1280, 800)
	p.live()
	p.await("the service's rate", `[...document.querySelectorAll("#services tr")].some((r) => r.textContent.includes("echo/echo") && /^[1-9]/.test(r.querySelector("[data-column=rate] .words").textContent))`)
	p.await("times of the last seconds", `document.querySelector("#services td[data-column=p50]:not([data-old], [data-none])")`)
	p.await("sizes of groups", `[...document.querySelectorAll("#lanes .histogram rect")].some((r) => parseFloat(r.getAttribute("height")) > 1)`)
	stop()
	p.await("times since the start", `[...document.querySelectorAll("#services tr")].some((r) => r.textContent.includes("echo/echo") && r.querySelector("td[data-column=p50][data-old]"))`)

	s := n.status(n.b)
	for _, v := range s.Services {
		if v.Service != "echo" {
			continue
		}
		row := p.row("services", "method", "echo/echo")
		for column, q := range map[string]float64{"p50": 0.5, "p99": 0.99, "p999": 0.999} {
			if want := p.micros(quantile(v.Counted.Latency.Buckets, q)); row[column] != want {
				t.Errorf("%s of %+v is shown as %s, want %s", column, v.Counted.Latency, row[column], want)
			}
		}
	}
	for _, l := range s.Lanes {
		if l.Latency.Count == 0 {
			continue
		}
		label := eval[string](p, fmt.Sprintf(`[...document.querySelectorAll("#lanes tbody tr")].find((r) => r.textContent.includes("%d, %s")).querySelector(".histogram").getAttribute("aria-label")`, l.ID, l.Domain))
		if !strings.Contains(label, "since the start: ") {
			t.Errorf("lane %d: %s", l.ID, label)
		}
		for _, b := range l.GroupSizes.Buckets {
			if b.Most > 0 && b.Most <= 2 && !strings.Contains(label, fmt.Sprintf("%d: %d", b.Most, b.Count)) {
				t.Errorf("lane %d: %+v is shown as %q", l.ID, l.GroupSizes, label)
			}
		}
	}
}

// quantile is what the page makes of buckets: the end of the one that the quantile is in.
func quantile(buckets []status.DelayBucket, q float64) float64 {
	var total, seen float64
	for _, b := range buckets {
		total += float64(b.Count)
	}
	for _, b := range buckets {
		if seen += float64(b.Count); seen >= q*total {
			return b.BelowUS
		}
	}
	return 0
}

// micros formats microseconds as the page does.
func (p *tab) micros(us float64) (text string) {
	p.t.Helper()
	if err := json.Unmarshal([]byte(inModule(p, "format.js", fmt.Sprintf("micros(%v)", us))), &text); err != nil {
		p.t.Fatal(err)
	}
	return text
}
