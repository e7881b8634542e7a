package browser

import (
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/rdmad/rdmad/internal/status"
	"github.com/rdmad/rdmad/internal/webpage"
)

// Whatever text the status has, wherever, it stays text.
func TestHostileTexts(t *testing.T) {
	const hostile = `</td><script>window.pwned = 1</script><img src=x onerror="window.pwned = 1"><a href="javascript:pwned=1">&amp;`
	f := newFake(1)
	s := f.status
	s.TLS = &status.Certificate{}
	s.Upgrade = &status.Upgrade{}
	s.Peers[0].TLS = &status.Channel{}
	s.Refusals = []status.Refusal{{}}
	s.Bulk = []status.Bulk{{}}
	s.Counters[hostile] = 1
	infect(reflect.ValueOf(s).Elem(), hostile)
	p := newTab(t, newSite(t, f, webpage.Options{}).url(), 1280, 800)
	p.live()
	p.samples(1)
	if eval[bool](p, `document.querySelector("main script, main img, main a") !== null || "pwned" in window`) {
		t.Error("text has become HTML")
	}
	for _, section := range []string{"overview", "links", "lanes", "services", "workers", "counters", "domains", "regions"} {
		if !eval[bool](p, `document.getElementById("`+section+`").textContent.includes(`+quoted(hostile)+`)`) {
			t.Errorf("%s does not show the text", section)
		}
	}
}

// infect sets all strings of a struct, and of what is in it.
func infect(v reflect.Value, text string) {
	switch v.Kind() {
	case reflect.String:
		v.SetString(text)
	case reflect.Pointer:
		if !v.IsNil() {
			infect(v.Elem(), text)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Field(i).CanSet() {
				infect(v.Field(i), text)
			}
		}
	case reflect.Slice:
		for i := range v.Len() {
			infect(v.Index(i), text)
		}
	}
}

// With many workers one finds the one that one looks for; with nothing it says so.
func TestMany(t *testing.T) {
	f := newFake(300)
	p := newTab(t, newSite(t, f, webpage.Options{}).url(), 1280, 800)
	p.live()
	shown := func() []string {
		var names []string
		for _, r := range p.rows("workers") {
			name, _, _ := strings.Cut(r["name"], "\n")
			names = append(names, name)
		}
		return names
	}
	if got := shown(); len(got) != 25 || got[0] != "worker 000" {
		t.Errorf("first page: %v", got)
	}
	p.screenshot("workers")
	p.do(chromedp.Click(`#workers .turner button:last-of-type`))
	if got := shown(); len(got) != 25 || got[0] != "worker 025" {
		t.Errorf("second page: %v", got)
	}
	// Both words, in any field: the pid is that of one worker.
	p.do(chromedp.SendKeys(`#workers input[type=search]`, "CLIENT 12030"))
	if got := shown(); len(got) != 1 || got[0] != "worker 290" {
		t.Errorf("filtered: %v", got)
	}
	if got := eval[string](p, `document.querySelector("#workers .where").textContent`); got != "1 of 300" {
		t.Errorf("filtered: %q", got)
	}
	p.samples(2)
	if got := shown(); len(got) != 1 {
		t.Errorf("after the next sample: %v", got)
	}
	f.change(func(s *status.Node) {
		s.Workers, s.Lanes, s.Peers, s.Services, s.Domains = nil, nil, nil, nil, nil
		s.Counters = map[string]uint64{}
	})
	p.await("no workers", `document.querySelector("#workers .empty").checkVisibility()`)
	for _, section := range []string{"links", "lanes", "services", "workers", "errors", "domains", "regions"} {
		if !eval[bool](p, `document.querySelector("#`+section+` .empty").checkVisibility() && !document.querySelector("#`+section+` table").checkVisibility()`) {
			t.Errorf("%s does not say that it is empty", section)
		}
	}
	p.screenshot("empty")
}

