package browser

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/rdmad/rdmad/cmd/rdmad/sandbox"
	"github.com/rdmad/rdmad/internal/nodecert"
	"github.com/rdmad/rdmad/internal/status"
)

// nodes are two daemons, a and b, with an echo service on b.
type nodes struct {
	t    *testing.T
	a, b *sandbox.Node
	// pageA and pageB are the addresses of their pages.
	pageA, pageB string
	echo         *sandbox.Process
	dir          string
}

// bounded returns a context for one wait.
func bounded(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	t.Cleanup(cancel)
	return ctx
}

// newNodes starts them. They are stopped when the test ends.
func newNodes(t *testing.T, s sandbox.Settings) *nodes {
	t.Helper()
	needChromium(t)
	dir, err := os.MkdirTemp("", "rdmad-page-") // short: sockets are in it
	if err != nil {
		t.Fatal(err)
	}
	n := &nodes{t: t, dir: dir}
	t.Cleanup(n.stop)
	if s.TLS {
		_, err := nodecert.Make(nodecert.Plan{Dir: dir, Cluster: "test", Nodes: []string{"a", "b"}, CAValid: time.Hour, NodeValid: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
	}
	ports, err := sandbox.FreePorts(4)
	if err != nil {
		t.Fatal(err)
	}
	extra := s.Extra
	node := func(name, listen, observe string, peer sandbox.Peer) *sandbox.Node {
		s.Extra = fmt.Sprintf("[observe]\nlisten = %q\n%s", observe, extra)
		node, err := sandbox.NewNode(rdmad, dir, name, listen, []sandbox.Peer{peer}, s)
		if err != nil {
			t.Fatal(err)
		}
		return node
	}
	n.a, n.pageA = node("a", ports[0], ports[2], sandbox.Peer{Name: "b", Address: ports[1]}), "http://"+ports[2]+"/"
	n.b, n.pageB = node("b", ports[1], ports[3], sandbox.Peer{Name: "a", Address: ports[0]}), "http://"+ports[3]+"/"
	for _, node := range []*sandbox.Node{n.a, n.b} {
		if err := node.Start(); err != nil {
			t.Fatal(err)
		}
	}
	for _, node := range []*sandbox.Node{n.a, n.b} {
		if err := node.Ready(bounded(t)); err != nil {
			t.Fatal(err)
		}
	}
	n.echo, err = sandbox.StartProcess("the echo service", filepath.Join(dir, "echo.log"), rdmad, "echo", "--socket", n.b.Socket)
	if err != nil {
		t.Fatal(err)
	}
	if err := n.a.Reaches(bounded(t), "b/echo/echo"); err != nil {
		t.Fatal(err)
	}
	return n
}

func (n *nodes) stop() {
	if n.echo != nil && n.echo.Alive() {
		if err := n.echo.Stop(limit); err != nil {
			n.t.Error(err)
		}
	}
	for _, node := range []*sandbox.Node{n.b, n.a} {
		if node == nil || node.Process() == nil || !node.Process().Alive() {
			continue
		}
		if err := node.Stop(); err != nil {
			n.t.Error(err)
		}
	}
	if err := os.RemoveAll(n.dir); err != nil {
		n.t.Error(err)
	}
}

// load has processes call the echo service from node a, until the test ends or stop is
// called.
func (n *nodes) load(args ...string) (stop func()) {
	n.t.Helper()
	c := exec.Command(rdmad, append([]string{"bench", "call", "--socket", n.a.Socket, "--duration", "5m", "--warmup", "0s"}, args...)...)
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	if err := c.Start(); err != nil {
		n.t.Fatal(err)
	}
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		_ = syscall.Kill(-c.Process.Pid, syscall.SIGKILL)
		_ = c.Wait()
	}
	n.t.Cleanup(stop)
	return stop
}

// status returns what "rdmad status --json" prints for a node.
func (n *nodes) status(node *sandbox.Node) *status.Node {
	n.t.Helper()
	out, err := exec.CommandContext(bounded(n.t), rdmad, "status", "--json", "--socket", node.Socket).Output()
	if err != nil {
		n.t.Fatal(err)
	}
	s := new(status.Node)
	if err := json.Unmarshal(out, s); err != nil {
		n.t.Fatal(err)
	}
	return s
}
