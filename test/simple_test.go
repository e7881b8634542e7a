package test

import (
	"testing"

	"github.com/rdmad/rdmad/cmd/rdmad/sandbox"
)

// mostSize is 300 slots of the small class: messages go to both classes.
const mostSize = 300*128 - 64

// One server and one client, each a process, on two nodes.
func TestOneServerOneClient(t *testing.T) {
	c := newPair(t, sandbox.Settings{})
	service := startService(t, c, "b", "work")
	c.awaitService("a", "b", "work", "post", 0)
	client := startMember(t, "mixed", roleArgs{Socket: c.socket("a"), Node: "b", Service: "work", Messages: 10_000, Seed: 1, Most: mostSize, Depth: 16})
	var sent mixed
	client.hear(&sent)
	client.finish()
	c.awaitPosts("a", sent.Posts)
	compare(t, []mixed{sent}, []*member{service})
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
