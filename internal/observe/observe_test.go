package observe

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rdmad/rdmad/internal/counters"
	"github.com/rdmad/rdmad/internal/leaktest"
	"github.com/rdmad/rdmad/shm"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// fake is a daemon of which a test says what it does.
type fake struct {
	file *counters.File
	// hang: agents do not answer while it is locked. asked counts questions to them.
	hang  sync.Mutex
	asked atomic.Int64
	// mu is what Facts waits for, looked counts calls of it.
	mu     sync.Mutex
	looked atomic.Int64
	facts  Facts
}

func (f *fake) Status(context.Context) (json.RawMessage, error) {
	f.asked.Add(1)
	f.hang.Lock()
	defer f.hang.Unlock()
	return json.RawMessage(`{"node":"a"}`), nil
}

func (f *fake) Alive(context.Context) {
	f.asked.Add(1)
	f.hang.Lock()
	defer f.hang.Unlock()
}

func (f *fake) Snapshot() (*counters.Snapshot, error) { return f.file.Snapshot() }

func (f *fake) Facts() Facts {
	f.looked.Add(1)
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.facts
}

// newFake makes a daemon that has counted something of everything.
func newFake(t *testing.T) *fake {
	t.Helper()
	file, err := counters.New(counters.Identity{Node: "a", Program: "1", Digest: "d1"}, counters.Rows{Agents: 2, Lanes: 3, Services: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := file.Close(); err != nil {
			t.Error(err)
		}
	})
	for n := range 2 {
		l := file.Lane(counters.LaneID{Domain: "d", Peer: "b", Class: "small", Number: n}, 0, 64, 128)
		l.Requests, l.BusySlots = 10, 3
		l.Outcomes.Add(0)
		l.Outcomes.Add(6)
		l.GroupSizes.Add(3)
		l.Latency.Add(2048)
		l.Latency.Add(1 << 50)
	}
	file.Lane(counters.LaneID{Domain: "d", Peer: "b", Class: "small", Direction: counters.In}, 0, 64, 128)
	file.Lane(counters.LaneID{Domain: "d", Peer: "c", Class: "small"}, 1, 64, 128).Requests = 5
	s := file.Service(counters.ServiceID{Domain: "d", Service: "s", Method: "m"}, 0)
	s.Outcomes.Add(0)
	s.Latency.Add(5000)
	file.Service(counters.ServiceID{Domain: "d", Service: "s", Method: "n"}, 1).Outcomes.Add(4)
	a := file.Agent(0)
	a.Counts.Wakes = 7
	a.Beat(shm.Nanotime())
	a.Cycles.Add(3e6)
	file.Agent(1).Become(counters.AgentAsleep)
	return &fake{file: file, facts: Facts{Fabric: "tcp", Peers: []Peer{{Name: "b", Connected: true, AgeS: 5}, {Name: "c"}}}}
}

// serve starts a server and returns a function that gets a path from it.
func serve(t *testing.T, o Options, profiles bool) func(path string) (status int, body string) {
	t.Helper()
	s := New(o)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- s.Serve(l, profiles) }()
	t.Cleanup(func() {
		if err := errors.Join(s.Close(), <-done); err != nil {
			t.Error(err)
		}
		http.DefaultClient.CloseIdleConnections()
	})
	return func(path string) (int, string) {
		t.Helper()
		r, err := http.Get("http://" + l.Addr().String() + path)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Body.Close()
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Fatal(err)
		}
		return r.StatusCode, string(body)
	}
}

