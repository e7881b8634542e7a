package test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/rdmad/rdmad/client"
	"github.com/rdmad/rdmad/cmd/rdmad/sandbox"
	"github.com/rdmad/rdmad/internal/status"
)

// edit changes a node's configuration file.
func (c *cluster) edit(name string, change func(text string) string) {
	c.t.Helper()
	file := filepath.Join(c.dir, name+".toml")
	text, err := os.ReadFile(file)
	if err != nil {
		c.t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(change(string(text))), 0o600); err != nil {
		c.t.Fatal(err)
	}
}

// reload makes a node read its configuration again, which must do.
func (c *cluster) reload(name string) *status.Reload {
	c.t.Helper()
	r := run(c.t, rdmad(c.t, "reload", "--json", "--socket", c.socket(name)))
	r.check(c.t, "reload", 0)
	var s status.Reload
	if err := json.Unmarshal([]byte(r.out), &s); err != nil {
		c.t.Fatal(err)
	}
	return &s
}

// swap returns a change of one text for another.
func swap(t *testing.T, old, text string) func(string) string {
	return func(all string) string {
		if !strings.Contains(all, old) {
			t.Errorf("the configuration has no %q", old)
		}
		return strings.Replace(all, old, text, 1)
	}
}

// Reloads under load lose no request; what they apply counts at once, also for a core that
// comes later.
func TestReloadUnderLoad(t *testing.T) {
	c := newPair(t, sandbox.Settings{Extra: "[limits]\nworkers = 10\n"})
	startService(t, c, "b", "jobs")
	conn := c.attach("a")
	c.awaitService("a", "b", "jobs", "stream", 1) // the last that it registers
	traffic := startTraffic(t, conn, "b/jobs/transform")
	traffic.flows(t)
	before := c.status("a")
	if before.Config == nil || before.Config.Reload != nil {
		t.Fatalf("before: %+v", before.Config)
	}
	delays := []string{"100us", "0s", "1ms"}
	last := "workers = 10\n"
	for i, delay := range delays {
		next := "workers = 1" + string(rune('1'+i)) + "\n[log]\nlevel = \"warn\"\n[group_send]\nmax_group_delay = \"" + delay + "\"\n[agent]\nspin = \"" + string(rune('1'+i)) + "us\"\n"
		c.edit("a", swap(t, last, next))
		last = next
		r := c.reload("a")
		if r.Number != i+1 || r.Result != status.ReloadDone || len(r.Applied) < 3 || len(r.Pending) != 0 {
			t.Fatalf("reload %d: %+v", i, r)
		}
		traffic.flows(t)
	}
	after := c.status("a")
	check := run(t, rdmad(t, "config", "check", "-c", filepath.Join(c.dir, "a.toml")))
	check.check(t, "check", 0, "ok "+after.Config.Digest)
	if after.Config.Digest == before.Config.Digest || after.PIDs != before.PIDs {
		t.Errorf("digest %s -> %s, pids %v -> %v", before.Config.Digest, after.Config.Digest, before.PIDs, after.PIDs)
	}
	kill(t, after.PIDs.Core)
	eventually(t, "another core has the same configuration", func() bool {
		s, err := askStatus(t, c.socket("a"))
		return err == nil && s.PIDs.Core != after.PIDs.Core && s.Config.Digest == after.Config.Digest && s.Config.Reload != nil
	})
	traffic.flows(t)
	if err := traffic.end(); err != nil {
		t.Error(err)
	}
	traffic.undisturbed(t)
}

// A configuration with problems changes nothing and says all of them, to whoever asked,
// in the status and in the log.
func TestReloadRefused(t *testing.T) {
	c := newCluster(t, sandbox.Settings{Extra: "[limits]\nworkers = 10\n"}, "a")
	c.start("a")
	before := c.status("a")
	c.edit("a", swap(t, "workers = 10\n", "workers = 20\nservcies = 1\n[log]\nlevel = \"loud\"\n"))
	run(t, rdmad(t, "reload", "--socket", c.socket("a"))).check(t, "reload", 2, "limits.servcies: unknown key", `log.level: must be "debug"`, "keeps its configuration")
	run(t, rdmad(t, "config", "diff", "-c", filepath.Join(c.dir, "a.toml"), "--socket", c.socket("a"))).check(t, "diff", 2, "limits.servcies")
	after := c.status("a")
	if after.Config.Digest != before.Config.Digest || after.Config.Reload.Result != status.ReloadRefused || len(after.Config.Reload.Problems) != 2 {
		t.Errorf("after: %+v", after.Config.Reload)
	}
	c.counts("a", "reload-refused")
	c.edit("a", swap(t, "servcies = 1\n[log]\nlevel = \"loud\"\n", ""))
	if r := c.reload("a"); len(r.Applied) != 1 || r.Number != 2 {
		t.Errorf("then: %+v", r)
	}
}

