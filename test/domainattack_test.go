package test

import (
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rdmad/rdmad/client"
	"github.com/rdmad/rdmad/cmd/rdmad/sandbox"
	"github.com/rdmad/rdmad/internal/status"
)

// twoDomains is a pair of nodes with the domains "one" of root and "two" of nobody, and a
// victim of domain two on a.
func twoDomains(t *testing.T) (*cluster, roleArgs) {
	needRoot(t)
	c := newPair(t, sandbox.Settings{
		SocketMode: "0666",
		Extra:      "[[domain]]\nname = \"one\"\nusers = [0]\n\n[[domain]]\nname = \"two\"\nusers = [65534]\n",
	})
	startService(t, c, "b", "jobs")
	c.awaitService("a", "b", "jobs", "transform", 0)
	args := roleArgs{Socket: c.socket("a"), Node: "a", Service: "theirs"}
	return c, args
}

// domainNamed returns the state of a domain of a node.
func domainNamed(s *status.Node, name string) (found status.Domain) {
	for _, d := range s.Domains {
		if d.Name == name {
			found = d
		}
	}
	return found
}

// tail calls for a while and returns the 99th percentile of how long it took.
func tail(t *testing.T, m *client.Method, d time.Duration) time.Duration {
	t.Helper()
	ctx := bounded(t)
	var took []time.Duration
	for end := time.Now().Add(d); len(took) == 0 || time.Now().Before(end); {
		begin := time.Now()
		if _, err := m.Call(ctx, nil); err != nil {
			t.Fatalf("a call of the other domain: %v", err)
		}
		took = append(took, time.Since(begin))
	}
	slices.Sort(took)
	return took[len(took)*99/100]
}

// Whatever a process does with what its domain has given it, the daemon stays, and the
// other domain of the same agent is served as if nothing were.
func TestAttacks(t *testing.T) {
	c, args := twoDomains(t)
	victim := startMember(t, "victim", args, asNobody)
	var pid int
	victim.hear(&pid)
	c.awaitService("b", "a", "theirs", "who", 0)
	other, err := c.attach("a").Method(bounded(t), "b/jobs/who")
	if err != nil {
		t.Fatal(err)
	}
	core := c.status("a").PIDs.Core
	var names []string
	for name := range attacks {
		names = append(names, name)
	}
	slices.Sort(names)
	const turn = 150 * time.Millisecond
	for _, name := range names {
		a := args
		a.Method, a.Seed = name, 1
		m := startMember(t, "attack", a, asNobody)
		var zero int
		m.hear(&zero)
		var calm, stormy []time.Duration
		waits := func() bool {
			with, without := slices.Min(stormy), slices.Min(calm)
			// There are few processors: what is asked is that it is not starved.
			return with > 30*without && with > 100*time.Millisecond
		}
		for n := 0; n < 3 || n < 12 && waits(); n++ {
			stormy = append(stormy, tail(t, other, turn))
			_ = m.cmd.Process.Signal(syscall.SIGSTOP)
			calm = append(calm, tail(t, other, turn))
			_ = m.cmd.Process.Signal(syscall.SIGCONT)
		}
		// The best turn of each kind: what else runs on the machine disturbs both.
		with, without := slices.Min(stormy), slices.Min(calm)
		ratio := float64(with) / float64(without)
		s := c.status("a")
		t.Logf("%-9s p99 of the other domain %v, without %v: %.2f times; domain two: %+v", name, with, without, ratio, domainNamed(s, "two"))
		if waits() {
			t.Errorf("%s: the other domain has to wait", name)
		}
		if s.PIDs.Core != core {
			t.Fatalf("%s: the core was replaced", name)
		}
		if d := domainNamed(s, "one"); d.Generation > 0 || d.Damages > 0 {
			t.Errorf("%s: the other domain: %+v", name, d)
		}
		if err := m.kill(); err == nil || strings.Contains(m.errs.String(), "a segment can") {
			t.Errorf("%s: it ended by itself: %s", name, m.errs.String())
		}
	}
	victim.finish()
	eventually(t, "nothing of domain two is left", func() bool {
		s := c.status("a")
		d := domainNamed(s, "two")
		return d.Held == 0 && d.Lingering == 0 && !slices.ContainsFunc(s.Workers, func(w status.Worker) bool { return w.Domain == "two" })
	})
}

// A process that has closed its socket and goes on writing costs its domain the memory, and
// then has nothing to write to that anybody uses.
func TestSquatterLosesTheMemory(t *testing.T) {
	c, args := twoDomains(t)
	victim := startMember(t, "victim", args, asNobody)
	var pid int
	victim.hear(&pid)
	c.awaitService("b", "a", "theirs", "who", 0)
	a := args
	a.Method = "squat"
	m := startMember(t, "attack", a, asNobody)
	var zero int
	m.hear(&zero)
	eventually(t, "the domain gets new memory", func() bool { return domainNamed(c.status("a"), "two").Generation > 0 })
	eventually(t, "the victim is attached again", func() bool {
		n := 0
		for _, w := range c.status("a").Workers {
			if w.Name == "victim" && w.Offences == 0 {
				n++
			}
		}
		return n == 2
	})
	before := domainNamed(c.status("a"), "two")
	if before.Held < 1 {
		t.Errorf("nobody holds the old memory: %+v", before)
	}
	if err := m.kill(); err == nil {
		t.Error("the squatter ended by itself")
	}
	eventually(t, "the old memory is gone", func() bool { return domainNamed(c.status("a"), "two").Held == 0 })
	victim.finish()
	if n := fmt.Sprint(c.status("a").Counters["rotations"]); n == "0" {
		t.Error("no rotation was counted")
	}
}