// Everything can be reached and done with the keyboard, and one sees where one is.
func TestKeyboard(t *testing.T) {
	p := newTab(t, newSite(t, newFake(30), webpage.Options{}).url(), 1280, 800)
	p.live()
	focused := func() string {
		return eval[string](p, `(document.activeElement.id || document.activeElement.className || document.activeElement.textContent) + " " + document.activeElement.tagName`)
	}
	p.do(chromedp.KeyEvent(kb.Tab))
	if got := focused(); got != "skip A" {
		t.Errorf("the first is %q", got)
	}
	if top := eval[float64](p, `document.activeElement.getBoundingClientRect().top`); top < 0 {
		t.Errorf("the link to skip to the content is at %v", top)
	}
	p.do(chromedp.KeyEvent(kb.Enter))
	if got := focused(); got != "main MAIN" {
		t.Errorf("skipped to %q", got)
	}
	// All that can be focused comes in the order of the document and is seen.
	var order []int
	total := eval[int](p, `(window.stops = [...document.querySelectorAll("a, button, input, select, summary")].filter((e) => e.checkVisibility() && !e.disabled)).length`)
	p.do(chromedp.Focus(`.skip`))
	for range total {
		order = append(order, eval[int](p, `window.stops.indexOf(document.activeElement)`))
		if outline := eval[string](p, `getComputedStyle(document.activeElement).outlineStyle`); outline == "none" {
			t.Errorf("%s has no visible focus", focused())
		}
		p.do(chromedp.KeyEvent(kb.Tab))
	}
	for i, at := range order {
		if i != at {
			t.Fatalf("the order is %v", order)
		}
	}
	p.do(chromedp.Focus(`#workers thead th:nth-child(3) button`), chromedp.KeyEvent(kb.Enter))
	sort := func() string {
		return eval[string](p, `document.querySelector("#workers thead th:nth-child(3)").getAttribute("aria-sort")`)
	}
	first := func() string {
		slots, _, _ := strings.Cut(p.rows("workers")[0]["slots"], "of")
		return slots
	}
	if got, first := sort(), first(); got != "descending" || first != "29" {
		t.Errorf("sorted %s, first %s", got, first)
	}
	p.do(chromedp.KeyEvent(" "))
	if got, first := sort(), first(); got != "ascending" || first != "0" {
		t.Errorf("sorted %s, first %s", got, first)
	}
	p.do(chromedp.Navigate(eval[string](p, `location.href`)))
	p.live()
	if got := sort(); got != "ascending" {
		t.Errorf("after a reload sorted %s", got)
	}
	p.do(chromedp.Focus(`#workers summary`), chromedp.KeyEvent(kb.Enter))
	if eval[bool](p, `document.querySelector("#workers details").open`) {
		t.Error("the section is still open")
	}
}

// A paused or hidden page asks for nothing.
func TestPause(t *testing.T) {
	f := newFake(1)
	p := newTab(t, newSite(t, f, webpage.Options{}).url(), 1280, 800)
	p.live()
	quiet := func() {
		t.Helper()
		p.await("paused", `document.getElementById("freshness").dataset.state === "paused"`)
		// The daemon has noticed when it is not asked for longer than its interval.
		for last := int64(-1); last != f.asked.Load(); {
			last = f.asked.Load()
			eval[bool](p, `await new Promise((done) => setTimeout(done, 1500, true))`)
		}
	}
	p.do(chromedp.Click(`#pause`))
	p.await("the button is pressed", `document.getElementById("pause").getAttribute("aria-pressed") === "true"`)
	quiet()
	p.do(chromedp.Click(`#pause`))
	p.live()
	hide := func(hidden bool) {
		eval[bool](p, fmt.Sprintf(`(Object.defineProperty(document, "hidden", { value: %v, configurable: true }), document.dispatchEvent(new Event("visibilitychange")))`, hidden))
	}
	hide(true)
	quiet()
	hide(false)
	p.live()
}

// One who is too many is told so, and let in when there is room.
func TestTooManyViewers(t *testing.T) {
	s := newSite(t, newFake(1), webpage.Options{Viewers: 1})
	p := newTab(t, s.url(), 1280, 800)
	p.live()
	q := newTab(t, s.url(), 1280, 800)
	q.await("the refusal", `document.getElementById("notice").textContent.includes("too many viewers")`)
	p.do(chromedp.Navigate(s.url() + "icon.svg"))
	q.live()
}

// When the server is away the page tries again, and when its files are others by then it
// loads them.
func TestServerAway(t *testing.T) {
	s := newSite(t, newFake(1), webpage.Options{})
	p := newTab(t, s.url(), 1280, 800)
	p.live()
	eval[bool](p, `window.same = true`)
	s.close()
	p.await("the page knows", `document.getElementById("freshness").dataset.state === "lost"`)
	s.open()
	p.live()
	if !eval[bool](p, `window.same === true`) {
		t.Error("the page has loaded itself anew for the same files")
	}
	s.close()
	s.wrap = func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { h.ServeHTTP(otherEdition{w}, r) })
	}
	s.open()
	p.await("the page has loaded itself anew", `!("same" in window)`)
	p.live()
}

// otherEdition makes a daemon say that its files are others.
type otherEdition struct{ http.ResponseWriter }

var editionField = regexp.MustCompile(`"edition":"[0-9a-f]+"`)

func (o otherEdition) Write(text []byte) (int, error) {
	_, err := o.ResponseWriter.Write(editionField.ReplaceAll(text, []byte(`"edition":"another"`)))
	return len(text), err
}

func (o otherEdition) Unwrap() http.ResponseWriter { return o.ResponseWriter }