// By which names a node may be asked by HTTP is checked everywhere, and changed by a reload.
func TestReloadHosts(t *testing.T) {
	c := newCluster(t, sandbox.Settings{Extra: "[observe]\nhosts = []\n"}, "a")
	c.start("a")
	const name = "node1.cluster.example"
	if code, text := c.getAs(name+":7474", "a", "", "/healthz"); code != 421 || !strings.Contains(text, "observe.hosts") {
		t.Errorf("a name that is not the node's: %d, %s", code, text)
	}
	c.edit("a", swap(t, "hosts = []", `hosts = ["`+name+`"]`))
	if r := c.reload("a"); len(r.Applied) != 1 {
		t.Errorf("the reload: %+v", r)
	}
	if code, text := c.getAs(name+":7474", "a", "", "/healthz"); code != 200 {
		t.Errorf("a name that is in observe.hosts: %d, %s", code, text)
	}
	if code, _ := c.getAs("evil.example", "a", "", "/healthz"); code != 421 {
		t.Errorf("another name: %d", code)
	}
}

// What needs a restart is told, shown, and waits; the rest counts.
func TestReloadPending(t *testing.T) {
	c := newCluster(t, sandbox.Settings{Extra: "[limits]\nworkers = 10\n"}, "a")
	c.start("a")
	c.edit("a", swap(t, "workers = 10\n", "workers = 20\n[agent]\ncount = 2\n"))
	args := []string{"config", "diff", filepath.Join(c.dir, "a.toml"), "--socket", c.socket("a")}
	run(t, rdmad(t, args...)).check(t, "diff", 0, "limits.workers", "live, for processes", "agent.count", "restart")
	r := run(t, rdmad(t, "reload", "--socket", c.socket("a")))
	r.check(t, "reload", 0, "1 applied, 1 wait for a restart")
	for _, row := range []string{`KEY +BEFORE +FILE +APPLIED`, `limits.workers +10 +20 +yes, for processes that attach from then on`, `agent.count +1 +2 +no, needs a restart`} {
		if !regexp.MustCompile(`(?m)^` + row + `$`).MatchString(r.out) {
			t.Errorf("no row %q in:\n%s", row, r.out)
		}
	}
	run(t, rdmad(t, "status", "--socket", c.socket("a"))).check(t, "status", 0, "digest "+c.status("a").Config.Digest, "in force after a restart: agent.count")
	run(t, rdmad(t, args...)).check(t, "diff", 0, "agent.count")
	s := c.status("a")
	if p := s.Config.Reload.Pending; len(p) != 1 || p[0].Path != "agent.count" {
		t.Errorf("pending: %+v", p)
	}
	c.counts("a", "reload-pending")
	c.stop("a")
	c.start("a")
	run(t, rdmad(t, args...)).check(t, "diff after the restart", 0, "no difference")
}

// A node's first peer waits for a restart, which the daemon explains.
func TestReloadFirstPeer(t *testing.T) {
	c := newCluster(t, sandbox.Settings{}, "a")
	c.start("a")
	c.edit("a", func(text string) string { return text + "\n[[peer]]\nname = \"b\"\naddress = \"127.0.0.1:1\"\n" })
	const why = "restart: a node without peers"
	run(t, rdmad(t, "config", "diff", filepath.Join(c.dir, "a.toml"), "--socket", c.socket("a"))).check(t, "diff", 0, "peer[b]", why)
	run(t, rdmad(t, "reload", "--socket", c.socket("a"))).check(t, "reload", 0, "0 applied, 1 wait for a restart", "peer[b]", "no, needs a "+why)
	if s := c.status("a"); len(s.Peers) != 0 {
		t.Errorf("peers without a fabric: %+v", s.Peers)
	}
	c.stop("a")
	c.start("a")
	if s := c.status("a"); len(s.Peers) != 1 {
		t.Errorf("after the restart: %+v", s.Peers)
	}
}

