package test

import (
	"encoding/json"
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/rdmad/rdmad/cmd/rdmad/sandbox"
	"github.com/rdmad/rdmad/internal/bench"
)

// Daemons and workers that have nothing to do do nothing.
func TestIdle(t *testing.T) {
	const idleFor, attempts, workers = 2 * time.Second, 15, 8
	c := newPair(t, sandbox.Settings{})
	service := startService(t, c, "b", "jobs")
	c.awaitService("a", "b", "jobs", "stream", 0) // the last that it registers
	startTraffic(t, c.attach("a"), "b/jobs/transform").undisturbed(t)
	for range workers {
		c.attach("a")
	}
	pids := map[string]int{"service": service.pid()}
	for _, name := range c.names {
		p, err := c.nodes[name].PIDs(bounded(t))
		if err != nil {
			t.Fatal(err)
		}
		pids[name+".supervisor"], pids[name+".core"] = p.Supervisor, p.Core
	}
	// A garbage collection or the end of the traffic may fall into the first
	// measurements, but not into all.
	var used map[string]int
	for range attempts {
		before := map[string]int{}
		for role, pid := range pids {
			before[role] = ticks(t, pid)
		}
		time.Sleep(idleFor) // the measurement itself
		used = map[string]int{}
		busiest := 0
		for role, pid := range pids {
			used[role] = ticks(t, pid) - before[role]
			busiest = max(busiest, used[role])
		}
		if busiest <= 1 {
			return
		}
	}
	t.Errorf("in %v of idleness processes used, in 1/100 s: %v", idleFor, used)
}

// runBench runs a benchmark on node a and returns its result.
func runBench(t *testing.T, c *cluster, args ...string) *bench.Result {
	t.Helper()
	cmd := exec.Command(programs.rdmad, slices.Concat([]string{"bench"}, args, []string{"--json", "--socket", c.socket("a")})...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("bench %v: %v\n%s", args, err, out)
	}
	r := new(bench.Result)
	if err := json.Unmarshal(out, r); err != nil {
		t.Fatal(err)
	}
	return r
}

// startEcho runs "rdmad echo" on a node until the test ends.
func startEcho(t *testing.T, c *cluster, name string) {
	t.Helper()
	p, err := sandbox.StartProcess("echo", c.dir+"/echo.log", programs.rdmad, "echo", "--socket", c.socket(name))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Stop(limit); err != nil {
			t.Error(err)
		}
	})
	conn := c.attach("a")
	eventually(t, "echo answers", func() bool {
		_, err := conn.Call(bounded(t), name+"/echo/echo", nil)
		return err == nil && conn.Node() == "a"
	})
}
