package test

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rdmad/rdmad/client"
	"github.com/rdmad/rdmad/cmd/rdmad/sandbox"
	"github.com/rdmad/rdmad/internal/status"
)

// busy returns how many requests are under way in all lanes of a node.
func (c *cluster) busy(name string) int {
	c.t.Helper()
	n := 0
	for _, l := range c.status(name).Lanes {
		n += l.Busy
	}
	return n
}

// awaitQuiet waits until no request is under way and the process is no worker
// any more.
func (c *cluster) awaitQuiet(name string, pid int) {
	c.t.Helper()
	eventually(c.t, "node "+name+" cleans up", func() bool {
		attached := slices.ContainsFunc(c.status(name).Workers, func(w status.Worker) bool { return w.PID == pid })
		return !attached && c.busy(name) == 0
	})
}

// A client that is killed with calls outstanding disturbs nobody, and what it
// held is freed.
func TestKillClient(t *testing.T) {
	c := newPair(t, sandbox.Settings{})
	slow := startService(t, c, "b", "slow")
	other := startService(t, c, "b", "other")
	c.awaitService("a", "b", "slow", "sleep", 0)
	c.awaitService("a", "b", "other", "transform", 0)
	tr := startTraffic(t, c.attach("a"), "b/other/transform")
	client := startMember(t, "hang", roleArgs{Socket: c.socket("a"), Node: "b", Service: "slow", Messages: 64})
	var sent int
	client.hear(&sent)
	if err := client.kill(); err == nil {
		t.Error("the client ended by itself")
	}
	tr.flows(t)
	tr.undisturbed(t)
	c.awaitQuiet("a", client.pid())
	c.awaitQuiet("b", client.pid())
	for _, m := range []*member{slow, other} {
		var n tally
		_ = m.in.Close()
		m.hear(&n)
		m.finish()
	}
}

// Clients that are killed at any moment, also in the middle of writing into the
// ring, disturb nobody.
func TestKillClientsAtWork(t *testing.T) {
	c := newPair(t, sandbox.Settings{})
	startService(t, c, "b", "jobs")
	startService(t, c, "b", "other")
	c.awaitService("a", "b", "jobs", "post", 0)
	c.awaitService("a", "b", "other", "transform", 0)
	tr := startTraffic(t, c.attach("a"), "b/other/transform")
	const victims = 12
	for i := range victims {
		m := startMember(t, "mixed", roleArgs{
			Socket: c.socket("a"), Node: "b", Service: "jobs", Messages: 1 << 30, Seed: uint64(i), Most: mostSize, Depth: 32,
		})
		// What is sent and is not the traffic's is the client's.
		clients := func() int64 { return int64(c.status("a").Counters["requests_sent"]) - tr.answered.Load() }
		before := clients()
		eventually(t, "the client works", func() bool { return clients() > before+int64(100+10*i) })
		if err := m.kill(); err == nil {
			t.Error("the client ended by itself")
		}
		tr.flows(t)
	}
	tr.undisturbed(t)
	c.awaitQuiet("a", 0)
	c.awaitQuiet("b", 0)
}

// atOnce makes calls with the same request, all at once, and returns how they ended.
func atOnce(ctx context.Context, conn *client.Conn, target string, n int, req []byte) map[string]int {
	var all sync.WaitGroup
	var mu sync.Mutex
	ends := map[string]int{}
	for range n {
		all.Go(func() {
			_, err := conn.Call(ctx, target, req)
			end := outcome(err)
			if end == "other" {
				end = err.Error()
			}
			mu.Lock()
			defer mu.Unlock()
			ends[end]++
		})
	}
	all.Wait()
	return ends
}

// When a process of a service is killed, every call in it ends, and others take
// over.
func TestKillService(t *testing.T) {
	c := newPair(t, sandbox.Settings{})
	victim := startService(t, c, "b", "jobs")
	c.awaitService("b", "b", "jobs", "sleep", 1)
	startService(t, c, "b", "other")
	c.awaitService("a", "b", "jobs", "sleep", 0)
	c.awaitService("a", "b", "other", "transform", 0)
	conn := c.attach("a")
	tr := startTraffic(t, c.attach("a"), "b/other/transform")
	const calls, first = 64, 8 // of the 16 handlers some are left to say that others hang
	ends := make(chan map[string]int, 2)
	begin := func(n int) { ends <- atOnce(bounded(t), conn, "b/jobs/hang", n, nil) }
	go begin(first)
	eventually(t, "a handler hangs", func() bool {
		n, err := conn.Call(bounded(t), "b/jobs/hanging", nil)
		return err == nil && !bytes.Equal(n, encoded(0))
	})
	go begin(calls - first)
	eventually(t, "calls are under way", func() bool { return c.busy("b") >= calls })
	if err := victim.kill(); err == nil {
		t.Error("the service ended by itself")
	}
	got := <-ends
	for end, n := range <-ends {
		got[end] += n
	}
	// "refused": not executed there, and nobody to try again with.
	if sum := got["answered"] + got["maybe executed"] + got["not executed"] + got["refused"]; sum != calls || got["maybe executed"] == 0 {
		t.Errorf("%d calls ended as %v", calls, got)
	}
	tr.flows(t)

	// Nobody serves it now: callers are told so, until somebody does again.
	eventually(t, "callers are told that nobody serves it", func() bool {
		_, err := conn.Call(bounded(t), "b/jobs/who", nil)
		return errors.Is(err, client.ErrNoService)
	})
	startService(t, c, "b", "jobs")
	eventually(t, "a new process serves it", func() bool {
		_, err := conn.Call(bounded(t), "b/jobs/who", nil)
		return err == nil
	})
	tr.undisturbed(t)
	c.awaitQuiet("a", 0)
	c.awaitQuiet("b", victim.pid())
}

