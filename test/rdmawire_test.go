package test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rdmad/rdmad/cmd/rdmad/sandbox"
)

// The tests of RDMA's faults take network devices down and lose packets, so they run in
// the lab's guest only: docs/lab.md.

// needLab skips the test unless it runs in the lab's guest, over verbs.
func needLab(t *testing.T) {
	t.Helper()
	if os.Getenv("RDMAD_LAB_GUEST") == "" || *fabricName != "verbs" {
		t.Skip("needs RDMA and a machine of its own: make lab-faults")
	}
}

// shell runs a command that must succeed and returns what it prints.
func shell(t *testing.T, line string) string {
	t.Helper()
	args := strings.Fields(line)
	out, err := exec.Command(args[0], args[1:]...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", line, err, out)
	}
	return string(out)
}

// wireEnd is what one node has of a wire.
type wireEnd struct{ netdev, device, address, table string }

// wire is a cable between two RDMA devices of this machine: a pair of network devices with
// soft RoCE on each. What is sent to either address goes over it, although both are this
// machine's, so that packets can be lost and either end can be taken down.
type wire struct {
	t    *testing.T
	ends [2]wireEnd
}

// laidWire is what every wire is made of. Addresses differ from those of the guest's own
// devices.
var laidWire = [2]wireEnd{
	{"wirea", "rxea", "10.9.7.1", "101"},
	{"wireb", "rxeb", "10.9.7.2", "102"},
}

// newLoop makes one device that both nodes use, as they do the guest's own: rdma_cm finds
// no way over a wire both ends of which are this machine's.
func newLoop(t *testing.T) *wire {
	t.Helper()
	needLab(t)
	e := laidWire[0]
	w := &wire{t: t, ends: [2]wireEnd{e, e}}
	shell(t, "ip link add "+e.netdev+" mtu 9000 type dummy")
	t.Cleanup(func() { shell(t, "ip link del "+e.netdev) })
	shell(t, "ip addr add "+e.address+"/24 dev "+e.netdev)
	shell(t, "ip link set "+e.netdev+" up")
	shell(t, "rdma link add "+e.device+" type rxe netdev "+e.netdev)
	t.Cleanup(func() { shell(t, "timeout 20 rdma link delete "+e.device) })
	return w
}

// newWire lays one; the end of the test, by when all daemons have ended, removes it.
func newWire(t *testing.T) *wire {
	t.Helper()
	needLab(t)
	if *connect == "rdmacm" {
		return newLoop(t)
	}
	w := &wire{t: t, ends: laidWire}
	a, b := w.ends[0], w.ends[1]
	shell(t, fmt.Sprintf("ip link add %s mtu 9000 type veth peer name %s mtu 9000", a.netdev, b.netdev))
	// The pair goes, whatever else fails.
	t.Cleanup(func() { shell(t, "ip link del "+a.netdev) })
	w.file("/proc/sys/net/ipv4/conf/all/rp_filter", "0")
	// Who sends to an end goes by the other one, and does not find a local address; what
	// comes in by an end for its address is this machine's.
	rules := []string{"pref 30 lookup local"}
	for _, e := range w.ends {
		rules = append(rules, "pref 10 iif "+e.netdev+" to "+e.address+" lookup local", "pref 20 to "+w.other(e).address+" lookup "+e.table)
	}
	for _, r := range rules {
		shell(t, "ip rule add "+r)
	}
	shell(t, "ip rule del pref 0")
	t.Cleanup(func() {
		shell(t, "ip rule add pref 0 lookup local")
		for _, r := range rules {
			shell(t, "ip rule del "+r)
		}
	})
	for _, e := range w.ends {
		w.file("/proc/sys/net/ipv4/conf/"+e.netdev+"/accept_local", "1")
		w.file("/proc/sys/net/ipv4/conf/"+e.netdev+"/rp_filter", "0")
		shell(t, "ip addr add "+e.address+"/24 dev "+e.netdev)
	}
	for _, e := range w.ends {
		w.up(e)
	}
	for _, e := range w.ends {
		shell(t, "rdma link add "+e.device+" type rxe netdev "+e.netdev)
	}
	t.Cleanup(func() {
		for _, e := range w.ends {
			if w.has(e) {
				shell(t, "timeout 20 rdma link delete "+e.device)
			}
		}
	})
	return w
}

func (w *wire) file(name, text string) {
	w.t.Helper()
	if err := os.WriteFile(name, []byte(text), 0); err != nil {
		w.t.Fatal(err)
	}
}

func (w *wire) other(e wireEnd) wireEnd {
	if e == w.ends[0] {
		return w.ends[1]
	}
	return w.ends[0]
}

// has reports whether the end's RDMA device is there.
func (w *wire) has(e wireEnd) bool {
	return exists("/sys/class/infiniband/" + e.device)
}

// down takes an end down; the other one loses its carrier.
func (w *wire) down(e wireEnd) {
	w.t.Helper()
	shell(w.t, "ip link set "+e.netdev+" down")
}

// up takes an end up. Routes by it went when it was down.
func (w *wire) up(e wireEnd) {
	w.t.Helper()
	shell(w.t, "ip link set "+e.netdev+" up")
	if w.ends[0] == w.ends[1] {
		return // nothing leads there but the device
	}
	shell(w.t, fmt.Sprintf("ip route replace %s dev %s src %s table %s", w.other(e).address, e.netdev, e.address, e.table))
}