// A method whose names are those of what has no row is added to that: /metrics must not have the same series twice.
func TestMethodThatIsCalledOther(t *testing.T) {
	file, err := counters.New(counters.Identity{Node: "a", Program: "1", Digest: "d1"}, counters.Rows{Agents: 2, Lanes: 1, Services: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	file.Service(counters.ServiceID{Domain: "other", Service: "other", Method: "other"}, 0).Outcomes.Add(0)
	for i := range 2 { // neither has a row
		file.Service(counters.ServiceID{Domain: "d", Service: "s", Method: strconv.Itoa(i)}, i).Outcomes.Add(0)
	}
	const want = `rdmad_requests_total{domain="other",method="other",outcome="ok",service="other"} 3`
	if code, body := serve(t, Options{Source: &fake{file: file}}, false)("/metrics"); code != 200 || !strings.Contains(body, want) {
		t.Errorf("%d, without %s", code, want)
	}
}

// Lanes without a row are those of all directions: their times are no round trips.
func TestStageOfOtherLanes(t *testing.T) {
	file, err := counters.New(counters.Identity{Node: "a", Program: "1", Digest: "d1"}, counters.Rows{Agents: 1, Lanes: 0, Services: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for _, d := range []counters.Direction{counters.Out, counters.In} {
		file.Lane(counters.LaneID{Domain: "d", Peer: "b", Class: "small", Direction: d}, 0, 64, 128).Latency.Add(2048)
	}
	const labels = `rdmad_stage_duration_seconds_count{class="other",direction="other",domain="other",peer="other",stage=`
	_, body := serve(t, Options{Source: &fake{file: file}}, false)("/metrics")
	if !strings.Contains(body, labels+`"other"} 2`) || !strings.Contains(body, labels+`"queue"} 0`) || strings.Contains(body, `"round_trip"`) {
		t.Errorf("the stages of lanes without a row:\n%s", body)
	}
}

// What a device says of itself may be no text: the names of network interfaces are any bytes.
func TestDetailThatIsNoText(t *testing.T) {
	f := newFake(t)
	f.facts.Detail = "domain eth\xff"
	if code, body := serve(t, Options{Source: f}, false)("/metrics"); code != 200 || !strings.Contains(body, "detail=\"domain eth\uFFFD\"") {
		t.Errorf("%d, without the detail", code)
	}
}

// Each address has what it is for, and nothing can be changed.
func TestAddresses(t *testing.T) {
	get := serve(t, Options{Source: newFake(t)}, true)
	for path, want := range map[string]string{
		"/": "/metrics", "/healthz": "ok\n", "/readyz": "ok\n", "/statusz": `{"node":"a"}`,
		"/metrics": `rdmad_config_info{digest="d1"} 1`, "/debug/pprof/cmdline": "observe", "/debug/pprof/": "goroutine",
	} {
		if code, body := get(path); code != 200 || !strings.Contains(body, want) {
			t.Errorf("%s: %d, %.200s", path, code, body)
		}
	}
	if code, _ := get("/nothing"); code != 404 {
		t.Errorf("nothing: %d", code)
	}
	for _, seconds := range []string{"1e9", "121", "0", "-1", "0.01", "1.5", "x"} { // package pprof would take 30 s for most of them
		if code, _ := get("/debug/pprof/profile?seconds=" + seconds); code != 400 {
			t.Errorf("a profile of %s seconds: %d", seconds, code)
		}
	}
	if code, _ := get("/debug/pprof/trace?seconds=0.01"); code != 200 {
		t.Errorf("a short trace: %d", code)
	}
	w := httptest.NewRecorder()
	New(Options{Source: newFake(t)}).handler(true).ServeHTTP(w, httptest.NewRequest("POST", "/metrics", nil))
	if w.Code != http.StatusMethodNotAllowed {
		t.Errorf("a POST: %d", w.Code)
	}
	get = serve(t, Options{Source: newFake(t), Page: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "page") })}, false)
	if code, body := get("/debug/pprof/"); code != 403 || !strings.Contains(body, "observe.pprof") {
		t.Errorf("profiles: %d, %s", code, body)
	}
	if _, body := get("/some/file.js"); body != "page" {
		t.Errorf("the page: %s", body)
	}
}

// What is counted is what metrics say; lanes of a class are one, and what has no row is
// "other".
func TestMetrics(t *testing.T) {
	_, body := serve(t, Options{Source: newFake(t)}, false)("/metrics")
	for _, want := range []string{
		`rdmad_calls_total{class="small",direction="out",domain="d",outcome="maybe_executed",peer="b"} 2`,
		`rdmad_lane_requests_total{class="small",direction="out",domain="d",peer="b"} 20`,
		`rdmad_lane_requests_total{class="other",direction="other",domain="other",peer="other"} 5`,
		`rdmad_slots{class="small",direction="out",domain="d",peer="b",state="busy"} 6`,
		`rdmad_slots{class="small",direction="out",domain="d",peer="b",state="free"} 122`,
		`rdmad_batch_size_bucket{class="small",direction="out",domain="d",peer="b",le="2"} 0`,
		`rdmad_batch_size_bucket{class="small",direction="out",domain="d",peer="b",le="4"} 2`,
		`rdmad_stage_duration_seconds_bucket{class="small",direction="out",domain="d",peer="b",stage="round_trip",le="2.048e-06"} 0`,
		`rdmad_stage_duration_seconds_bucket{class="small",direction="out",domain="d",peer="b",stage="round_trip",le="4.096e-06"} 2`,
		`rdmad_stage_duration_seconds_bucket{class="small",direction="out",domain="d",peer="b",stage="round_trip",le="+Inf"} 4`,
		`rdmad_requests_total{domain="d",method="m",outcome="ok",service="s"} 1`,
		`rdmad_requests_total{domain="other",method="other",outcome="deadline",service="other"} 1`,
		`rdmad_request_duration_seconds_sum{domain="d",method="m",service="s"} 5e-06`,
		`rdmad_wakes_total{agent="0"} 7`, `rdmad_agent_stuck_seconds{agent="1"} 0`, `rdmad_agent_longest_cycle_seconds{agent="0"} 0.003`,
		`rdmad_peer_up{peer="b"} 1`, `rdmad_peer_up{peer="c"} 0`, `rdmad_transport_info{detail="",transport="tcp"} 1`,
		"go_goroutines", "process_resident_memory_bytes",
	} {
		if !strings.Contains(body, want) {
			t.Errorf("no %s", want)
		}
	}
}

// Agents that hang make the questions to them fail in time, with a reason, and are not
// asked again; metrics go on.
func TestHang(t *testing.T) {
	f := newFake(t)
	get := serve(t, Options{Source: f}, false)
	f.file.Agent(0).Beat(shm.Nanotime() - int64(time.Minute))
	f.hang.Lock()
	for range 3 {
		if code, body := get("/healthz"); code != 503 || !strings.Contains(body, "not all agents answer: no answer for") || !strings.Contains(body, "agent 0 has been in one cycle for ") {
			t.Errorf("%d, %s", code, body)
		}
		if code, body := get("/statusz"); code != 503 || !strings.Contains(body, "no answer for") {
			t.Errorf("%d, %s", code, body)
		}
	}
	code, body := get("/metrics")
	_, stuck, _ := strings.Cut(body, `rdmad_agent_stuck_seconds{agent="0"} `)
	stuck, _, _ = strings.Cut(stuck, "\n")
	if s, err := strconv.ParseFloat(stuck, 64); code != 200 || err != nil || s < 60 {
		t.Errorf("metrics: %d, stuck for %q, %.100s", code, stuck, body)
	}
	if n := f.asked.Load(); n != 2 {
		t.Errorf("the agents were asked %d times", n)
	}
	f.hang.Unlock()
	await(t, func() bool { code, _ := get("/healthz"); return code == 200 })
}

func await(t *testing.T, f func() bool) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); !f(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it does not happen")
		}
	}
}

