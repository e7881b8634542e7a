package test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/rdmad/rdmad/client"
	"github.com/rdmad/rdmad/cmd/rdmad/sandbox"
	"github.com/rdmad/rdmad/internal/nodecert"
	"github.com/rdmad/rdmad/internal/status"
)

// cluster is daemons that know each other. They are stopped, and checked to have
// left nothing behind, when the test ends.
type cluster struct {
	t     *testing.T
	dir   string
	nodes map[string]*sandbox.Node
	names []string
}

// newCluster makes the configurations of nodes that are all peers of each
// other. It starts none.
func newCluster(t *testing.T, s sandbox.Settings, names ...string) *cluster {
	t.Helper()
	return newClusterVia(t, s, func(address string) string { return address }, names...)
}

// newClusterVia is newCluster with something in between: the nodes dial what via makes of
// an address.
func newClusterVia(t *testing.T, s sandbox.Settings, via func(address string) string, names ...string) *cluster {
	t.Helper()
	if s.Fabric == "" {
		s.Fabric = *fabricName
	}
	if s.HangLimit == "" {
		s.HangLimit = "5m" // tests stop cores, and the machine may be slow
	}
	if *provider != "" {
		s.Extra += fmt.Sprintf("\n[libfabric]\nprovider = %q\n", *provider)
	}
	if *connect != "" {
		s.Extra += fmt.Sprintf("\n[verbs]\nconnect = %q\n", *connect)
	}
	dir, err := os.MkdirTemp("", "rdmad-nodes-")
	if err != nil {
		t.Fatal(err)
	}
	// Workers of other users must get to the sockets.
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	c := &cluster{t: t, dir: dir, nodes: map[string]*sandbox.Node{}, names: names}
	t.Cleanup(c.remove)
	if s.TLS {
		_, err := nodecert.Make(nodecert.Plan{Dir: dir, Cluster: "test", Nodes: names, CAValid: time.Hour, NodeValid: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
	}
	ports, err := sandbox.FreePorts(len(names))
	if err != nil {
		t.Fatal(err)
	}
	for i, name := range names {
		var peers []sandbox.Peer
		for j, peer := range names {
			if i != j {
				peers = append(peers, sandbox.Peer{Name: peer, Address: via(ports[j])})
			}
		}
		if c.nodes[name], err = sandbox.NewNode(programs.rdmad, dir, name, ports[i], peers, s); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

// newPair starts nodes a and b.
func newPair(t *testing.T, s sandbox.Settings) *cluster {
	t.Helper()
	c := newCluster(t, s, "a", "b")
	c.start("a", "b")
	return c
}

// start starts nodes and waits until workers can attach.
func (c *cluster) start(names ...string) {
	c.t.Helper()
	for _, name := range names {
		if err := c.nodes[name].Start(); err != nil {
			c.t.Fatal(err)
		}
	}
	for _, name := range names {
		if err := c.nodes[name].Ready(bounded(c.t)); err != nil {
			c.t.Fatal(err)
		}
	}
}

// stop stops a node in an orderly way.
func (c *cluster) stop(name string) {
	c.t.Helper()
	if err := c.nodes[name].Stop(); err != nil {
		c.t.Errorf("stop: %v", err)
	}
}

// remove stops what runs and checks what is left.
func (c *cluster) remove() {
	for _, name := range slices.Backward(c.names) {
		n := c.nodes[name]
		if n == nil || n.Process() == nil || !n.Process().Alive() {
			continue
		}
		c.stop(name)
		for _, left := range []string{n.Socket, n.Socket + ".lock", n.Socket + ".pid"} {
			if exists(left) {
				c.t.Errorf("node %s left %s behind", name, filepath.Base(left))
			}
		}
	}
	if c.t.Failed() {
		for _, name := range c.names {
			if n := c.nodes[name]; n != nil && n.Process() != nil {
				c.t.Logf("node %s%s", name, n.Process().Tail())
			}
		}
	}
	if err := os.RemoveAll(c.dir); err != nil {
		c.t.Error(err)
	}
}

// socket returns where the node's workers attach.
func (c *cluster) socket(name string) string { return c.nodes[name].Socket }

// attach attaches this process to a node.
func (c *cluster) attach(name string) *client.Conn {
	c.t.Helper()
	conn, err := client.Attach(bounded(c.t), c.socket(name), client.Name("test"))
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() {
		if err := conn.Close(); err != nil {
			c.t.Error(err)
		}
	})
	return conn
}

// status returns the state of a node.
func (c *cluster) status(name string) *status.Node {
	c.t.Helper()
	s, err := askStatus(c.t, c.socket(name))
	if err != nil {
		c.t.Fatal(err)
	}
	return s
}

func askStatus(t *testing.T, socket string) (s *status.Node, err error) {
	conn, err := client.Attach(bounded(t), socket, client.Name("test-status"))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	raw, err := conn.Status(bounded(t))
	if err != nil {
		return nil, err
	}
	s = new(status.Node)
	return s, json.Unmarshal(raw, s)
}

// awaitNoService waits until a node knows no method of a service that another has.
func (c *cluster) awaitNoService(name, node, service string) {
	c.t.Helper()
	eventually(c.t, "node "+name+" forgets "+node+"/"+service, func() bool {
		return !slices.ContainsFunc(c.status(name).Services, func(s status.Service) bool { return s.Node == node && s.Service == service })
	})
}

// awaitService waits until a node knows that another serves a method, by the
// given number of processes if that is its own business.
func (c *cluster) awaitService(name, node, service, method string, processes int) {
	c.t.Helper()
	eventually(c.t, "node "+name+" knows "+node+"/"+service+"/"+method, func() bool {
		return slices.ContainsFunc(c.status(name).Services, func(s status.Service) bool {
			return s.Node == node && s.Service == service && s.Method == method && (name != node || s.Workers == processes)
		})
	})
}
