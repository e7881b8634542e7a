package test

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"

	view "github.com/rdmad/rdmad/cmd/rdmad/counted"
	"github.com/rdmad/rdmad/cmd/rdmad/sandbox"
	"github.com/rdmad/rdmad/internal/status"
)

// get asks a node by HTTP, by its Unix socket or by an address.
func (c *cluster) get(name, address, path string) (status int, body string) {
	c.t.Helper()
	return c.getAs("node", name, address, path)
}

// getAs asks by a name of the host.
func (c *cluster) getAs(host, name, address, path string) (status int, body string) {
	c.t.Helper()
	network := "tcp"
	if address == "" {
		network, address = "unix", strings.TrimSuffix(c.socket(name), ".sock")+".http"
	}
	transport := &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, address)
		},
	}
	r, err := http.NewRequestWithContext(bounded(c.t), "GET", "http://"+host+path, nil)
	if err != nil {
		c.t.Fatal(err)
	}
	answer, err := transport.RoundTrip(r)
	if err != nil {
		return 0, err.Error()
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return 0, err.Error()
	}
	return answer.StatusCode, string(text)
}

// counters runs the command.
func (c *cluster) counters(name string) (v view.View) {
	c.t.Helper()
	got := run(c.t, rdmad(c.t, "counters", "--json", "--socket", c.socket(name)))
	if got.status != 0 || json.Unmarshal([]byte(got.out), &v) != nil {
		c.t.Fatalf("rdmad counters: status %d\n%s%s", got.status, got.out, got.errOut)
	}
	return v
}

// answers sums up what the lanes of a direction have counted.
func answers(v *view.View, direction string) (answered, timed uint64) {
	for _, l := range v.Lanes {
		if l.Direction == direction {
			answered += l.Counters["answers"]
			timed += l.Latency.Count
		}
	}
	return answered, timed
}

// The counters go on under load, are right when it is over, and are there when the core
// is halted, and when the daemon has died.
func TestCounters(t *testing.T) {
	c := newPair(t, sandbox.Settings{})
	startService(t, c, "b", "jobs")
	c.awaitService("a", "b", "jobs", "transform", 0)
	// No call of it is called off, so that the numbers of both ends are the same.
	tr, conn, stop := new(traffic), c.attach("a"), make(chan struct{})
	for i := range 4 {
		tr.all.Go(func() {
			from := newSource(uint64(i), 2000)
			buf := make([]byte, from.most)
			for {
				select {
				case <-stop:
					return
				default:
					tr.call(t.Context(), conn, "b/jobs/transform", from, buf)
				}
			}
		})
	}
	defer tr.all.Wait()
	ended := sync.OnceFunc(func() { close(stop) })
	defer ended()
	tr.flows(t)
	var before uint64
	for range 20 {
		v := c.counters("a")
		n, _ := answers(&v, "out")
		if n < before || v.State != "running" || v.Process != "alive" || len(v.Agents) != 1 {
			t.Errorf("%d answers after %d: %s, %s", n, before, v.State, v.Process)
		}
		before = n
	}
	eventually(t, "answers are counted", func() bool {
		v := c.counters("a")
		n, _ := answers(&v, "out")
		return n > before
	})
	ended()
	tr.all.Wait()
	if tr.other != nil {
		t.Error(tr.other)
	}
	c.rightCounters()
	c.haltedCounters()
	c.deadCounters()
}

