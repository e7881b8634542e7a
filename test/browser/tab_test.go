package browser

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// tab is a page of a browser with a profile of its own.
type tab struct {
	t    *testing.T
	ctx  context.Context
	stop func()

	mu       sync.Mutex
	problems []string // exceptions, what the policy has refused, other hosts
}

// newTab opens an address in a window of the given size. The test fails at its end if the
// page has thrown an exception, violated its policy, or asked anybody but its own server.
func newTab(t *testing.T, url string, width, height int64) *tab {
	t.Helper()
	needChromium(t)
	ctx, cancel := chromedp.NewContext(chromium.ctx, chromedp.WithNewBrowserContext())
	p := &tab{t: t, stop: func() {}}
	t.Cleanup(func() {
		if t.Failed() {
			p.screenshot("failed")
		}
		p.stop()
		cancel()
		p.mu.Lock()
		defer p.mu.Unlock()
		for _, problem := range p.problems {
			t.Error(problem)
		}
	})
	if err := chromedp.Do(ctx); err != nil {
		t.Fatal(err)
	}
	// What bounds a tab must not be what opens it: the browser would end with it.
	p.ctx, p.stop = context.WithTimeout(ctx, limit)
	if err := chromedp.Listen(ctx, p.listen(url)); err != nil {
		t.Fatal(err)
	}
	call(p, network.Enable, network.EnableParams{})
	call(p, log.Enable, cdp.Empty{})
	call(p, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: width, Height: height, DeviceScaleFactor: 1, Mobile: width < 500})
	p.do(chromedp.Navigate(url))
	return p
}

// listen returns what notes problems.
func (p *tab) listen(url string) func(event any) {
	note := func(format string, args ...any) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.problems = append(p.problems, fmt.Sprintf(format, args...))
	}
	return func(event any) {
		switch e := event.(type) {
		case *runtime.EventExceptionThrown:
			what := e.ExceptionDetails.Text
			if e.ExceptionDetails.Exception != nil {
				what += ": " + e.ExceptionDetails.Exception.Description
			}
			note("exception in the page: %s", what)
		case *log.EventEntryAdded:
			if e.Entry.Source == log.EntrySourceSecurity {
				note("the browser says: %s", e.Entry.Text)
			}
		case *network.EventRequestWillBeSent:
			if !strings.HasPrefix(e.Request.URL, url) {
				note("the page asks for %s", e.Request.URL)
			}
		}
	}
}

// call gives the browser a command for the tab.
func call[P, R any](p *tab, command cdp.Command[P, R], params P) R {
	p.t.Helper()
	r, err := chromedp.Call(p.ctx, command, params)
	if err != nil {
		p.t.Fatal(err)
	}
	return r
}

// do has the tab do something.
func (p *tab) do(steps ...chromedp.Action[chromedp.Void]) {
	p.t.Helper()
	if err := chromedp.Do(p.ctx, steps...); err != nil {
		p.t.Fatal(err)
	}
}

// eval returns what an expression, which may await, is in the page.
func eval[T any](p *tab, expression string) (v T) {
	p.t.Helper()
	v, err := tryEval[T](p, expression)
	if err != nil {
		p.t.Fatal(err)
	}
	return v
}

func tryEval[T any](p *tab, expression string) (v T, err error) {
	text, err := chromedp.Run(p.ctx, chromedp.Evaluate[string]("(async () => JSON.stringify("+expression+") ?? 'null')()", chromedp.EvalAwaitPromise))
	if err != nil {
		return v, fmt.Errorf("%s: %w", expression, err)
	}
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		return v, fmt.Errorf("%s is %s: %w", expression, text, err)
	}
	return v, nil
}

// await waits until an expression is true in the page. While another page is being loaded
// there may be nothing to ask.
func (p *tab) await(what, expression string) {
	p.t.Helper()
	for {
		is, err := tryEval[bool](p, "!!("+expression+")")
		if is {
			return
		}
		select {
		case <-p.ctx.Done():
			p.t.Fatalf("not seen: %s; %v", what, err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// live waits until the page shows fresh data.
func (p *tab) live() {
	p.t.Helper()
	p.await("fresh data", "document.getElementById('freshness').dataset.state === 'live'")
}

// colours has the system ask for light or dark.
func (p *tab) colours(scheme string) {
	p.t.Helper()
	call(p, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}})
}

// screenshot keeps the whole page as PNG.
func (p *tab) screenshot(name string) {
	p.t.Helper()
	dir := *screenshots
	if dir == "" {
		dir = p.t.TempDir()
	} else if err := os.MkdirAll(dir, 0o755); err != nil {
		p.t.Error(err)
		return
	}
	png, err := chromedp.Run(p.ctx, chromedp.FullScreenshot(100))
	if err != nil {
		p.t.Errorf("screenshot %s: %v", name, err)
		return
	}
	file := filepath.Join(dir, p.t.Name()+"-"+name+".png")
	if err := os.WriteFile(file, png, 0o644); err != nil {
		p.t.Error(err)
	}
}
