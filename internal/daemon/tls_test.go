package daemon_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rdmad/rdmad/internal/daemontest"
	"github.com/rdmad/rdmad/internal/nodecert"
	"github.com/rdmad/rdmad/internal/status"
)

// cluster is an authority and where certificates of it are.
type cluster struct {
	*nodecert.Authority
	dir string
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	a, err := nodecert.NewAuthority("test", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	c := &cluster{a, t.TempDir()}
	cert, _, err := a.PEM()
	if err != nil {
		t.Fatal(err)
	}
	put(t, filepath.Join(c.dir, nodecert.CAFile), cert, 0o644)
	return c
}

// put replaces a file in one step.
func put(t *testing.T, path string, data []byte, mode os.FileMode) {
	t.Helper()
	if err := errors.Join(os.WriteFile(path+".new", data, mode), os.Rename(path+".new", path)); err != nil {
		t.Fatal(err)
	}
}

// write puts the certificate of a request where the node's is.
func (c *cluster) write(t *testing.T, r nodecert.Request) {
	t.Helper()
	if r.Until.IsZero() {
		r.Until = time.Now().Add(time.Hour)
	}
	cert, key, err := c.Issue(r)
	if err != nil {
		t.Fatal(err)
	}
	f := nodecert.FilesOf(c.dir, r.Node)
	put(t, f.Key, key, 0o600)
	put(t, f.Cert, cert, 0o644)
}

// section returns the configuration of a node that has its certificate.
func (c *cluster) section(t *testing.T, node string) string {
	t.Helper()
	f := nodecert.FilesOf(c.dir, node)
	if _, err := os.Stat(f.Cert); err != nil {
		c.write(t, nodecert.Request{Node: node})
	}
	return fmt.Sprintf("\n[tls]\nmode = \"required\"\ncert = %q\nkey = %q\nca = %q\n", f.Cert, f.Key, f.CA)
}

// secured starts two nodes with TLS and waits until they are connected.
func secured(t *testing.T) (c *cluster, a, b *daemontest.Node) {
	t.Helper()
	c = newCluster(t)
	a, b = daemontest.PairOfEach(t, c.section(t, "a"), c.section(t, "b"))
	return c, a, b
}

func statusOf(t *testing.T, n *daemontest.Node) *status.Node {
	t.Helper()
	st, err := n.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return st
}

// refused waits until a node has refused a connection for the reason, in words that
// include the given ones.
func refused(t *testing.T, n *daemontest.Node, reason string, words ...string) {
	t.Helper()
	daemontest.Eventually(t, n.Name+" refuses: "+reason, func() error {
		st, err := n.Status(t.Context())
		if err != nil {
			return err
		}
		for _, r := range st.Refusals {
			if r.Reason == reason {
				return hasWords(r.Text, words)
			}
		}
		return fmt.Errorf("refusals %+v", st.Refusals)
	})
}

// failed waits until a node says why it is not connected, with the given words.
func failed(t *testing.T, n *daemontest.Node, words ...string) {
	t.Helper()
	daemontest.Eventually(t, n.Name+" says why it is not connected", func() error {
		st, err := n.Status(t.Context())
		if err != nil {
			return err
		}
		return hasWords(st.Peers[0].Error, words)
	})
}

func hasWords(text string, words []string) error {
	for _, w := range words {
		if !strings.Contains(text, w) {
			return fmt.Errorf("no %q in %q", w, text)
		}
	}
	return nil
}

// noCertificateRefused checks that a node has refused nobody for a certificate; a
// connection that a node gave up when it stopped is no matter, nor is one that was slow: other tests are about those.
func noCertificateRefused(t *testing.T, n *daemontest.Node) {
	t.Helper()
	for _, r := range statusOf(t, n).Refusals {
		if r.Reason != "closed" && r.Reason != "slow" {
			t.Errorf("node %s has refused %+v", n.Name, r)
		}
	}
}

// linked returns a node's status when its link to its peer is there: where both have dialled,
// one link takes the place of the other.
func linked(t *testing.T, n *daemontest.Node) (st *status.Node) {
	t.Helper()
	daemontest.Eventually(t, "a link with TLS", func() error {
		if st = statusOf(t, n); st.Peers[0].TLS == nil {
			return fmt.Errorf("%+v", st.Peers)
		}
		return nil
	})
	return st
}

// With TLS everything works as without, and the status says what protects the link.
func TestTLS(t *testing.T) {
	_, a, b := secured(t)
	for _, n := range []struct{ from, to *daemontest.Node }{{a, b}, {b, a}} {
		serve(t, n.to)
		conn := attachClient(t, n.from)
		target := n.to.Name + "/text/upper"
		callable(t, conn, target)
		if got, err := conn.Call(t.Context(), target, []byte("abc")); err != nil || string(got) != "ABC" {
			t.Fatalf("%s: %q, %v", target, got, err)
		}
		st, own := linked(t, n.from), statusOf(t, n.to).TLS
		link := st.Peers[0].TLS
		if own == nil || link.Version != "TLS 1.3" || link.Peer != *own || own.Name != "rdmad://node/"+n.to.Name {
			t.Errorf("node %s: %+v; the peer: %+v", n.from.Name, link, own)
		}
		noCertificateRefused(t, n.from)
	}
	killed := time.Now()
	if err := b.KillCore(); err != nil {
		t.Fatal(err)
	}
	daemontest.Eventually(t, "the other one notices", func() error {
		// It may have the next core for its peer by now.
		if st := statusOf(t, a); st.Peers[0].State == "connected" && st.Peers[0].SinceS > time.Since(killed).Seconds() {
			return fmt.Errorf("%+v", st.Peers)
		}
		return nil
	})
	if err := errors.Join(a.Connected("b"), b.Connected("a")); err != nil {
		t.Fatal(err)
	}
}

// One node with TLS and one without: both know why, whoever dials.
func TestTLSOnOneSideOnly(t *testing.T) {
	c := newCluster(t)
	a, b := daemontest.PairApart(t, c.section(t, "a"), "")
	failed(t, a, "an answer without TLS", `node b has tls.mode = "off"`)
	refused(t, b, "unexpected-tls", `node b has tls.mode = "off"`, "same tls.mode")
	failed(t, b, "the peer refuses", "without TLS", `node a has tls.mode = "required"`, "rdmad certs init")
	refused(t, a, "no-tls", `says it is "b"`, `node a has tls.mode = "required"`)
}

// A node whose certificate has expired works by itself, and is told by its peer why it
// is alone; a new certificate ends that without a restart.
func TestExpiredNode(t *testing.T) {
	c := newCluster(t)
	c.write(t, nodecert.Request{Node: "a", From: time.Now().Add(-2 * time.Hour), Until: time.Now().Add(-time.Hour)})
	a, b := daemontest.PairApart(t, c.section(t, "a"), c.section(t, "b"))
	failed(t, a, "node b refuses this node's certificate", "expired certificate", "rdmad doctor")
	refused(t, b, "certificate-expired", "CN=a", "expired on", "rdmad certs init")
	failed(t, b, "expired on")
	serve(t, a)
	callable(t, attachClient(t, a), "text/upper")
	c.write(t, nodecert.Request{Node: "a"})
	if err := errors.Join(a.Connected("b"), b.Connected("a")); err != nil {
		t.Fatal(err)
	}
}

// Only who is on the list may connect; who is dialled is another matter.
func TestAllowList(t *testing.T) {
	c := newCluster(t)
	a, b := daemontest.PairApart(t, c.section(t, "a"), c.section(t, "b")+"allow = [\"c\"]\n[[peer]]\nname = \"c\"\naddress = \"127.0.0.1:1\"\n")
	refused(t, b, "not-allowed", `node "a"`, "tls.allow of node b")
	// b has dialled a.
	if err := errors.Join(a.Connected("b"), b.Connected("a")); err != nil {
		t.Fatal(err)
	}
}

// A certificate is changed while the nodes run, and then for nonsense.
func TestRotation(t *testing.T) {
	c, a, b := secured(t)
	reconnect := func() *status.Node {
		t.Helper()
		if err := errors.Join(b.Restart(), b.Connected("a"), a.Connected("b")); err != nil {
			t.Fatal(err)
		}
		return linked(t, b)
	}
	pid := statusOf(t, a).PIDs
	old := linked(t, b).Peers[0].TLS.Peer
	c.write(t, nodecert.Request{Node: "a", Until: time.Now().Add(30 * time.Minute)})
	fresh := reconnect().Peers[0].TLS.Peer
	if fresh.Fingerprint == old.Fingerprint || !fresh.NotAfter.Before(old.NotAfter) {
		t.Errorf("the certificate was %+v and is %+v", old, fresh)
	}
	f := nodecert.FilesOf(c.dir, "a")
	for name, spoil := range map[string]func(){
		"garbage":  func() { put(t, f.Cert, []byte("garbage"), 0o644) },
		"no key":   func() { _ = os.Remove(f.Key) },
		"open key": func() { _ = os.Chmod(f.Key, 0o644) },
		"other's":  func() { c.write(t, nodecert.Request{Node: "b"}); copyFiles(t, nodecert.FilesOf(c.dir, "b"), f) },
		"expired": func() {
			c.write(t, nodecert.Request{Node: "a", From: time.Now().Add(-2 * time.Hour), Until: time.Now().Add(-time.Hour)})
		},
		"no authority": func() { put(t, f.CA, []byte("garbage"), 0o644) },
	} {
		spoil()
		if name != "no authority" { // that is b's as well, which is to start again
			if got := reconnect().Peers[0].TLS.Peer; got != fresh {
				t.Errorf("%s: the certificate is %+v", name, got)
			}
		}
		ca, _, err := c.PEM()
		if err != nil {
			t.Fatal(err)
		}
		if st := statusOf(t, a); st.TLS.Fingerprint != fresh.Fingerprint {
			t.Errorf("%s: the node has %+v", name, st.TLS)
		}
		put(t, f.CA, ca, 0o644)
		c.write(t, nodecert.Request{Node: "a"})
		fresh = reconnect().Peers[0].TLS.Peer
	}
	if now := statusOf(t, a).PIDs; now != pid {
		t.Errorf("the node was restarted: %+v, %+v before", now, pid)
	}
}

// The nodes get another authority while they run, and understand each other at each
// step.
func TestRotationOfTheAuthority(t *testing.T) {
	old, a, b := secured(t)
	next, err := nodecert.NewAuthority("next", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	oldCA, _, err1 := old.PEM()
	nextCA, _, err2 := next.PEM()
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	ca := nodecert.FilesOf(old.dir, "a").CA
	pid := statusOf(t, a).PIDs
	for i, step := range []func(){
		func() { put(t, ca, append(append([]byte{}, oldCA...), nextCA...), 0o644) },
		func() { (&cluster{next, old.dir}).write(t, nodecert.Request{Node: "b"}) },
		func() { (&cluster{next, old.dir}).write(t, nodecert.Request{Node: "a"}) },
		func() { put(t, ca, nextCA, 0o644) },
	} {
		step()
		if err := errors.Join(b.Restart(), b.Connected("a"), a.Connected("b")); err != nil {
			t.Fatalf("step %d: %v", i, err)
		}
	}
	if now := statusOf(t, a).PIDs; now != pid {
		t.Errorf("the node was restarted: %+v, %+v before", now, pid)
	}
	noCertificateRefused(t, a)
	if kind, _, err := greet(t, a, stranger(old.pair(t, nodecert.Request{Node: "b"})), "b"); err == nil {
		t.Errorf("the old authority is still believed: %q", kind)
	}
	refused(t, a, "certificate-wrong-authority", "O=test")
}

func copyFiles(t *testing.T, from, to nodecert.Files) {
	t.Helper()
	for src, dst := range map[string]string{from.Cert: to.Cert, from.Key: to.Key} {
		data, err := os.ReadFile(src)
		if err != nil {
			t.Fatal(err)
		}
		put(t, dst, data, 0o600)
	}
}

// A node whose files are of no use does not start.
func TestBadFilesAtStart(t *testing.T) {
	c, a, _ := secured(t)
	if err := a.Halt(); err != nil {
		t.Fatal(err)
	}
	f := nodecert.FilesOf(c.dir, "a")
	if err := os.Chmod(f.Key, 0o640); err != nil {
		t.Fatal(err)
	}
	if err := daemontest.Again(a); err == nil || !strings.Contains(err.Error(), "the core cannot start") {
		t.Errorf("a key that others can read: %v", err)
	}
}
