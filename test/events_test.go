package test

import (
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rdmad/rdmad/client"
	"github.com/rdmad/rdmad/cmd/rdmad/sandbox"
	"github.com/rdmad/rdmad/internal/event"
	"github.com/rdmad/rdmad/internal/nodecert"
)

// Runbook entries about the daemon's own processes come about as docs/runbook.md says.
func TestEventsOfProcesses(t *testing.T) {
	r := newReplaceable(t)
	r.replace(script("exit 3"))
	run(t, rdmad(t, "upgrade", "--socket", r.socket("a"))).check(t, "upgrade", 1, "goes on with")
	r.counts("a", "upgrade-failed")
	kill(t, r.status("a").PIDs.Core)
	r.counts("a", "core-died")

	// What a dead supervisor's core says is only in its log, and so is what ends a daemon.
	log := func(c *cluster) string {
		text, err := os.ReadFile(filepath.Join(c.dir, "a.log"))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	c := newCluster(t, sandbox.Settings{}, "a")
	c.start("a")
	if err := c.nodes["a"].Process().Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the core says that its supervisor is gone", func() bool { return strings.Contains(log(c), `"code":"supervisor-gone"`) })
	eventually(t, "the core has ended", func() bool { _, err := net.Dial("unixpacket", c.socket("a")); return err != nil })
	_ = os.Remove(c.socket("a"))
	_ = os.Remove(c.socket("a") + ".lock")

	none := newCluster(t, sandbox.Settings{Fabric: "verbs", Verbs: map[string]string{"device": "no_such_device"}}, "a", "b")
	cmd := exec.Command(programs.rdmad, "run", "-c", filepath.Join(none.dir, "a.toml"))
	run(t, cmd).check(t, "run without a device", 1, `"code":"core-no-start"`, "the core cannot start")
}

// A core that does not stop is killed.
func TestCoreIsKilled(t *testing.T) {
	c := newCluster(t, sandbox.Settings{}, "a")
	c.edit("a", swap(t, `drain_timeout = "3s"`, `drain_timeout = "0s"`))
	cmd := begin(t, exec.Command(programs.rdmad, "run", "-c", filepath.Join(c.dir, "a.toml")))
	eventually(t, "the node serves", func() bool { _, err := askStatus(t, c.socket("a")); return err == nil })
	stopCore(t, c, "a")
	if err := cmd.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if r := cmd.end(); !strings.Contains(r.errOut, `"code":"core-killed"`) {
		t.Errorf("status %d, %s", r.status, r.errOut)
	}
}

// Runbook entries about workers.
func TestEventsOfWorkers(t *testing.T) {
	c := newCluster(t, sandbox.Settings{SocketMode: "0666"}, "a")
	c.start("a")
	raw, err := net.Dial("unixpacket", c.socket("a"))
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	if _, err := raw.Write([]byte("hello?")); err != nil {
		t.Fatal(err)
	}
	c.counts("a", "worker-refused")
}

// Runbook entries about peers.
func TestEventsOfPeers(t *testing.T) {
	c := newCluster(t, sandbox.Settings{LinkHold: "100ms"}, "a", "b")
	c.start("a")
	c.counts("a", "peer-unreachable")
	conn, err := net.Dial("tcp", c.nodes["a"].Listen)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Write([]byte("GET / HTTP/1.0\r\n\r\n")); err != nil {
		t.Fatal(err)
	}
	c.counts("a", "peer-refused")
	_ = conn.Close()
	c.start("b")
	eventually(t, "the nodes are connected", func() bool { return c.status("a").Peers[0].State == "connected" })
	core := c.status("b").PIDs.Core
	supervisor := c.nodes["b"].Process()
	halt(t, core)
	halt(t, supervisor.PID())
	c.edit("a", swap(t, c.nodes["b"].Listen, "127.0.0.1:1"))
	c.reload("a")
	kill(t, core)
	c.counts("a", "peer-disconnected")
	c.counts("a", "link-given-up")
	supervisor.Kill()

	p := newPair(t, sandbox.Settings{})
	eventually(t, "the nodes are connected", func() bool { return p.status("a").Peers[0].State == "connected" })
	resume := halt(t, p.status("b").PIDs.Core)
	p.stop("a")
	text, err := os.ReadFile(filepath.Join(p.dir, "a.log"))
	if err != nil || !strings.Contains(string(text), `"code":"drain-peers"`) {
		t.Errorf("%v, log: %s", err, text)
	}
	resume()
}

// Runbook entries about certificates.
func TestEventsOfTLS(t *testing.T) {
	c := newCluster(t, sandbox.Settings{TLS: true}, "a", "b")
	for _, name := range []string{"a", "b"} {
		c.edit(name, swap(t, `data = "plain"`, `data = ""`))
	}
	own := nodecert.FilesOf(c.dir, "a")
	c.start("a")
	c.counts("a", "tls-expires")
	c.counts("a", "tls-data-plain")
	good, err := os.ReadFile(own.Cert)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(own.Cert, []byte("nothing"), 0o644); err != nil {
		t.Fatal(err)
	}
	c.counts("a", "tls-files")
	if err := os.WriteFile(own.Cert, good, 0o644); err != nil {
		t.Fatal(err)
	}
	c.stop("a")
	dir := t.TempDir()
	if _, err := nodecert.Make(nodecert.Plan{Dir: dir, Cluster: "test", Nodes: []string{"a"}, CAValid: time.Hour, NodeValid: time.Second}); err != nil {
		t.Fatal(err)
	}
	expired := time.Now().Add(time.Second)
	short := nodecert.FilesOf(dir, "a")
	c.edit("a", func(text string) string {
		return strings.NewReplacer(own.Cert, short.Cert, own.Key, short.Key, own.CA, short.CA).Replace(text)
	})
	eventually(t, "the certificate expires", func() bool { return time.Now().After(expired) })
	c.start("a")
	c.counts("a", "tls-own-certificate")
	// One that is taken into use while the node runs is judged as well.
	if _, err := nodecert.Make(nodecert.Plan{Dir: dir, Nodes: []string{"a"}, NodeValid: 30 * time.Minute, Force: true}); err != nil {
		t.Fatal(err)
	}
	c.counts("a", "tls-expires")
}

// Runbook entries about lanes: the classes of two nodes differ.
func TestEventsOfLanes(t *testing.T) {
	c := newCluster(t, sandbox.Settings{Extra: "[[class]]\nname = \"one\"\nslot_size = 4096\nslots = 64\nmax_run = 16\n"}, "a", "b")
	c.edit("b", swap(t, "slots = 64", "slots = 128"))
	c.start("a", "b")
	startService(t, c, "b", "jobs")
	conn := c.attach("a")
	c.awaitService("a", "b", "jobs", "who", 1)
	if _, err := conn.Call(bounded(t), "b/jobs/who", nil); err == nil {
		t.Error("called by rings that differ")
	}
	c.counts("a", "lane-not-opened")
	c.counts("b", "lane-refused")
}

// A node without the huge pages that it must use says so, to who calls and in its log, where nothing but lanes needs them.
func TestNoHugePages(t *testing.T) {
	free, err := os.ReadFile("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages")
	if n := strings.TrimSpace(string(free)); err == nil && n != "0" {
		t.Skipf("the machine has %s free huge pages, and this needs one without: sysctl vm.nr_hugepages=0", n)
	}
	c := newCluster(t, sandbox.Settings{Extra: "[memory]\nhugepages = \"require\"\n"}, "a")
	c.start("a")
	startService(t, c, "a", "jobs")
	_, err = c.attach("a").Call(bounded(t), "a/jobs/who", nil)
	if !errors.Is(err, client.ErrLimit) || !strings.Contains(err.Error(), "lane to a, class ") || strings.Count(err.Error(), "lane to") != 1 {
		t.Errorf("called without memory for a lane: %v", err)
	}
	c.counts("a", "lane-not-opened")
}

// Runbook entries about the machine: no RDMA, and no descriptors.
func TestEventsOfHost(t *testing.T) {
	c := newCluster(t, sandbox.Settings{Fabric: "auto", Verbs: map[string]string{"device": "no_such_device"}}, "a", "b")
	c.start("a")
	c.counts("a", "fabric-fallback")
	few := newCluster(t, sandbox.Settings{}, "a")
	cmd := begin(t, exec.Command("sh", "-c", `ulimit -n 80; exec "$0" "$@"`, programs.rdmad, "run", "-c", filepath.Join(few.dir, "a.toml")))
	eventually(t, "the node serves", func() bool { _, err := askStatus(t, few.socket("a")); return err == nil })
	var attached []*client.Conn
	for range 6 { // three descriptors each, of sixteen that the supervisor keeps
		conn, err := client.Attach(bounded(t), few.socket("a"))
		if err != nil {
			break
		}
		attached = append(attached, conn)
	}
	few.counts("a", "not-kept")
	for _, conn := range attached {
		_ = conn.Close()
	}
	// Connections that say nothing take all descriptors, so that the daemon cannot accept another
	// and cannot be asked either; it is asked between the rounds.
	eventually(t, "a connection cannot be accepted", func() bool {
		var idle []net.Conn
		for range 100 {
			conn, err := net.DialTimeout("unixpacket", few.socket("a"), time.Second)
			if err != nil {
				break
			}
			idle = append(idle, conn)
		}
		for _, conn := range idle {
			_ = conn.Close()
		}
		s, err := askStatus(t, few.socket("a")) // which may have to wait for a descriptor, too
		return err == nil && slices.ContainsFunc(s.Errors, func(e event.Entry) bool { return e.Code == event.AcceptFailed })
	})
	file := func() string { return cmd.errOut.String() }
	few.counts("a", "accept-failed")
	if err := cmd.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	cmd.end()
	if !strings.Contains(file(), `"code":"accept-failed"`) {
		t.Errorf("log: %s", file())
	}
}

// Runbook entries about counters and the other ways to look at a node.
func TestEventsOfObserving(t *testing.T) {
	c := newCluster(t, sandbox.Settings{Extra: "[observe]\ncounters = \"/proc/no/such/file\"\nlisten = \"0.0.0.0:0\"\n"}, "a")
	c.start("a")
	c.counts("a", "counters-none")
	c.counts("a", "observe-open")
}

// Two daemons of one name end each other's connections to a peer of both, which says so.
func TestTwoDaemonsOfOneName(t *testing.T) {
	c := newCluster(t, sandbox.Settings{}, "a", "b", "c")
	c.edit("c", func(text string) string { // another b, which has a for a peer
		text = swap(t, "[[peer]]\nname = \"b\"", "[[peer]]\nname = \"d\"")(text)
		return swap(t, "name = \"c\"", "name = \"b\"")(text)
	})
	for _, name := range []string{"a", "b", "c"} {
		c.start(name)
	}
	c.counts("a", "peer-twice")
}