// netem has what an end sends treated as tc-netem says; "" ends it.
func (w *wire) netem(e wireEnd, how string) {
	w.t.Helper()
	if how == "" {
		// There may be none.
		_ = exec.Command("tc", "qdisc", "del", "dev", e.netdev, "root").Run()
		return
	}
	shell(w.t, "tc qdisc replace dev "+e.netdev+" root netem limit 100000 "+how)
}

// lossy reports whether packets have passed what netem has made of an end.
func (w *wire) lossy(e wireEnd) bool {
	w.t.Helper()
	var list []struct {
		Kind    string
		Packets int
	}
	if err := json.Unmarshal([]byte(shell(w.t, "tc -s -j qdisc show dev "+e.netdev)), &list); err != nil {
		w.t.Fatal(err)
	}
	return len(list) > 0 && list[0].Kind == "netem" && list[0].Packets > 0
}

// cut loses all packets, without anybody being told.
func (w *wire) cut(lost bool) {
	w.t.Helper()
	how := ""
	if lost {
		how = "loss 100%"
	}
	for _, e := range w.ends {
		w.netem(e, how)
	}
}

// nodes makes nodes a and b, each with one end of the wire. With bootstrap they also
// reach each other by it, else by the loopback interface, which tcp uses too. It starts
// none. A peer that does not answer is noticed soon.
func (w *wire) nodes(s sandbox.Settings, bootstrap bool) *cluster {
	t := w.t
	t.Helper()
	if s.Fabric == "" {
		s.Fabric = *fabricName
	}
	dir, err := os.MkdirTemp("", "rdmad-nodes-")
	if err != nil {
		t.Fatal(err)
	}
	c := &cluster{t: t, dir: dir, nodes: map[string]*sandbox.Node{}, names: []string{"a", "b"}}
	t.Cleanup(c.remove)
	listen, err := sandbox.FreePorts(2)
	if err != nil {
		t.Fatal(err)
	}
	if bootstrap {
		for i, e := range w.ends {
			_, port, err := net.SplitHostPort(listen[i])
			if err != nil {
				t.Fatal(err)
			}
			listen[i] = net.JoinHostPort(e.address, port)
		}
	}
	for i, name := range c.names {
		own := s
		own.Verbs = map[string]string{"device": w.ends[i].device, "timeout": "12", "retry_count": "6"}
		if *connect != "" {
			own.Verbs["connect"] = *connect
		}
		maps.Copy(own.Verbs, s.Verbs)
		peers := []sandbox.Peer{{Name: c.names[1-i], Address: listen[1-i]}}
		if c.nodes[name], err = sandbox.NewNode(programs.rdmad, dir, name, listen[i], peers, own); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

// pair is nodes, started.
func (w *wire) pair(s sandbox.Settings, bootstrap bool) *cluster {
	w.t.Helper()
	c := w.nodes(s, bootstrap)
	c.start("a", "b")
	return c
}

// resources are the kernel's objects of the RDMA devices of both ends, by device and kind.
func (w *wire) resources() map[string]int {
	w.t.Helper()
	all := map[string]int{}
	for _, e := range w.ends {
		var list []map[string]any
		if err := json.Unmarshal([]byte(shell(w.t, "rdma -j resource show "+e.device)), &list); err != nil || len(list) != 1 {
			w.t.Fatalf("rdma resource show: %v, %v", list, err)
		}
		for kind, n := range list[0] {
			if n, ok := n.(float64); ok && !strings.HasPrefix(kind, "if") {
				all[e.device+" "+kind] = int(n)
			}
		}
	}
	return all
}

// awaitResources waits until the devices have no more objects than before.
func (w *wire) awaitResources(before map[string]int) {
	w.t.Helper()
	var now map[string]int
	defer func() {
		if w.t.Failed() {
			w.t.Logf("the devices have %v, had %v", now, before)
		}
	}()
	eventually(w.t, "the devices have what they had", func() bool {
		now = w.resources()
		return !slices.ContainsFunc(slices.Collect(maps.Keys(now)), func(kind string) bool { return now[kind] > before[kind] })
	})
}

// logged returns how often a node's log has said something.
func (c *cluster) logged(name, text string) int {
	c.t.Helper()
	log, err := os.ReadFile(filepath.Join(c.dir, name+".log"))
	if err != nil {
		c.t.Fatal(err)
	}
	return strings.Count(string(log), text)
}

// fabricOf returns the provider of the link between a node and its peer.
func (c *cluster) fabricOf(name string) string {
	c.t.Helper()
	if s := c.status(name).Peers[0]; s.State == "connected" {
		return s.Fabric
	}
	return ""
}

// awaitFabric waits until the link between the nodes uses a provider.
func (c *cluster) awaitFabric(provider string, most time.Duration) {
	c.t.Helper()
	for end := time.Now().Add(most); c.fabricOf("a") != provider || c.fabricOf("b") != provider; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			c.t.Fatalf("the link uses %q, not %q after %v", c.fabricOf("a"), provider, most)
		}
	}
}

// errLate says that a command has not ended in its time.
var errLate = errors.New("it has not ended")
