package test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rdmad/rdmad/client"
	"github.com/rdmad/rdmad/cmd/rdmad/sandbox"
	"github.com/rdmad/rdmad/internal/config"
	"github.com/rdmad/rdmad/internal/scaling"
	"github.com/rdmad/rdmad/internal/status"
	"github.com/rdmad/rdmad/server"
)

// smallRings keep a node with many peers small.
const smallRings = `
[[class]]
name = "small"
slot_size = 128
slots = 256
max_run = 8

[[class]]
name = "pages"
slot_size = 4096
slots = 64
max_run = 4
`

// star starts a node "hub" and peers of it that do not know each other.
func star(t *testing.T, s sandbox.Settings, n int, via func(address string) string) (c *cluster, peers []string) {
	t.Helper()
	ports, err := sandbox.FreePorts(n + 1)
	if err != nil {
		t.Fatal(err)
	}
	c = newCluster(t, s) // of no nodes: these have different peers
	s.Fabric = *fabricName
	s.HangLimit = "5m" // four times in that a core says that it lives, which is a moment without idleness
	hub := sandbox.Peer{Name: "hub", Address: ports[n]}
	var all []sandbox.Peer
	for i := range n {
		p := sandbox.Peer{Name: fmt.Sprintf("peer%02d", i), Address: ports[i]}
		if c.nodes[p.Name], err = sandbox.NewNode(programs.rdmad, c.dir, p.Name, p.Address, []sandbox.Peer{hub}, s); err != nil {
			t.Fatal(err)
		}
		c.names, peers = append(c.names, p.Name), append(peers, p.Name)
		p.Address = via(p.Address)
		all = append(all, p)
	}
	if c.nodes["hub"], err = sandbox.NewNode(programs.rdmad, c.dir, "hub", hub.Address, all, s); err != nil {
		t.Fatal(err)
	}
	c.names = append(c.names, "hub")
	c.start("hub")
	return c, peers
}

// slowMachine is how much longer than the budget even the fastest of several openings may take in a test, beside
// others.
const slowMachine = 10

// direct is for nodes with nothing in between.
func direct(address string) string { return address }

