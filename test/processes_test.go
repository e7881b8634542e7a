package test

import (
	"testing"
	"time"

	"github.com/rdmad/rdmad/cmd/rdmad/sandbox"
)

// Many processes share the rings of one node: every answer is checked byte by
// byte, and every one-way message must arrive once.
func TestProcesses(t *testing.T) {
	const processes = 8
	for _, c := range []struct{ name, classes string }{
		{"two classes", ""},
		// The largest messages take 300 slots in a row.
		{"long runs", "[[class]]\nname = \"only\"\nslot_size = 128\nslots = 4096\nmax_run = 300\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			nodes := newPair(t, sandbox.Settings{Extra: c.classes})
			services := []*member{startService(t, nodes, "b", "jobs"), startService(t, nodes, "b", "jobs")}
			nodes.awaitService("a", "b", "jobs", "post", 0)
			clients := make([]*member, processes)
			for i := range clients {
				clients[i] = startMember(t, "mixed", roleArgs{
					Socket: nodes.socket("a"), Node: "b", Service: "jobs", Messages: *messages / 2 / processes,
					Seed: uint64(i), Most: mostSize, Depth: 1 + 4*i,
				})
			}
			// A millisecond each is a hundred times what a message takes.
			patience := limit + time.Duration(*messages)*time.Millisecond
			sent := make([]mixed, processes)
			posts := int64(0)
			for i, m := range clients {
				m.hearWithin(patience, &sent[i])
				m.finish()
				posts += sent[i].Posts
			}
			nodes.awaitPosts("a", posts)
			compare(t, sent, services)
		})
	}
}