// Limits, users and peers count at once: whom they shut out is shut out, and whom they let
// in is let in.
func TestReloadLimitsAndPeers(t *testing.T) {
	c := newPair(t, sandbox.Settings{LinkHold: "200ms", Extra: "[limits]\nworkers = 10\nconnect_wait = \"0s\"\n"})
	startService(t, c, "b", "jobs")
	conn := c.attach("a")
	c.awaitService("a", "b", "jobs", "who", 1)
	attach := func() error {
		another, err := client.Attach(bounded(t), c.socket("a"), client.Name("more"))
		if err == nil {
			err = another.Close()
		}
		return err
	}
	call := func() error {
		ctx, cancel := context.WithTimeout(bounded(t), limit)
		defer cancel()
		_, err := conn.Call(ctx, "b/jobs/who", nil)
		return err
	}
	eventually(t, "the service answers", func() bool { return call() == nil })
	c.edit("a", swap(t, "workers = 10\n", "workers = 1\n"))
	c.reload("a")
	if err := attach(); err == nil {
		t.Error("one more than limits.workers attached")
	}
	// No tool can attach either.
	c.edit("a", swap(t, "workers = 1\n", "workers = 11\n"))
	if err := c.nodes["a"].Process().Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	eventually(t, "more may attach", func() bool { return attach() == nil })
	peer := "[[peer]]\nname = \"b\"\naddress = \"" + c.nodes["b"].Listen + "\"\n"
	other := "[[peer]]\nname = \"z\"\naddress = \"127.0.0.1:1\"\n"
	for range 2 {
		c.edit("a", swap(t, peer, other))
		if r := c.reload("a"); len(r.Applied) != 2 {
			t.Errorf("peers: %+v", r)
		}
		if err := call(); err == nil {
			t.Error("a node that is no peer was called")
		}
		if i := slices.IndexFunc(c.status("a").Peers, func(p status.Peer) bool { return p.Name == "b" }); i >= 0 {
			t.Error("a node that is no peer is one in the status")
		}
		c.edit("a", swap(t, other, peer))
		c.reload("a")
		eventually(t, "the peer is called again", func() bool { return call() == nil })
	}
}

// SIGHUP does what the command does, and a daemon whose file is gone goes on.
func TestReloadSignal(t *testing.T) {
	c := newCluster(t, sandbox.Settings{}, "a")
	c.start("a")
	file := filepath.Join(c.dir, "a.toml")
	if err := os.Rename(file, file+".away"); err != nil {
		t.Fatal(err)
	}
	if err := c.nodes["a"].Process().Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the reload is refused", func() bool {
		s := c.status("a").Config
		return s.Reload != nil && s.Reload.Result == status.ReloadRefused && strings.Contains(s.Reload.Problems[0], "no such file")
	})
}

// counts waits until a node has counted an event.
func (c *cluster) counts(name, code string) {
	c.t.Helper()
	eventually(c.t, "node "+name+" counts "+code, func() bool {
		s, err := askStatus(c.t, c.socket(name))
		if err != nil {
			return false
		}
		for _, e := range s.Errors {
			if string(e.Code) == code {
				return true
			}
		}
		return false
	})
}

// The signals for the supervisor, sent to every process of a node as a service manager does, are nothing to the core.
func TestSupervisorsSignals(t *testing.T) {
	c := newCluster(t, sandbox.Settings{}, "a")
	c.start("a")
	core := c.status("a").PIDs.Core
	for _, sig := range []syscall.Signal{syscall.SIGHUP, syscall.SIGUSR2} {
		if err := syscall.Kill(core, sig); err != nil {
			t.Fatal(err)
		}
		c.reload("a")
		if now := c.status("a").PIDs.Core; now != core {
			t.Fatalf("%v: core %d has become %d", sig, core, now)
		}
	}
}
