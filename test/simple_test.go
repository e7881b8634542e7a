package test

import (
	"fmt"
	"testing"

	"github.com/rdmad/rdmad/cmd/rdmad/sandbox"
)

// mostSize is 300 slots of the small class: messages go to both classes.
const mostSize = 300*128 - 64

// One server and one client, each a process, on two nodes.
func TestOneServerOneClient(t *testing.T) {
	c := newPair(t, sandbox.Settings{})
	service := startService(t, c, "b", "jobs")
	c.awaitService("a", "b", "jobs", "post", 0)
	client := startMember(t, "mixed", roleArgs{Socket: c.socket("a"), Node: "b", Service: "jobs", Messages: many(10_000), Seed: 1, Most: mostSize, Depth: 16})
	var sent mixed
	client.hearWithin(3*limit, &sent)
	client.finish()
	c.awaitPosts("a", sent.Posts)
	compare(t, []mixed{sent}, []*member{service})
}

// The same on one node that has no peers: no fabric is involved.
func TestOneNode(t *testing.T) {
	c := newCluster(t, sandbox.Settings{}, "a")
	c.start("a")
	service := startService(t, c, "a", "jobs")
	c.awaitService("a", "a", "jobs", "post", 1)
	client := startMember(t, "mixed", roleArgs{Socket: c.socket("a"), Node: "a", Service: "jobs", Messages: many(10_000), Seed: 1, Most: mostSize, Depth: 16})
	var sent mixed
	client.hearWithin(3*limit, &sent)
	client.finish()
	c.awaitPosts("a", sent.Posts)
	compare(t, []mixed{sent}, []*member{service})
	if n := c.status("a").Counters["requests_sent"]; n != 0 {
		t.Errorf("%d requests went over a fabric", n)
	}
}

// Processes that want to have far more under way than the ring has room for
// wait for room, and all get their answers.
func TestFullRing(t *testing.T) {
	const processes, slots, run = 4, 64, 16
	c := newPair(t, sandbox.Settings{Extra: fmt.Sprintf("[[class]]\nname = \"only\"\nslot_size = 128\nslots = %d\nmax_run = %d\n", slots, run)})
	service := startService(t, c, "b", "jobs")
	c.awaitService("a", "b", "jobs", "post", 0)
	clients := make([]*member, processes)
	for i := range clients {
		clients[i] = startMember(t, "mixed", roleArgs{
			Socket: c.socket("a"), Node: "b", Service: "jobs", Messages: many(5000), Seed: uint64(i), Most: run*128 - 64, Depth: 10 * slots,
		})
	}
	sent := make([]mixed, processes)
	posts := int64(0)
	for i, m := range clients {
		m.hearWithin(3*limit, &sent[i])
		m.finish()
		posts += sent[i].Posts
	}
	c.awaitPosts("a", posts)
	compare(t, sent, []*member{service})
}

// awaitPosts waits until all one-way messages that left a node have been
// handled.
func (c *cluster) awaitPosts(name string, posts int64) {
	c.t.Helper()
	eventually(c.t, "all posts are handled", func() bool {
		n := c.status(name).Counters
		return n["oneway_done"]+n["oneway_failed"] >= uint64(posts)
	})
}

// compare ends service processes and compares what they were asked for with
// what was sent.
func compare(t *testing.T, clients []mixed, services []*member) {
	t.Helper()
	var want, got tally
	for _, m := range clients {
		want.Calls += m.Calls + m.Futures
		want.Posts += m.Posts
		want.Sum += m.Sum
	}
	for _, s := range services {
		var n tally
		_ = s.in.Close()
		s.hear(&n)
		s.finish()
		got.Calls += n.Calls
		got.Posts += n.Posts
		got.Sum += n.Sum
	}
	if got != want {
		t.Errorf("the services handled %+v, the clients sent %+v", got, want)
	}
}