// serveEcho offers "echo/echo" on a node, from this process, until the test ends.
func serveEcho(t *testing.T, c *cluster, node string) {
	t.Helper()
	s, err := server.Attach(bounded(t), c.socket(node), server.Workers(1))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Handle("echo", "echo", func(c *server.Call) error { return c.Reply(c.Request()) }, server.AnswerLikeRequest()); err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve(t.Context()) }()
	t.Cleanup(func() {
		if err := <-served; err != nil {
			t.Error(err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
}

// What an attached worker costs the daemon that has 256 of them stays within the budget,
// and with 16 peers beside them nothing uses a processor while nothing happens.
func TestScaleWorkers(t *testing.T) {
	c, peers := star(t, sandbox.Settings{Extra: smallRings}, 16, direct)
	c.start(peers...)
	serveEcho(t, c, peers[0])
	conn := c.attach("hub")
	for _, peer := range peers {
		c.awaitLink("hub", peer)
	}
	eventually(t, "calls work", func() bool {
		_, err := conn.Call(bounded(t), peers[0]+"/echo/echo", nil)
		return err == nil
	})
	pids := c.daemonPIDs("hub")
	var workers []int
	var members []*member
	weights := map[int]weight{}
	routines := map[int]int{}
	for _, n := range []int{1, 8, 64, 256} {
		var started []*member
		for len(workers)+len(started) < n {
			started = append(started, startMember(t, "idler", roleArgs{Socket: c.socket("hub")}))
		}
		for _, m := range started {
			var node string
			m.hear(&node)
			workers = append(workers, m.pid())
		}
		members = append(members, started...)
		// The core tells a worker that it is attached before the supervisor has its descriptors.
		eventually(t, "the supervisor has what it keeps of workers", func() bool {
			return segmentsOfWorkers(t, pids[0]) == segmentsOfWorkers(t, pids[1])
		})
		weights[n], routines[n] = weigh(t, pids...), c.status("hub").Goroutines
		t.Logf("%d workers: %v, %d goroutines; a worker: %v", n, weights[n], routines[n], weigh(t, workers[0]))
	}
	few, many := weights[8], weights[256]
	const more = 256 - 8
	each := func(what string, n, most int) {
		t.Helper()
		t.Logf("%s for each worker: %.1f, at most %d", what, float64(n)/more, most)
		if n > most*more {
			t.Errorf("%s: %.1f for each worker, the budget is %d", what, float64(n)/more, most)
		}
	}
	each("bytes", many.memory()-few.memory(), scaling.WorkerBudget)
	each("descriptors", many.fds-few.fds, scaling.WorkerFDs)
	each("goroutines", routines[256]-routines[8], scaling.WorkerGoroutines)
	if n := many.threads - few.threads; n > scaling.WorkersThreads {
		t.Errorf("%d threads for %d workers, the budget is %d", n, more, scaling.WorkersThreads)
	}
	c.quiet(slices.Concat(pids, c.daemonPIDs(peers[0]), workers[:1], workers[255:]))
	for _, m := range members {
		if err := m.cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "the daemon has given up the workers that were killed", func() bool {
		return segmentsOfWorkers(t, pids[0]) <= 1 && segmentsOfWorkers(t, pids[1]) <= 1 // this process is one, too
	})
	left := weigh(t, pids...)
	t.Logf("when they are gone: %v", left)
	if n := left.threads - many.threads; n > scaling.WorkersThreads {
		t.Errorf("%d threads for %d workers that went, the budget is %d", n, len(members), scaling.WorkersThreads)
	}
}

// segmentsOfWorkers counts the descriptors that a process has of them.
func segmentsOfWorkers(t *testing.T, pid int) (n int) {
	t.Helper()
	fds, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	if err != nil || len(fds) == 0 {
		t.Fatalf("process %d has no descriptors: %v", pid, err)
	}
	for _, fd := range fds {
		if to, err := os.Readlink(fd); err == nil && strings.HasPrefix(to, "/memfd:rdmad-worker") {
			n++
		}
	}
	return n
}

// quiet checks that processes do nothing while they have nothing to do: they use no
// processor, and hardly ever wake up. The measurement may meet a garbage collection or
// the end of what was before, but not every time.
func (c *cluster) quiet(pids []int) {
	c.t.Helper()
	const idleFor, attempts = 2 * time.Second, 15
	var used int
	woken := map[int]int{}
	for range attempts {
		used = -c.spent(pids)
		for _, pid := range pids {
			woken[pid] = -weigh(c.t, pid).switches
		}
		time.Sleep(idleFor) // the measurement itself
		most := 0
		for _, pid := range pids {
			woken[pid] += weigh(c.t, pid).switches
			most = max(most, woken[pid])
		}
		if used += c.spent(pids); used <= 1 && most <= scaling.IdleWakes {
			c.t.Logf("%d processes in %v of idleness: %d ticks, %d context switches at most", len(pids), idleFor, used, most)
			return
		}
	}
	c.t.Errorf("%d processes in %v of idleness: %d ticks, context switches by process %v", len(pids), idleFor, used, woken)
}

// spent is the processor time of processes in ticks.
func (c *cluster) spent(pids []int) (sum int) {
	for _, pid := range pids {
		sum += ticks(c.t, pid)
	}
	return sum
}

// awaitLink waits until a node is connected to a peer.
func (c *cluster) awaitLink(name, peer string) {
	c.t.Helper()
	eventually(c.t, name+" is connected to "+peer, func() bool {
		return slices.ContainsFunc(c.status(name).Peers, func(p status.Peer) bool { return p.Name == peer && p.State == "connected" })
	})
}

// A node with lanes to 64 others costs what scaling says, for each lane and each peer. The
// lanes to the first 16 are opened one after the other, those to the rest at once. A lane to
// a new peer takes a question and an answer between the daemons for each class.
func TestScalePeers(t *testing.T) {
	frames := make(map[string]*frameCounter)
	c, peers := star(t, sandbox.Settings{Extra: smallRings}, 64, func(address string) string {
		f := newFrameCounter(t, address)
		frames[address] = f
		return f.address()
	})
	conn := c.attach("hub")
	cfg, problems := config.Parse("scale.toml", []byte(smallRings))
	if problems != nil {
		t.Fatal(problems)
	}
	pids := c.daemonPIDs("hub")
	weights, routines := map[int]weight{}, map[int]int{}
	have := 0
	for _, n := range []int{1, 16, 64} {
		stage := peers[have:n]
		c.start(stage...)
		for _, peer := range stage {
			serveEcho(t, c, peer)
		}
		for _, peer := range stage {
			c.awaitService("hub", peer, "echo", "echo", 0)
		}
		before := weigh(t, pids...)
		if n <= 16 {
			c.openOneByOne(conn, stage, frames)
		} else {
			took := c.openLanes(conn, stage, frames)
			slices.Sort(took)
			t.Logf("lanes to %d peers at once: median %v, the slowest %v", len(stage), took[len(took)/2], took[len(took)-1])
		}
		have = n
		weights[n], routines[n] = weigh(t, pids...), c.status("hub").Goroutines
		t.Logf("%d peers: %v, %d goroutines; without lanes to the last %d %d KiB less",
			n, weights[n], routines[n], len(stage), (weights[n].memory()-before.memory())>>10)
	}
	const more = 64 - 16
	way, lanes := scaling.Lanes(cfg)
	t.Logf("for each peer: %d KiB (%d computed), %.1f descriptors, %.1f goroutines", (weights[64].memory()-weights[16].memory())/more>>10,
		way.Total()>>10, float64(weights[64].fds-weights[16].fds)/more, float64(routines[64]-routines[16])/more)
	if n := weights[64].memory() - weights[16].memory(); n > more*(way.Total()+scaling.LinkBudget) {
		t.Errorf("%d bytes for each peer with lanes, the budget is %d", n/more, way.Total()+scaling.LinkBudget)
	}
	if n := weights[64].fds - weights[16].fds; n > more*(lanes*scaling.LaneFDs+scaling.LinkFDs) {
		t.Errorf("%.1f descriptors for each peer with lanes, the budget is %d", float64(n)/more, lanes*scaling.LaneFDs+scaling.LinkFDs)
	}
	if n := routines[64] - routines[16]; n > more*scaling.LinkGoroutines {
		t.Errorf("%.1f goroutines for each peer, the budget is %d", float64(n)/more, scaling.LinkGoroutines)
	}
	up := 0
	for _, l := range c.status("hub").Lanes {
		if l.State == "up" && l.Direction == "out" {
			up++
		}
	}
	if up != 64*lanes {
		t.Errorf("%d lanes are up, want %d", up, 64*lanes)
	}
	quiet := slices.Concat(pids, c.daemonPIDs(peers[0]))
	t.Logf("supervisor and core of the hub, and of a peer: %v", quiet)
	c.quiet(quiet)
}

// openOneByOne makes the first call to each of some peers, one after the other, and checks what that takes.
func (c *cluster) openOneByOne(conn *client.Conn, peers []string, frames map[string]*frameCounter) {
	c.t.Helper()
	var took, used []time.Duration
	for _, peer := range peers {
		pids := slices.Concat(c.daemonPIDs("hub"), c.daemonPIDs(peer))
		before := processorTime(c.t, pids)
		took = append(took, c.openLanes(conn, []string{peer}, frames)...)
		used = append(used, processorTime(c.t, pids)-before)
	}
	slices.Sort(took)
	slices.Sort(used)
	c.t.Logf("lanes to %d peers, one after the other: %v to %v, median %v; processor time of both daemons %v to %v, median %v", len(peers),
		took[0], took[len(took)-1], took[len(took)/2], used[0], used[len(used)-1], used[len(used)/2])
	if len(peers) == 1 {
		return // one alone says little: see below
	}
	// A busy machine takes caches away, which makes the processor time several times as much, or does nothing at all
	// for a while. That is not the daemon's fault, but among several some are not disturbed.
	if used[0] > scaling.OpenCPU {
		c.t.Errorf("at least %v of processor time for the lanes to a peer, the budget is %v", used[0], scaling.OpenCPU)
	}
	if took[0] > slowMachine*scaling.OpenBudget {
		c.t.Errorf("at least %v for the lanes to a peer, the budget is %v", took[0], scaling.OpenBudget)
	}
}

// processorTime is what the threads of processes have had of processors so far.
func processorTime(t *testing.T, pids []int) (sum time.Duration) {
	t.Helper()
	for _, pid := range pids {
		tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
		if err != nil || len(tasks) == 0 {
			t.Fatalf("process %d has no threads: %v", pid, err)
		}
		for _, task := range tasks {
			text, err := os.ReadFile(task)
			if err != nil {
				continue // a thread that has ended
			}
			var ns time.Duration
			if _, err := fmt.Sscan(string(text), &ns); err != nil {
				t.Fatalf("%s: %v", task, err)
			}
			sum += ns
		}
	}
	return sum
}

// openLanes makes the first call to each of some peers, all at once, and returns how long
// each took. It checks what the daemons said to each other for that.
func (c *cluster) openLanes(conn *client.Conn, peers []string, frames map[string]*frameCounter) []time.Duration {
	t := c.t
	t.Helper()
	before := map[string]int64{}
	for _, peer := range peers {
		if f := frames[c.nodes[peer].Listen]; f.open.Load() == 2 {
			before[peer] = f.lanes.Load()
		}
	}
	type result struct {
		took time.Duration
		err  error
	}
	results := make(chan result, len(peers))
	for _, peer := range peers {
		go func() {
			begin := time.Now()
			_, err := conn.Call(bounded(t), peer+"/echo/echo", []byte("first"))
			results <- result{time.Since(begin), err}
		}()
	}
	var took []time.Duration
	for range peers {
		r := <-results
		if r.err != nil {
			t.Error(r.err)
		}
		took = append(took, r.took)
	}
	t.Logf("%d of %d peers are behind their counters", len(before), len(peers))
	for _, peer := range peers {
		// A peer that was first to dial is not behind its counter.
		f := frames[c.nodes[peer].Listen]
		if first, counted := before[peer]; counted && f.open.Load() == 2 && f.lanes.Load()-first != scaling.OpenFrames*2 {
			t.Errorf("%d messages about lanes between the daemons for the first call to %s, want %d", f.lanes.Load()-first, peer, scaling.OpenFrames*2)
		}
	}
	return took
}
