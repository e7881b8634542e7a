package webpage

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

func newServer(t *testing.T, h http.Handler) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	return s
}

// An event is one line of data, whatever is in the status.
func TestFraming(t *testing.T) {
	status := map[string]any{"name": "a\nevent: hello\n\ndata: {}\r\u2028</script>\x00", "n": 1}
	pretty, err := json.MarshalIndent(status, "\n\n", "\n")
	if err != nil {
		t.Fatal(err)
	}
	src := &counting{answer: func(context.Context) (json.RawMessage, error) { return pretty, nil }}
	_, s := open(t, src, Options{Interval: quick})
	w := watch(t, s.URL)
	if got := w.answer.Header.Get("Content-Type"); got != "text/event-stream" {
		t.Errorf("Content-Type %q", got)
	}
	if got := w.answer.Header.Get("Cache-Control"); got != "no-store" {
		t.Errorf("Cache-Control %q", got)
	}
	last := time.Time{}
	for range 3 {
		name, data := w.next()
		var sample struct {
			At     time.Time      `json:"at"`
			AgeMS  float64        `json:"age_ms"`
			Status map[string]any `json:"status"`
		}
		if err := json.Unmarshal([]byte(data), &sample); err != nil || name != "sample" {
			t.Fatalf("%s %s: %v", name, data, err)
		}
		if sample.Status["name"] != status["name"] || !sample.At.After(last) || sample.AgeMS < 0 || sample.AgeMS > 1000*limit.Seconds() {
			t.Errorf("%+v after %v", sample, last)
		}
		last = sample.At
	}
}

// What is wrong is said, and what comes afterwards is shown again.
func TestTrouble(t *testing.T) {
	src := &counting{}
	answers := []struct {
		text string
		err  error
		want string
	}{
		{err: errors.New("the daemon \"b\"\nis away"), want: `"error":"the daemon \"b\"\nis away"`},
		{text: "{", want: `"error":"the status is no JSON`},
		{err: errors.New("away again"), want: `"error":"away again"`},
		{text: "", want: `"error":"the status is no JSON`},
	}
	// The source goes on when the viewer has seen its answer: a viewer that is late for one
	// gets the next instead.
	var seen atomic.Int64
	src.answer = func(context.Context) (json.RawMessage, error) {
		if i := int(seen.Load()); i < len(answers) {
			return json.RawMessage(answers[i].text), answers[i].err
		}
		return json.RawMessage(`{"ok":true}`), nil
	}
	_, s := open(t, src, Options{Interval: quick})
	w := watch(t, s.URL)
	name, data := w.next()
	for _, a := range answers {
		if name != "trouble" || !strings.Contains(data, a.want) || strings.Contains(data, "status\":") {
			t.Errorf("%s %s, want %s", name, data, a.want)
		}
		seen.Add(1)
		for name == "trouble" && strings.Contains(data, a.want) { // what was said before may come once more
			name, data = w.next()
		}
	}
	if name != "sample" || !strings.Contains(data, `"status":{"ok":true}`) {
		t.Errorf("%s %s", name, data)
	}
}

// A source that does not answer is trouble, not silence.
func TestSourceHangs(t *testing.T) {
	src := &counting{answer: func(ctx context.Context) (json.RawMessage, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}}
	_, s := open(t, src, Options{Interval: quick, Patience: 2 * time.Second})
	if name, data := watch(t, s.URL).next(); name != "trouble" || !strings.Contains(data, "deadline") {
		t.Errorf("%s %s", name, data)
	}
}

func TestViewersAreBounded(t *testing.T) {
	p, s := open(t, &counting{}, Options{Viewers: 2})
	one := watch(t, s.URL)
	watch(t, s.URL)
	a := get(t, s.URL+"/events")
	if a.StatusCode != http.StatusServiceUnavailable || a.Header.Get("Retry-After") == "" {
		t.Errorf("the third viewer gets status %d, %v", a.StatusCode, a.Header)
	}
	one.leave()
	eventually(t, "the place is free", func() bool { n, _ := p.viewers(); return n == 1 })
	watch(t, s.URL).next()
}

// Viewers who come by TCP take no places of those by the Unix socket.
func TestViewersOfOneNetworkLeaveTheOthersTheirPlaces(t *testing.T) {
	p, s := open(t, &counting{}, Options{Viewers: 1})
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	local := &httptest.Server{Listener: l, Config: &http.Server{Handler: p}}
	local.Start()
	t.Cleanup(func() {
		local.CloseClientConnections()
		local.Close()
	})
	watch(t, s.URL)
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", l.Addr().String())
	}}}
	for _, want := range []int{http.StatusOK, http.StatusServiceUnavailable} {
		a, err := client.Get("http://localhost/events")
		if err != nil {
			t.Fatal(err)
		}
		defer a.Body.Close()
		if a.StatusCode != want {
			t.Errorf("by the Unix socket: status %d, want %d", a.StatusCode, want)
		}
	}
}

// A viewer that does not read is dropped; others get their samples meanwhile.
func TestSlowViewer(t *testing.T) {
	large, err := json.Marshal(strings.Repeat("x", 4<<20))
	if err != nil {
		t.Fatal(err)
	}
	src := &counting{answer: func(context.Context) (json.RawMessage, error) { return large, nil }}
	p, s := open(t, src, Options{Interval: time.Second, Patience: 8 * time.Second})
	c, err := net.Dial("tcp", s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.(*net.TCPConn).SetReadBuffer(4096); err != nil { // soon full
		t.Fatal(err)
	}
	if _, err := c.Write([]byte("GET /events HTTP/1.1\r\nHost: x\r\n\r\n")); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the slow viewer is there", func() bool { n, _ := p.viewers(); return n == 1 })
	// Where a thread stands still for long, this one is a slow viewer, too: then there is another try.
	for range 5 {
		w := watch(t, s.URL)
		for alone := false; ; {
			if _, _, more := w.another(); !more {
				break
			}
			if alone {
				return
			}
			n, _ := p.viewers()
			alone = n == 1
		}
	}
	t.Error("it has not been the only one who still watches")
}

func TestCrossSite(t *testing.T) {
	_, s := open(t, &counting{}, Options{})
	for site, want := range map[string]int{"cross-site": 403, "same-site": 403, "same-origin": 200, "none": 200} {
		if a := get(t, s.URL+"/events", "Sec-Fetch-Site", site); a.StatusCode != want {
			t.Errorf("%s: status %d, want %d", site, a.StatusCode, want)
		}
	}
}

// HEAD asks nobody; a connection that cannot be limited is refused.
func TestNoStream(t *testing.T) {
	src := &counting{}
	p := New(src, Options{})
	defer p.Close()
	w := httptest.NewRecorder()
	p.ServeHTTP(w, httptest.NewRequest(http.MethodHead, "/events", nil))
	if w.Code != http.StatusOK || w.Header().Get("Content-Type") != "text/event-stream" {
		t.Errorf("HEAD: status %d, %v", w.Code, w.Header())
	}
	if n := src.asked.Load(); n != 0 {
		t.Errorf("asked %d times", n)
	}
	w = httptest.NewRecorder()
	p.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/events", nil))
	if w.Code != http.StatusInternalServerError {
		t.Errorf("status %d", w.Code)
	}
}
