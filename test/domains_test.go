package test

import (
	"testing"

	"github.com/rdmad/rdmad/cmd/rdmad/sandbox"
)

// Workers of one domain do not see services of another, although the names are
// the same: each gets the answer of its own.
func TestDomains(t *testing.T) {
	needRoot(t)
	c := newPair(t, sandbox.Settings{
		SocketMode: "0666",
		Extra:      "[[domain]]\nname = \"one\"\nusers = [0]\n\n[[domain]]\nname = \"two\"\nusers = [65534]\n",
	})
	foreign := roleArgs{Socket: c.socket("a"), Node: "b", Service: "jobs", Messages: 1000, Seed: 1, Most: 1000, Depth: 4}

	said := ""
	m := startMember(t, "attach", foreign, asNobody)
	m.hear(&said)
	m.finish()
	if said != "a two" {
		t.Errorf("nobody attached as %q", said)
	}
	if d := c.attach("a").Domain(); d != "one" {
		t.Errorf("root attached to domain %q", d)
	}

	// Only domain one serves: nobody must not find it.
	own := startService(t, c, "b", "jobs")
	c.awaitService("a", "b", "jobs", "post", 0)
	m = startMember(t, "mixed", foreign, asNobody)
	if err := m.wait(); err == nil {
		t.Error("nobody reached a service of root's domain")
	}

	theirs := startMember(t, "service", roleArgs{Socket: c.socket("b"), Service: "jobs", Handlers: 4}, asNobody)
	var pid int
	theirs.hear(&pid)
	eventually(t, "both domains serve", func() bool {
		n := 0
		for _, s := range c.status("a").Services {
			if s.Node == "b" && s.Method == "post" {
				n++
			}
		}
		return n == 2
	})
	m = startMember(t, "mixed", foreign, asNobody)
	var sent mixed
	m.hear(&sent)
	m.finish()
	c.awaitPosts("a", sent.Posts)
	compare(t, []mixed{sent}, []*member{theirs})
	compare(t, nil, []*member{own})
}
