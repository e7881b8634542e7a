package test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rdmad/rdmad/client"
	"github.com/rdmad/rdmad/cmd/rdmad/sandbox"
	"github.com/rdmad/rdmad/internal/status"
)

// drained is the output of "rdmad drain --json".
type drained struct {
	Node      string        `json:"node"`
	InService bool          `json:"in_service"`
	Drain     *status.Drain `json:"drain"`
}

// drain runs "rdmad drain" on a node and returns what it prints.
func (c *cluster) drain(node string, status int, args ...string) (d drained) {
	c.t.Helper()
	r := run(c.t, rdmad(c.t, append([]string{"drain", "--json", "--socket", c.socket(node)}, args...)...))
	r.check(c.t, "rdmad drain on "+node, status)
	if err := json.Unmarshal([]byte(r.out), &d); err != nil {
		c.t.Fatalf("%v in:\n%s%s", err, r.out, r.errOut)
	}
	return d
}

// Nodes leave service and come back, one after the other, while processes call a service
// that both offer: no call fails, none is lost, and none reaches a node that is drained.
func TestDrainUnderLoad(t *testing.T) {
	c := newCluster(t, sandbox.Settings{}, "a", "b", "c")
	c.start("a", "b", "c")
	startEcho(t, c, "b")
	startEcho(t, c, "c")
	load := rdmad(t, "bench", "call", "--clients", "3", "--depth", "16", "--warmup", "100ms", "--duration", "3s", "--json", "--socket", c.socket("a"))
	b := begin(t, load)
	over := make(chan ran, 1)
	go func() { over <- b.end() }()
	var r ran
	rounds := 0
	for running := true; running; rounds++ {
		for _, node := range []string{"b", "c"} {
			if d := c.drain(node, 0); d.InService || d.Drain == nil || !d.Drain.Complete || d.Drain.Requests != 0 {
				t.Errorf("round %d: %+v, %+v", rounds, d, d.Drain)
			}
			before := c.status(node).Counters["requests_received"]
			// One that comes from now on has its answer from the other.
			if _, err := c.attach("a").Call(bounded(t), "echo/echo", nil); err != nil {
				t.Errorf("round %d: with %s drained: %v", rounds, node, err)
			}
			if after := c.status(node).Counters["requests_received"]; after != before {
				t.Errorf("round %d: %d requests have reached %s, which is drained", rounds, after-before, node)
			}
			if d := c.drain(node, 0, "--undo"); !d.InService || d.Drain != nil {
				t.Errorf("round %d: %+v", rounds, d)
			}
			c.awaitPeer("a", node, "connected")
		}
		select {
		case r = <-over:
			running = false
		default:
		}
	}
	r.check(t, "rdmad bench call", 0, `"mismatches": 0`)
	for _, node := range []string{"b", "c"} {
		if n := c.status(node).Counters["requests_received"]; n == 0 {
			t.Errorf("node %s has served nothing", node)
		}
	}
	if n := c.status("a").Counters["not_executed"]; n != 0 {
		t.Errorf("%d requests were not executed", n)
	}
	t.Logf("%d rounds", rounds)
}

// awaitPeer waits until a node has a peer in the given state.
func (c *cluster) awaitPeer(node, peer, state string) {
	c.t.Helper()
	eventually(c.t, "peer "+peer+" of node "+node+" is "+state, func() bool {
		for _, p := range c.status(node).Peers {
			if p.Name == peer && p.State == state {
				return true
			}
		}
		return false
	})
}

// A peer whose link is away may come back with requests under way: until node.link_hold has
// passed the node is not drained.
func TestDrainWaitsForLostPeers(t *testing.T) {
	c := newPair(t, sandbox.Settings{LinkHold: "10m"}) // the link is away until the test is over
	c.awaitPeer("b", "a", "connected")
	if err := c.nodes["a"].Process().Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	c.awaitPeer("b", "a", "down")
	r := run(t, rdmad(t, "drain", "--timeout", "50ms", "--socket", c.socket("b")))
	r.check(t, "a drain while a link is away", 1, "not drained", "not finished with it: a")
}