// rightCounters checks that what both ends have counted is the same, and in the status.
func (c *cluster) rightCounters() {
	c.t.Helper()
	var a, b view.View
	var sent, came uint64
	eventually(c.t, "both nodes have counted the same", func() bool {
		a, b = c.counters("a"), c.counters("b")
		var timed uint64
		sent, timed = answers(&a, "out")
		came, _ = answers(&b, "in")
		return sent == came && timed == sent && a.Lanes[0].Counters["busy"] == 0
	})
	s := c.status("a")
	if s.Counters["answers_received"] != sent {
		c.t.Errorf("%d answers in the lanes, %d in the status", sent, s.Counters["answers_received"])
	}
	for i, l := range s.Lanes {
		if l.Latency.Count > 0 && (l.Latency.P50US <= 0 || l.Latency.P50US > l.Latency.P99US || l.Latency.P99US > l.Latency.P999US || l.Latency.P999US > l.Latency.MaxUS || l.Latency.Count != l.Outcomes["ok"]) {
			c.t.Errorf("lane %d: %+v, %v", i, l.Latency, l.Outcomes)
		}
		if l.GroupSizes.Messages != l.Requests || l.GroupSizes.Count != l.Groups {
			c.t.Errorf("lane %d has %d requests in %d groups: %+v", i, l.Requests, l.Groups, l.GroupSizes)
		}
	}
	var answered uint64
	for _, v := range b.Services {
		answered += v.Outcomes["ok"]
	}
	if answered < came {
		c.t.Errorf("%d answers of services, %d by lanes", answered, came)
	}
	for _, v := range c.status("b").Services {
		if v.Node == "b" && v.Service == "jobs" && v.Method == "transform" && (v.Counted == nil || v.Counted.Latency.Count == 0) {
			c.t.Errorf("%+v", v)
		}
	}
}

// haltedCounters looks at them while the core is halted.
func (c *cluster) haltedCounters() {
	c.t.Helper()
	before := c.counters("a")
	pids, err := c.nodes["a"].PIDs(bounded(c.t))
	if err != nil {
		c.t.Fatal(err)
	}
	defer halt(c.t, pids.Core)()
	eventually(c.t, "the core is halted", func() bool { return c.counters("a").Process == "halted" })
	after := c.counters("a")
	n, _ := answers(&before, "out")
	if m, _ := answers(&after, "out"); m < n {
		c.t.Errorf("%d answers, and %d when the core is halted", n, m)
	}
	run(c.t, rdmad(c.t, "counters", "--socket", c.socket("a"))).check(c.t, "counters of a core that is halted", 0, "halted", "answers_received")
}

// deadCounters looks at them when the daemon has been killed; another one begins anew.
func (c *cluster) deadCounters() {
	c.t.Helper()
	pids, err := c.nodes["a"].PIDs(bounded(c.t))
	if err != nil {
		c.t.Fatal(err)
	}
	c.killBoth("a", pids)
	<-c.nodes["a"].Process().Done()
	eventually(c.t, "the core is dead", func() bool { return c.counters("a").Process == "dead" })
	run(c.t, rdmad(c.t, "counters", "--socket", c.socket("a"))).check(c.t, "counters of a dead daemon", 0, "has died", "answers_received")
	c.start("a")
	if v := c.counters("a"); v.Process != "alive" || v.Core == pids.Core {
		c.t.Errorf("another daemon: %+v", v)
	}
}

// An orderly stop leaves neither counters nor socket behind.
func TestCountersAreRemoved(t *testing.T) {
	c := newPair(t, sandbox.Settings{})
	c.stop("a")
	base := strings.TrimSuffix(c.socket("a"), ".sock")
	for _, left := range []string{base + ".counters", base + ".http"} {
		if exists(left) {
			t.Errorf("%s is left", left)
		}
	}
	run(t, rdmad(t, "counters", "--socket", c.socket("a"))).check(t, "counters of no daemon", 1, "there is no such file", "see --file")
}

// A daemon that cannot have the file says so, and does everything else.
func TestCountersWithoutAFile(t *testing.T) {
	c := newPair(t, sandbox.Settings{Extra: "[observe]\ncounters = \"/proc/none/counters\"\n"})
	startService(t, c, "b", "jobs")
	c.awaitService("a", "b", "jobs", "transform", 0)
	startTraffic(t, c.attach("a"), "b/jobs/transform").undisturbed(t)
	if n := c.logged("a", "counters-none"); n != 1 {
		t.Errorf("it was said %d times", n)
	}
	if s := c.status("a"); s.Counters["answers_received"] == 0 || s.Lanes[0].Requests == 0 {
		t.Errorf("%v", s.Counters)
	}
	if code, body := c.get("a", "", "/metrics"); code != 200 || !strings.Contains(body, "rdmad_lane_answers_total") {
		t.Errorf("metrics: %d, %.200s", code, body)
	}
}

