package browser

import (
	"testing"

	"github.com/rdmad/rdmad/cmd/rdmad/sandbox"
	"github.com/rdmad/rdmad/internal/webpage"
)

// contrasts returns the texts whose contrast with what is behind them is too low for
// WCAG's level AA.
const contrasts = `(() => {
	const parse = (c) => c.match(/[\d.]+/g).map(Number);
	const over = ([r, g, b, a = 1], [R, G, B]) => [r * a + R * (1 - a), g * a + G * (1 - a), b * a + B * (1 - a)];
	const light = (c) => c.slice(0, 3).map((v) => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4).reduce((s, v, i) => s + v * [0.2126, 0.7152, 0.0722][i], 0);
	const behind = (e) => {
		const c = e ? parse(getComputedStyle(e).backgroundColor) : [255, 255, 255];
		return c[3] === 0 ? behind(e.parentElement) : c[3] !== undefined ? over(c, behind(e.parentElement)) : c;
	};
	const bad = [];
	const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
	for (let n; (n = texts.nextNode()); ) {
		const e = n.parentElement;
		if (!n.textContent.trim() || !e.checkVisibility() || e.closest(".hidden, noscript, option, title") || e.disabled) continue;
		const style = getComputedStyle(e), ground = behind(e);
		const [a, b] = [light(over(parse(style.color), ground)), light(ground)].sort((x, y) => y - x);
		const size = parseFloat(style.fontSize), large = size >= 24 || (size >= 18.66 && style.fontWeight >= 700);
		const ratio = (a + 0.05) / (b + 0.05);
		if (ratio < (large ? 3 : 4.5)) bad.push(ratio.toFixed(2) + " " + e.className + " " + n.textContent.trim().slice(0, 40));
	}
	return bad;
})()`

// outside returns what reaches beyond the width of the window.
const outside = `[...document.querySelectorAll("body *")].filter((e) => {
	const r = e.getBoundingClientRect();
	return e.checkVisibility() && !e.closest("nav, svg, .hidden, .skip") && r.width > 0 && (r.right > innerWidth + 0.5 || r.left < -0.5);
}).map((e) => e.tagName + "." + e.className + " " + e.textContent.slice(0, 60))`

// unnamed returns what can be operated and has no name, and what is not in a table as it
// should be.
const unnamed = `[
	...[...document.querySelectorAll("button, input, select, a")].filter((e) => !(e.ariaLabel || e.textContent.trim() || e.labels?.length)),
	...[...document.querySelectorAll("svg:not([aria-hidden])")].filter((e) => e.getAttribute("role") !== "img" || !e.ariaLabel),
	...[...document.querySelectorAll("table")].filter((e) => !e.caption || !e.querySelector("thead th[scope=col][aria-sort]") || [...e.tBodies[0].rows].some((r) => r.cells[0].scope !== "row")),
	...[...document.querySelectorAll("section")].filter((e) => !document.getElementById(e.getAttribute("aria-labelledby"))?.textContent),
].map((e) => e.outerHTML.slice(0, 120))`

// The page under load looks as it should: in light and dark, on a screen and on a phone.
func TestLooks(t *testing.T) {
	n := newNodes(t, sandbox.Settings{TLS: true})
	n.load("--clients", "4", "--depth", "16")
	n.load("--clients", "2", "--depth", "4", "--size", "4KiB")
	for _, size := range []struct {
		name, url     string
		width, height int64
	}{{"calling-screen", n.pageA, 1280, 800}, {"serving-screen", n.pageB, 1280, 800}, {"serving-phone", n.pageB, 360, 740}, {"calling-tablet", n.pageA, 800, 1000}} {
		p := newTab(t, size.url, size.width, size.height)
		p.live()
		p.samples(4)
		for _, scheme := range []string{"light", "dark"} {
			p.colours(scheme)
			p.check(size.name+", "+scheme, contrasts)
			p.check(size.name, outside)
			p.screenshot(size.name + "-" + scheme)
		}
		p.check(size.name, unnamed)
	}
}

// So does a page with trouble of all kinds, with long names and with many workers.
func TestLooksOfTrouble(t *testing.T) {
	f := newFake(60)
	trouble(f.status)
	url := newSite(t, f, webpage.Options{}).url()
	for _, width := range []int64{1280, 360} {
		p := newTab(t, url, width, 800)
		p.live()
		p.samples(2)
		for _, scheme := range []string{"light", "dark"} {
			p.colours(scheme)
			p.check(scheme, contrasts)
			p.check(scheme, outside)
			p.screenshot(map[bool]string{true: "phone", false: "screen"}[width < 500] + "-" + scheme)
		}
	}
}

// check reports what an expression finds.
func (p *tab) check(where, expression string) {
	p.t.Helper()
	if found := eval[[]string](p, expression); len(found) > 0 {
		p.t.Errorf("%s: %d, such as %q", where, len(found), found[:min(len(found), 5)])
	}
}

// Screen readers find their way, and are not told of every sample.
func TestAccessible(t *testing.T) {
	p := newTab(t, newSite(t, newFake(3), webpage.Options{}).url(), 1280, 800)
	p.live()
	for _, one := range []string{"header", "nav[aria-label]", "main", "footer", "h1", "[aria-live]", "html[lang]", "title"} {
		if n := eval[int](p, `document.querySelectorAll(`+quoted(one)+`).length`); n != 1 {
			t.Errorf("%d of %s", n, one)
		}
	}
	p.check("names", unnamed)
	eval[bool](p, `(window.said = 0, new MutationObserver(() => window.said++).observe(document.getElementById("announcer"), { childList: true, characterData: true, subtree: true }), true)`)
	p.samples(3)
	if n := eval[int](p, `window.said`); n != 0 {
		t.Errorf("screen readers were told %d times that nothing has happened", n)
	}
}