// A drain waits for what is under way, says what it waits for, and may be tried again; it
// is forgotten by neither the next core nor the next program. The node's own workers find
// other nodes meanwhile, and call them as ever.
func TestDrainWaits(t *testing.T) {
	c := newPair(t, sandbox.Settings{Extra: "[limits]\nconnect_wait = \"1m\"\n"})
	startEcho(t, c, "a")
	startService(t, c, "b", "jobs")
	c.awaitService("a", "b", "jobs", "who", 0)
	held := holdRequests(t, c, "b", 1)
	c.awaitService("a", "b", "held", "hold", 0)
	conn := c.attach("a")
	f, err := conn.Go(bounded(t), "b/held/hold", nil)
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the request is with its handler", func() bool { return held.begun.Load() > 0 })

	r := run(t, rdmad(t, "drain", "--timeout", "50ms", "--socket", c.socket("b")))
	r.check(t, "a drain with too little time", 1, "node b is out of service, but not drained", "1 requests", "not finished with it: a", "rdmad drain --undo")
	if strings.Count(r.errOut, "\n") != 1 {
		t.Errorf("not one line:\n%s", r.errOut)
	}
	run(t, rdmad(t, "services", "held/hold", "--socket", c.socket("b"))).check(t, "its services", 0, "STATE", "draining")
	run(t, rdmad(t, "services", "echo", "--peer", "a", "--socket", c.socket("b"))).check(t, "those of another", 0, " up ")
	held.letGo()
	if _, err := f.Wait(bounded(t)); err != nil {
		t.Errorf("the request that was under way: %v", err)
	}
	if d := c.drain("b", 0); !d.Drain.Complete {
		t.Errorf("%+v", d.Drain)
	}
	_, err = conn.Method(short(t), "b/jobs/post")
	if err == nil {
		_, err = conn.Call(short(t), "b/jobs/who", nil)
	}
	if err == nil {
		t.Error("a node that is drained has answered")
	}
	own := c.attach("b")
	if _, err := own.Call(bounded(t), "echo/echo", nil); err != nil {
		t.Errorf("a worker of the node: %v", err)
	}

	// Who names the node waits for it to be in service again, over a change of its core.
	patient := make(chan error, 1)
	go func() {
		_, err := conn.Call(bounded(t), "b/jobs/who", nil)
		patient <- err
	}()
	c.killCore("b")
	if s := c.status("b"); s.Drain == nil || !s.Draining {
		t.Errorf("the next core is in service: %+v", s.Drain)
	}
	c.awaitPeer("a", "b", "draining")
	if d := c.drain("b", 0, "--undo"); !d.InService {
		t.Errorf("%+v", d)
	}
	c.awaitPeer("a", "b", "connected")
	if err := <-patient; err != nil {
		t.Errorf("who has waited: %v", err)
	}
	if _, err := conn.Call(bounded(t), "b/jobs/who", nil); err != nil {
		t.Errorf("in service again: %v", err)
	}
	// A daemon that is stopped while it is out of service is in service when it is started.
	c.drain("b", 0)
	c.stop("b")
	c.start("b")
	if s := c.status("b"); s.Drain != nil {
		t.Errorf("a new daemon is out of service: %+v", s.Drain)
	}
}

// A worker's requests to services of its own node are finished, too, and are no reason for
// it to fail afterwards.
func TestDrainLocal(t *testing.T) {
	c := newPair(t, sandbox.Settings{Extra: "[limits]\nconnect_wait = \"1m\"\n"})
	startEcho(t, c, "a")
	startService(t, c, "b", "jobs")
	own := c.attach("b")
	f, err := own.Go(bounded(t), "jobs/sleep", encoded(300))
	if err != nil {
		t.Fatal(err)
	}
	if d := c.drain("b", 0); !d.Drain.Complete {
		t.Errorf("%+v", d.Drain)
	}
	if _, err := f.Wait(bounded(t)); err != nil {
		t.Errorf("the request that was under way: %v", err)
	}
	if _, err := own.Call(short(t), "b/jobs/who", nil); !errors.Is(err, client.ErrNoService) && !errors.Is(err, client.ErrDeadline) {
		t.Errorf("a drained node: %v", err)
	}
	waiting := make(chan error, 1)
	go func() {
		_, err := own.Call(bounded(t), "b/jobs/who", nil)
		waiting <- err
	}()
	c.drain("b", 0, "--undo")
	if err := <-waiting; err != nil {
		t.Errorf("in service again: %v", err)
	}
}

// Others than root and the daemon's user may look, if a domain admits them, and no more.
func TestDrainPermission(t *testing.T) {
	needRoot(t)
	c := newPair(t, sandbox.Settings{SocketMode: "0666", Extra: "[[domain]]\nname = \"one\"\nusers = [0]\n\n[[domain]]\nname = \"two\"\nusers = [65534]\n"})
	foreign := func(args ...string) ran {
		cmd := rdmad(t, append(args, "--socket", c.socket("a"))...)
		cmd.SysProcAttr = &syscall.SysProcAttr{}
		asNobody(cmd)
		return run(t, cmd)
	}
	foreign("peers").check(t, "peers", 0, "connected")
	foreign("drain").check(t, "drain", 1, "only root", "node a")
	if c.status("a").Draining {
		t.Error("a user without the right has taken the node out of service")
	}
	c.drain("a", 0)
	foreign("drain", "--undo").check(t, "drain --undo", 1, "only root")
	c.drain("a", 0, "--undo")
}

// short returns a context for what is to take too long.
func short(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	t.Cleanup(cancel)
	return ctx
}