// HTTP works under load, and after the core has died: the socket is the supervisor's.
func TestObserve(t *testing.T) {
	c := newPair(t, sandbox.Settings{Extra: "[observe]\nready_peers = \"all\"\n"})
	startService(t, c, "b", "jobs")
	c.awaitService("a", "b", "jobs", "transform", 0)
	tr := startTraffic(t, c.attach("a"), "b/jobs/transform")
	look := func(when string) {
		t.Helper()
		eventually(t, "node a is ready, "+when, func() bool { code, _ := c.get("a", "", "/readyz"); return code == 200 })
		if code, body := c.get("a", "", "/healthz"); code != 200 || body != "ok\n" {
			t.Errorf("health, %s: %d, %s", when, code, body)
		}
		var s status.Node
		if code, body := c.get("a", "", "/statusz"); code != 200 || json.Unmarshal([]byte(body), &s) != nil || s.Node != "a" {
			t.Errorf("status, %s: %d, %.200s", when, code, body)
		}
		// Where both nodes have dialled, one link takes the place of the other.
		eventually(t, "metrics of the link, "+when, func() bool {
			code, body := c.get("a", "", "/metrics")
			return code == 200 && strings.Contains(body, `rdmad_peer_up{peer="b"} 1`) && strings.Contains(body, `outcome="ok",peer="b"}`)
		})
		if code, body := c.get("a", "", "/"); code != 200 || !strings.Contains(body, "<html") {
			t.Errorf("the page, %s: %d, %.200s", when, code, body)
		}
		if code, body := c.get("a", "", "/debug/pprof/goroutine?debug=1"); code != 200 || !strings.Contains(body, "goroutine profile") {
			t.Errorf("a profile, %s: %d, %.200s", when, code, body)
		}
	}
	look("under load")
	c.killCore("a")
	tr.flows(t)
	look("after the core's death")
	if err := tr.end(); err != nil {
		t.Error(err)
	}
	c.stop("b")
	eventually(t, "node a is not ready", func() bool {
		code, body := c.get("a", "", "/readyz")
		return code == 503 && strings.Contains(body, "not connected: b")
	})
	if code, _ := c.get("a", "", "/healthz"); code != 200 {
		t.Errorf("without a peer: %d", code)
	}
}

// By TCP there are no profiles unless they are asked for, and who listens beyond the
// loopback is warned.
func TestObserveByTCP(t *testing.T) {
	ports, err := sandbox.FreePorts(1)
	if err != nil {
		t.Fatal(err)
	}
	_, port, err := net.SplitHostPort(ports[0])
	if err != nil {
		t.Fatal(err)
	}
	c := newCluster(t, sandbox.Settings{Extra: "[observe]\nlisten = \"0.0.0.0:" + port + "\"\n"}, "a")
	c.start("a")
	address := "127.0.0.1:" + port
	if code, body := c.get("a", address, "/metrics"); code != 200 || !strings.Contains(body, "rdmad_build_info") {
		t.Errorf("metrics: %d, %.200s", code, body)
	}
	if code, body := c.get("a", address, "/debug/pprof/"); code != 403 || !strings.Contains(body, "observe.pprof") {
		t.Errorf("profiles: %d, %.200s", code, body)
	}
	if n := c.logged("a", "observe-open"); n != 1 {
		t.Errorf("warned %d times", n)
	}
	config := strings.TrimSuffix(c.socket("a"), ".sock") + ".toml"
	if _, err := os.Stat(config); err != nil {
		t.Fatal(err)
	}
	got := run(t, rdmad(t, "config", "check", "-c", config))
	if got.status != 0 || !strings.Contains(got.errOut, "observe.listen") {
		t.Errorf("config check: %+v", got)
	}
}
