package test

import (
	"testing"

	"github.com/rdmad/rdmad/client"
	"github.com/rdmad/rdmad/cmd/rdmad/sandbox"
)

// A node stops in the middle of an answer to what another reads from its memory, for so long that the link is given
// up. The other one ends the connection, although a part of the answer has come, and serves on. When the node goes on
// and the link is back, all works again, and no core was replaced.
func TestNodeStopsInAnAnswer(t *testing.T) {
	const callers, size, rounds = 48, 8 << 20, 4
	c, cutters := newCutPair(t, sandbox.Settings{LinkHold: "3s"})
	m := startMember(t, "regions", roleArgs{Socket: c.socket("b"), Service: "regions", Handlers: callers + 2})
	var pid int
	m.hear(&pid)
	c.awaitService("a", "b", "regions", "scatter", 0)
	conn, there := c.attach("a"), c.attach("b")
	a, b := c.status("a").PIDs.Core, c.status("b").PIDs.Core
	region, ref := bind(t, conn, size, client.MayRead)
	digests, err := conn.Method(bounded(t), "b/regions/digest")
	if err != nil {
		t.Fatal(err)
	}
	for range rounds {
		reads := c.status("b").Counters["region_ops"]
		var fs []*client.Future
		for range callers {
			f, err := digests.GoRegions(bounded(t), nil, ref)
			if err != nil {
				t.Fatal(err)
			}
			fs = append(fs, f)
		}
		eventually(t, "b reads", func() bool { return c.status("b").Counters["region_ops"] > reads })
		// While b takes nothing, a answers until the connection is full, and has given the kernel a part of an
		// answer when it is stopped, too.
		resumeB := halt(t, b)
		for range 3 {
			c.status("a")
		}
		resumeA := halt(t, a)
		for _, k := range cutters {
			k.cut(true)
		}
		resumeB()
		eventually(t, "b has ended its connection", func() bool {
			s := c.status("b")
			return s.Peers[0].State == "down" && (len(s.Bulk) == 0 || s.Bulk[0].Out == "down")
		})
		flooding(t, there) // it answers others
		resumeA()
		for _, k := range cutters {
			k.join()
		}
		for _, f := range fs {
			_, _ = f.Wait(bounded(t)) // whether it was executed depends on how far it had come
		}
		c.awaitService("a", "b", "regions", "digest", 0)
		if _, err := conn.CallRegions(bounded(t), "b/regions/digest", nil, ref); err != nil {
			t.Error(err)
		}
		if nowA, nowB := c.status("a").PIDs.Core, c.status("b").PIDs.Core; nowA != a || nowB != b {
			t.Fatalf("cores %d and %d were replaced by %d and %d", a, b, nowA, nowB)
		}
	}
	if err := region.Free(); err != nil {
		t.Error(err)
	}
	c.awaitNoRegions()
}