// The functions that compute are right.
func TestModel(t *testing.T) {
	p := newTab(t, newSite(t, newFake(1), webpage.Options{}).url(), 1280, 800)
	p.live()
	for expression, want := range map[string]string{
		`quantile([[1, 50], [2, 49], [4, 1]], 0.5)`:   "1",
		`quantile([[1, 50], [2, 49], [4, 1]], 0.99)`:  "2",
		`quantile([[1, 50], [2, 49], [4, 1]], 0.999)`: "4",
		`quantile([], 0.5)`:                           "null",
		`quantile([[1, 0], [null, 3]], 0.5)`:          "1",
		`recent([[1, 5], [2, 7]], [[2, 4]])`:          `[[[1,5],[2,3]],true]`,
		`recent([[1, 5]], [[1, 5]])`:                  `[[[1,5]],false]`,
	} {
		if got := inModule(p, "model.js", expression); got != want {
			t.Errorf("%s = %s, want %s", expression, got, want)
		}
	}
	// A request beyond a limit is counted in three counters, and went wrong once. Of two lanes that are one it counts once, and what
	// is not known of a lane that has just come makes the rest no unknown.
	if got := inModule(p, "overview.js", `troubles({ rate: (list, row, value) => (row.id === 9 ? null : value(row)), status: {
		counters: { refused: 1, over_limit: 1, not_executed: 1, oneway_failed: 1, region_ops_failed: 5 },
		lanes: [{ id: 1, outcomes: { ok: 100, remote_error: 10, not_executed: 1 } }, { id: 2, outcomes: { deadline: 2 } }, { id: 2, outcomes: { deadline: 2 } },
			{ id: 3 }, { id: 9, outcomes: { deadline: 1000 } }],
	} })`); got != "8" {
		t.Errorf("%s went wrong, want 8", got)
	}
	thin := func(s string) string { return strings.ReplaceAll(s, " ", "\u202f") }
	for expression, want := range map[string]string{
		`count(1234567)`: thin("1 234 567"), `count(null)`: "–", `rate(0)`: "0", `rate(0.01)`: thin("< 0.1"), `rate(12.34)`: "12.3", `rate(1234)`: thin("1.23 k"), `rate(999.9)`: thin("1.00 k"),
		`bytes(1536)`: thin("1.50 KiB"), `bytes(0)`: thin("0 B"), `micros(0.5)`: thin("500 ns"), `micros(1234)`: thin("1.23 ms"), `micros(2.5e6)`: thin("2.50 s"),
		`span(59)`: thin("59 s"), `span(3700)`: thin("1 h") + " " + thin("1 min"), `span(90000)`: thin("1 d") + " " + thin("1 h"), `day("nonsense")`: "–",
	} {
		var got string
		if err := json.Unmarshal([]byte(inModule(p, "format.js", expression)), &got); err != nil || got != want {
			t.Errorf("%s = %q, %v, want %q", expression, got, err, want)
		}
	}
	// Rates are of the last seconds; a new core begins anew.
	got := inModule(p, "model.js", `(() => {
		const m = new Model(), rates = [];
		const add = (core, n, uptime) => {
			m.add({ at: new Date().toISOString(), age_ms: 0, status: { node: "a", incarnation: "i", pids: { core }, uptime_s: uptime, counters: { n } } });
			rates.push(m.rate("", m.status, (s) => s.counters.n));
		};
		add(1, 0, 10); add(1, 100, 11); add(1, 100, 11); add(1, 200, 12); add(2, 5, 0); add(2, 15, 1); add(2, 10, 2); add(2, 500, 17); add(2, 501, 18);
		return rates;
	})()`)
	if want := "[null,100,100,100,null,10,2.5,null,1]"; got != want {
		t.Errorf("rates are %s, want %s", got, want)
	}
	// Events may come in any pieces.
	got = inModule(p, "stream.js", `(() => {
		const seen = [], parser = new Parser((name, data) => seen.push([name, data]));
		for (const c of 'event: a\ndata: {"x":1}\n\n: nothing\n\nevent: b\ndata: 2\n\n') parser.add(c);
		return seen;
	})()`)
	if want := `[["a",{"x":1}],["b",2]]`; got != want {
		t.Errorf("events are %s, want %s", got, want)
	}
}

// inModule evaluates an expression with all that a module of the page exports.
func inModule(p *tab, module, expression string) string {
	p.t.Helper()
	return string(eval[json.RawMessage](p, fmt.Sprintf(`await (async () => {
		with (await import(%s)) return %s;
	})()`, quoted("/"+module), expression)))
}

// dark reports whether the page has dark colours.
func (p *tab) dark() bool {
	p.t.Helper()
	return eval[bool](p, `getComputedStyle(document.body).backgroundColor.match(/\d+/g).every((c) => c < 80)`)
}

// The colours are the system's unless one has chosen, and that is remembered.
func TestTheme(t *testing.T) {
	p := newTab(t, newSite(t, newFake(1), webpage.Options{}).url(), 1280, 800)
	p.live()
	for _, step := range []struct {
		system, label string
		dark          bool
	}{{"light", "Auto", false}, {"dark", "Auto", true}, {"dark", "Light", false}, {"light", "Dark", true}} {
		p.colours(step.system)
		for range 3 {
			if eval[string](p, `document.getElementById("theme-name").textContent`) != step.label {
				p.do(chromedp.Click(`#theme`))
			}
		}
		p.do(chromedp.Navigate(eval[string](p, `location.href`)))
		p.live()
		if got := p.dark(); got != step.dark {
			t.Errorf("system %s, switch %s: dark is %v", step.system, step.label, got)
		}
	}
}