// When one of two processes of a service is killed, calls go on.
func TestKillOneOfTwo(t *testing.T) {
	c := newPair(t, sandbox.Settings{})
	victim := startService(t, c, "b", "jobs")
	startService(t, c, "b", "jobs")
	c.awaitService("b", "b", "jobs", "transform", 2)
	c.awaitService("a", "b", "jobs", "transform", 0)
	tr := startTraffic(t, c.attach("a"), "b/jobs/transform")
	if err := victim.kill(); err == nil {
		t.Error("the service ended by itself")
	}
	tr.flows(t)
	// What the victim had begun may be lost, and nothing else.
	if n := tr.notExecuted.Load() + tr.refused.Load(); n > 0 {
		t.Errorf("%d calls were refused although a process was left", n)
	}
	if err := tr.end(); err != nil {
		t.Error(err)
	}
}

// killCore kills the core of a node and waits until the supervisor has started
// another.
func (c *cluster) killCore(name string) {
	c.t.Helper()
	before, err := c.nodes[name].PIDs(bounded(c.t))
	if err != nil {
		c.t.Fatal(err)
	}
	kill(c.t, before.Core)
	eventually(c.t, "another core runs", func() bool {
		s, err := askStatus(c.t, c.socket(name))
		return err == nil && s.PIDs.Core != before.Core && s.PIDs.Supervisor == before.Supervisor
	})
}

// killBoth kills a node's supervisor and its core, which has no time to say anything.
func (c *cluster) killBoth(name string, pids sandbox.PIDs) {
	c.t.Helper()
	stopCore(c.t, c, name)
	kill(c.t, pids.Supervisor)
	// The kernel ends a stopped process group that has lost its last parent, by SIGHUP.
	if err := syscall.Kill(pids.Core, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
		c.t.Fatal(err)
	}
}

// crash kills the supervisor and the core of a node, with all that they know, and starts
// it again.
func (c *cluster) crash(name string) {
	c.t.Helper()
	before, err := c.nodes[name].PIDs(bounded(c.t))
	if err != nil {
		c.t.Fatal(err)
	}
	c.killBoth(name, before)
	<-c.nodes[name].Process().Done()
	eventually(c.t, "the core is gone", func() bool { return !alive(before.Core) })
	c.start(name)
}

// When the daemon at the caller's end is killed, every call ends, and a new
// attachment works.
func TestKillCallersDaemon(t *testing.T) {
	c := newPair(t, sandbox.Settings{})
	startService(t, c, "b", "jobs")
	c.awaitService("a", "b", "jobs", "sleep", 0)
	held := holdRequests(t, c, "b", 16)
	c.awaitService("a", "b", "held", "hold", 0)
	conn := c.attach("a")
	const calls = 64
	ends := make(chan map[string]int, 1)
	go func() { ends <- atOnce(bounded(t), conn, "b/held/hold", calls, nil) }()
	eventually(t, "calls are under way", func() bool { return c.busy("b") >= calls })
	c.crash("a")
	got := <-ends
	held.letGo()
	if sum := got["answered"] + got["maybe executed"] + got["not executed"]; sum != calls {
		t.Errorf("%d calls ended as %v", calls, got)
	}
	select {
	case <-conn.Done():
	case <-time.After(limit):
		t.Fatal("the connection to a dead daemon goes on")
	}
	if _, err := conn.Call(bounded(t), "b/jobs/who", nil); !errors.Is(err, client.ErrClosed) {
		t.Errorf("a call over it: %v", err)
	}
	again := c.attach("a")
	eventually(t, "calls work again", func() bool {
		_, err := again.Call(bounded(t), "b/jobs/who", nil)
		return err == nil
	})
	startTraffic(t, again, "b/jobs/transform").undisturbed(t)
	c.awaitQuiet("b", 0)
}

// When the daemon at the service's end is killed, every call ends, and after the
// service has attached again the same caller goes on.
func TestKillServicesDaemon(t *testing.T) {
	c := newPair(t, sandbox.Settings{})
	victim := startService(t, c, "b", "jobs")
	c.awaitService("a", "b", "jobs", "stream", 0)
	conn := c.attach("a")
	const calls = 64
	ends := make(chan map[string]int, 1)
	go func() { ends <- atOnce(bounded(t), conn, "b/jobs/hang", calls, nil) }()
	eventually(t, "calls are under way", func() bool { return c.busy("b") >= calls })
	c.crash("b")
	got := <-ends
	if sum := got["answered"] + got["maybe executed"] + got["not executed"]; sum != calls {
		t.Errorf("%d calls ended as %v", calls, got)
	}
	if err := victim.wait(); err == nil {
		t.Error("the service did not notice that its daemon was gone")
	}
	startService(t, c, "b", "jobs")
	eventually(t, "calls work again", func() bool {
		_, err := conn.Call(bounded(t), "b/jobs/who", nil)
		return err == nil
	})
	startTraffic(t, conn, "b/jobs/transform").undisturbed(t)
}

// A core does not outlive its supervisor.
func TestKillSupervisor(t *testing.T) {
	c := newCluster(t, sandbox.Settings{}, "a")
	c.start("a")
	pids, err := c.nodes["a"].PIDs(bounded(t))
	if err != nil {
		t.Fatal(err)
	}
	kill(t, pids.Supervisor)
	eventually(t, "the core ends", func() bool { return !alive(pids.Core) })
	<-c.nodes["a"].Process().Done()
	c.start("a")
	c.attach("a")
}