// Many who ask at once, and again and again, are one question in a second.
func TestShared(t *testing.T) {
	f := newFake(t)
	get := serve(t, Options{Source: f}, false)
	began := time.Now()
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 20 {
				if code, body := get("/statusz"); code != 200 {
					t.Errorf("%d, %s", code, body)
				}
			}
		})
	}
	all.Wait()
	if n, most := f.asked.Load(), int64(time.Since(began)/freshStatus)+1; n > most {
		t.Errorf("asked %d times, at most %d", n, most)
	}
}

func TestReady(t *testing.T) {
	for _, c := range []struct {
		peers  string
		facts  Facts
		reason string
	}{
		{ReadyNone, Facts{Peers: []Peer{{Name: "b"}}}, ""},
		{ReadyAny, Facts{}, ""},
		{ReadyAny, Facts{Peers: []Peer{{Name: "b"}, {Name: "c", Connected: true}}}, ""},
		{ReadyAny, Facts{Peers: []Peer{{Name: "b"}}}, "no peer is connected"},
		{ReadyAll, Facts{Peers: []Peer{{Name: "b"}, {Name: "c", Connected: true}}}, "not connected: b"},
		{ReadyAll, Facts{}, ""},
		{ReadyNone, Facts{Draining: true}, "the node drains"},
	} {
		f := newFake(t)
		f.facts = c.facts
		code, body := serve(t, Options{Source: f, Peers: c.peers}, false)("/readyz")
		if ok := code == 200; ok != (c.reason == "") || !strings.Contains(body, c.reason) {
			t.Errorf("%s, %+v: %d, %s", c.peers, c.facts, code, body)
		}
	}
}

// A daemon that hangs as a whole is not ready, which is said in time; however many ask, one goroutine waits for it.
func TestStuckConductor(t *testing.T) {
	f := newFake(t)
	s := New(Options{Source: f})
	s.facts.patience = 10 * time.Millisecond
	h := s.handler(false)
	ask := func() *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("GET", "/readyz", nil))
		return w
	}
	f.mu.Lock()
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() {
			if w := ask(); w.Code != http.StatusServiceUnavailable || !strings.Contains(w.Body.String(), "the conductor does not answer") {
				t.Errorf("%d, %s", w.Code, w.Body)
			}
		})
	}
	all.Wait()
	if n := f.looked.Load(); n != 1 {
		t.Errorf("it was asked %d times", n)
	}
	f.mu.Unlock()
	await(t, func() bool { return ask().Code == http.StatusOK })
}

// Who connects and says nothing, or too much, is not waited for, and keeps nobody out.
func TestSlow(t *testing.T) {
	s := New(Options{Source: newFake(t)})
	if s.with.WriteTimeout != writeTimeout || s.without.WriteTimeout != writeTimeout || s.with.ReadHeaderTimeout != readTimeout || s.with.MaxHeaderBytes != maxHeader || s.with.IdleTimeout != idleTimeout {
		t.Error("there are no limits")
	}
	w := httptest.NewServer(s.handler(true))
	defer w.Close()
	r, err := http.NewRequest("GET", w.URL+"/healthz", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("X", strings.Repeat("x", 2<<20))
	answer, err := http.DefaultTransport.RoundTrip(r)
	if err == nil {
		answer.Body.Close()
		if answer.StatusCode < 400 {
			t.Errorf("a large header: %d", answer.StatusCode)
		}
	}
	http.DefaultClient.CloseIdleConnections()
}
