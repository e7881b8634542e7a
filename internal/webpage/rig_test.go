package webpage

import (
	"bufio"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rdmad/rdmad/internal/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// limit bounds every wait, and how long a test reads from one connection.
const limit = 2 * time.Minute

// quick is the interval of tests that wait for several samples.
const quick = 20 * time.Millisecond

// counting is a source that counts how often it is asked, and by how many at once.
type counting struct {
	asked, now, most atomic.Int64
	// answer is what it says; nil for an empty object.
	answer func(ctx context.Context) (json.RawMessage, error)
}

func (c *counting) Status(ctx context.Context) (json.RawMessage, error) {
	c.asked.Add(1)
	if n := c.now.Add(1); n > c.most.Load() {
		c.most.Store(n)
	}
	defer c.now.Add(-1)
	if c.answer == nil {
		return json.RawMessage(`{}`), nil
	}
	return c.answer(ctx)
}

// open serves a page until the test ends.
func open(t *testing.T, source Source, o Options) (*Page, *httptest.Server) {
	t.Helper()
	p := New(source, o)
	s := httptest.NewServer(p)
	t.Cleanup(func() {
		p.Close()
		s.CloseClientConnections()
		s.Close()
		http.DefaultClient.CloseIdleConnections()
	})
	return p, s
}

// get asks for a path; the body is closed when the test ends.
func get(t *testing.T, url string, header ...string) *http.Response {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	a, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		a.Body.Close()
	})
	return a
}

// watching is a viewer that reads events.
type watching struct {
	t      *testing.T
	answer *http.Response
	lines  *bufio.Scanner
}

func watch(t *testing.T, url string) *watching {
	t.Helper()
	a := get(t, url+"/events")
	if a.StatusCode != http.StatusOK {
		t.Fatalf("status %d", a.StatusCode)
	}
	w := &watching{t: t, answer: a, lines: bufio.NewScanner(a.Body)}
	w.lines.Buffer(nil, 64<<20)
	if name, data := w.next(); name != "hello" || !strings.Contains(data, edition) {
		t.Fatalf("the first event is %s %s", name, data)
	}
	return w
}

// next reads an event, which is exactly two lines and an empty one.
func (w *watching) next() (name, data string) {
	w.t.Helper()
	name, data, ok := w.another()
	if !ok {
		w.t.Fatalf("the stream has ended: %v", w.lines.Err())
	}
	return name, data
}

// another is next, unless the stream ends.
func (w *watching) another() (name, data string, more bool) {
	w.t.Helper()
	var got []string
	for len(got) < 3 {
		if !w.lines.Scan() {
			return "", "", false
		}
		got = append(got, w.lines.Text())
	}
	name, ok := strings.CutPrefix(got[0], "event: ")
	data, is := strings.CutPrefix(got[1], "data: ")
	if !ok || !is || got[2] != "" {
		w.t.Fatalf("no event: %.200q", got)
	}
	return name, data, true
}

// ends checks that the stream ends.
func (w *watching) ends() {
	w.t.Helper()
	for w.lines.Scan() {
	}
	if err := w.lines.Err(); err != nil {
		w.t.Errorf("the stream ends with %v", err)
	}
}

func (w *watching) leave() { w.answer.Body.Close() }

// eventually polls a condition.
func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for end := time.Now().Add(limit); !condition(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not seen: %s", what)
		}
	}
}

// viewers returns how many there are, and whether there is a sampler.
func (p *Page) viewers() (n int, sampling bool) {
	p.hub.mu.Lock()
	defer p.hub.mu.Unlock()
	return len(p.hub.viewers), p.hub.running
}
