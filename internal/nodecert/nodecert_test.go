package nodecert

import (
	"crypto/x509"
	"errors"
	"io/fs"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

func newAuthority(t *testing.T) *Authority {
	t.Helper()
	a, err := NewAuthority("test", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// made makes certificates in a new directory.
func made(t *testing.T, nodes ...string) (string, *Made) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "certs")
	m, err := Make(Plan{Dir: dir, Cluster: "test", Nodes: nodes, CAValid: time.Hour, NodeValid: time.Hour / 2})
	if err != nil {
		t.Fatal(err)
	}
	return dir, m
}

func TestNameOf(t *testing.T) {
	parse := func(s string) *url.URL {
		u, err := url.Parse(s)
		if err != nil {
			t.Fatal(err)
		}
		return u
	}
	for name, want := range map[string]string{
		"rdmad://node/a": "a", "rdmad://node/a.b-c_9": "a.b-c_9",
		"rdmad://node/A": "", "rdmad://node/": "", "rdmad://node": "", "rdmad://node//a": "", "rdmad://node/a/b": "", "rdmad:a": "",
		"rdmad://node/a?x": "", "rdmad://node/a#x": "", "rdmad://u@node/a": "", "rdmad://node:1/a": "", "rdmad://other/a": "", "rdmad://node/%61": "",
		"https://node/a": "", "rdmad://node/..": "", "spiffe://node/a": "",
	} {
		got, err := NameOf(&x509.Certificate{URIs: []*url.URL{parse(name)}})
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	for _, uris := range [][]*url.URL{nil, {URI("a"), URI("b")}, {URI("a"), URI("a")}} {
		if got, err := NameOf(&x509.Certificate{URIs: uris}); err == nil {
			t.Errorf("%v: %q", uris, got)
		}
	}
	if got, err := NameOf(&x509.Certificate{URIs: []*url.URL{parse("https://x/"), URI("a")}}); got != "a" || err != nil {
		t.Errorf("with a name of another kind: %q, %v", got, err)
	}
}

func TestMakeAndLoad(t *testing.T) {
	dir, m := made(t, "a", "b")
	if !m.NewCA || len(m.Nodes) != 2 {
		t.Errorf("%+v", m)
	}
	for _, n := range m.Nodes {
		got, err := Load(Open, n.Files)
		if err != nil {
			t.Fatal(err)
		}
		if err := got.Usable(n.Node, time.Now()); err != nil || !got.Leaf.NotAfter.Equal(n.Until) {
			t.Errorf("%v, until %v", err, got.Leaf.NotAfter)
		}
		if err := got.Usable("z", time.Now()); err == nil {
			t.Error("another node's certificate is usable")
		}
	}
	for name, mode := range map[string]fs.FileMode{CAFile: 0o644, CAKeyFile: 0o600, "a.pem": 0o644, "a-key.pem": 0o600} {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil || info.Mode().Perm() != mode {
			t.Errorf("%s: %v, %v", name, info.Mode(), err)
		}
	}
	// Again: the authority stays, certificates are replaced only by force.
	again := Plan{Dir: dir, Nodes: []string{"c", "a"}, NodeValid: time.Minute}
	if _, err := Make(again); err == nil || !strings.Contains(err.Error(), "a.pem") {
		t.Errorf("over what is there: %v", err)
	}
	if _, err := os.Stat(filepath.Join(dir, "c.pem")); err == nil {
		t.Error("half of a plan was carried out")
	}
	again.Force = true
	second, err := Make(again)
	if err != nil || second.NewCA {
		t.Fatalf("%+v, %v", second, err)
	}
	infos, err := Show(filepath.Join(dir, "a.pem"))
	if err != nil || len(infos) != 1 || infos[0].Node != "a" || infos[0].Authority || time.Until(infos[0].Until) > time.Minute {
		t.Errorf("%+v, %v", infos, err)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, ".*")); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

func TestMakeRefuses(t *testing.T) {
	dir, _ := made(t, "a")
	for what, p := range map[string]Plan{
		"bad name":        {Nodes: []string{"A"}},
		"path":            {Nodes: []string{"../a"}},
		"twice":           {Nodes: []string{"x", "x"}},
		"the authority's": {Nodes: []string{"ca"}, Force: true},
		"another's key":   {Nodes: []string{"x", "x-key"}},
		"cluster":         {Nodes: []string{"x"}, Cluster: "other"},
		"other validity":  {Nodes: []string{"x"}, CAValid: 2 * time.Hour},
	} {
		p.Dir, p.NodeValid = dir, time.Hour
		if _, err := Make(p); err == nil {
			t.Errorf("%s: no error", what)
		}
	}
	if err := os.Remove(filepath.Join(dir, CAKeyFile)); err != nil {
		t.Fatal(err)
	}
	if _, err := Make(Plan{Dir: dir, Nodes: []string{"x"}, NodeValid: time.Hour}); err == nil || errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without the authority's key: %v", err)
	}
}

// What Load must refuse, each with a word that says why.
func TestLoadRefuses(t *testing.T) {
	dir, m := made(t, "a", "b")
	f, other := m.Nodes[0].Files, m.Nodes[1].Files
	put := func(name, text string, mode fs.FileMode) string {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.WriteFile(path, []byte(text), mode), os.Chmod(path, mode)); err != nil {
			t.Fatal(err)
		}
		return path
	}
	text := func(path string) string {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	issue := func(name string, r Request) (cert, key string) {
		a := newAuthority(t)
		if name != "stranger" {
			var err error
			if a, err = openIn(dir, ""); err != nil {
				t.Fatal(err)
			}
		}
		r.Until = time.Now().Add(time.Hour / 2)
		c, k, err := a.Issue(r)
		if err != nil {
			t.Fatal(err)
		}
		return put(name+".pem", string(c), 0o644), put(name+"-key.pem", string(k), 0o600)
	}
	fifo := filepath.Join(dir, "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	strangeCert, strangeKey := issue("stranger", Request{Node: "a"})
	serverCert, serverKey := issue("server", Request{Node: "a", Usages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}})
	noneCert, noneKey := issue("none", Request{Node: "a", URIs: []*url.URL{}})
	for word, files := range map[string]Files{
		"no such file":                 {f.Cert, f.Key + "x", f.CA},
		"mode 0640":                    {f.Cert, put("open", text(f.Key), 0o640), f.CA},
		"chmod 0600":                   {f.Cert, put("open2", text(f.Key), 0o604), f.CA},
		"chmod go-w":                   {f.Cert, f.Key, put("ca-open", text(f.CA), 0o666)},
		"is not a file":                {f.Cert, fifo, f.CA},
		"private key does not match":   {f.Cert, other.Key, f.CA},
		"tls.ca":                       {f.Cert, f.Key, put("empty", "", 0o600)},
		"not that of an authority":     {f.Cert, f.Key, f.Cert},
		"failed to find":               {put("garbage", "garbage", 0o600), f.Key, f.CA},
		"more than":                    {put("long", strings.Repeat("x", maxFile+1), 0o600), f.Key, f.CA},
		"no authority of tls.ca":       {strangeCert, strangeKey, f.CA},
		"not made for the dialling":    {serverCert, serverKey, f.CA},
		"has 0 names":                  {noneCert, noneKey, f.CA},
		"has 0 names of the form rdma": {f.CA, filepath.Join(dir, CAKeyFile), f.CA},
	} {
		if _, err := Load(Open, files); err == nil || !strings.Contains(err.Error(), word) {
			t.Errorf("want %q, got %v", word, err)
		}
	}
}

// An authority made here is of no use for anything but nodes.
func TestConstraints(t *testing.T) {
	a := newAuthority(t)
	roots := x509.NewCertPool()
	roots.AddCert(a.Cert)
	for what, change := range map[string]func(*x509.Certificate){
		"host":      func(c *x509.Certificate) { c.DNSNames = []string{"www.example.org"} },
		"address":   func(c *x509.Certificate) { c.IPAddresses = []net.IP{net.IPv4(192, 0, 2, 1)} },
		"mail":      func(c *x509.Certificate) { c.EmailAddresses = []string{"a@example.org"} },
		"URI":       func(c *x509.Certificate) { c.URIs = []*url.URL{{Scheme: "https", Host: "example.org"}} },
		"authority": func(c *x509.Certificate) { c.IsCA = true },
	} {
		template := &x509.Certificate{
			NotBefore: time.Now().Add(-time.Minute), NotAfter: time.Now().Add(time.Minute), BasicConstraintsValid: true,
			KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageAny},
		}
		change(template)
		c, key, err := issue(template, a.Cert, a.key)
		if err != nil {
			t.Fatal(err)
		}
		chain := []*x509.Certificate{c}
		if c.IsCA { // it can be made, but what it signs is worth nothing
			leaf, _, err := issue(&x509.Certificate{NotBefore: template.NotBefore, NotAfter: template.NotAfter, URIs: []*url.URL{URI("a")}}, c, key)
			if err != nil {
				t.Fatal(err)
			}
			chain = []*x509.Certificate{leaf, c}
		}
		if err := Verify(chain, roots, x509.ExtKeyUsageServerAuth, time.Now()); err == nil {
			t.Errorf("%s: the certificate is good", what)
		}
	}
	if a.Cert.SerialNumber.BitLen() < 64 || newAuthority(t).Cert.SerialNumber.Cmp(a.Cert.SerialNumber) == 0 {
		t.Errorf("serial number %v", a.Cert.SerialNumber)
	}
}

// The keeper reads files again that were of no use when they were read, although they have not
// changed since: here a certificate that is valid from a moment on.
func TestKeeperTriesAgain(t *testing.T) {
	a := newAuthority(t)
	ca, _, err := a.PEM()
	if err != nil {
		t.Fatal(err)
	}
	f := FilesOf(t.TempDir(), "a")
	put := func(r Request) {
		t.Helper()
		cert, key, err := a.Issue(r)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(write(f.CA, ca, 0o644, true), write(f.Key, key, 0o600, true), write(f.Cert, cert, 0o644, true)); err != nil {
			t.Fatal(err)
		}
	}
	put(Request{Node: "a", Until: time.Now().Add(time.Hour)})
	said := 0
	k, err := NewKeeper(f, "a", func(*Material, error) { said++ })
	if err != nil {
		t.Fatal(err)
	}
	first := k.Material().Leaf
	valid := time.Now().Add(10 * time.Second) // when the files have long been written, and looked at
	put(Request{Node: "a", From: valid, Until: valid.Add(time.Hour)})
	for end := time.Now().Add(time.Minute); k.Material().Leaf.Equal(first); {
		if time.Now().After(end) {
			t.Fatal("the keeper has the old certificate for good")
		}
		time.Sleep(10 * time.Millisecond) // between two looks
	}
	if now := time.Now(); now.Before(k.Material().Leaf.NotBefore) {
		t.Error("a certificate is in use that is not valid yet")
	}
	if said != 2 {
		t.Errorf("it said %d times that something has changed", said)
	}
}

// What cannot be written leaves what belongs together as it was.
func TestMakeStopsAtTheFirstFile(t *testing.T) {
	dir, m := made(t, "a")
	f := m.Nodes[0].Files
	before, err := os.ReadFile(f.Cert)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Remove(f.Key), os.MkdirAll(filepath.Join(f.Key, "in the way"), 0o755)); err != nil {
		t.Fatal(err)
	}
	if _, err := Make(Plan{Dir: dir, Nodes: []string{"a"}, NodeValid: time.Hour, Force: true}); err == nil {
		t.Error("a key was written over a directory")
	}
	if after, err := os.ReadFile(f.Cert); err != nil || string(after) != string(before) {
		t.Errorf("the certificate is another one, without its key: %v", err)
	}
	half := t.TempDir()
	if err := os.MkdirAll(filepath.Join(half, CAFile, "in the way"), 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := makeIn(half, Plan{CAValid: time.Hour}); err == nil {
		t.Error("an authority was written over a directory")
	}
	if _, err := os.Lstat(filepath.Join(half, CAKeyFile)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("half an authority is left: %v", err)
	}
}

// The keeper reads files that have changed, and only those, and says once what is
// wrong with them.
func TestKeeper(t *testing.T) {
	dir, m := made(t, "a")
	f := m.Nodes[0].Files
	var events []string
	k, err := NewKeeper(f, "a", func(m *Material, err error) {
		if err != nil {
			events = append(events, err.Error())
		} else {
			events = append(events, "new")
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	first := k.Material()
	want := func(what string, kept bool, n int) {
		t.Helper()
		if got := k.Material(); (got.Leaf.Equal(first.Leaf)) != kept || k.Material() == nil {
			t.Errorf("%s: the certificate of %v", what, got.Leaf.NotAfter)
		}
		if len(events) != n {
			t.Errorf("%s: events %q", what, events)
		}
	}
	want("nothing", true, 0)
	if err := os.Chmod(f.Key, 0o644); err != nil {
		t.Fatal(err)
	}
	want("open key", true, 1)
	if err := errors.Join(os.Chmod(f.Key, 0o600), os.WriteFile(f.Cert, []byte("half"), 0o644)); err != nil {
		t.Fatal(err)
	}
	want("half a file", true, 2)
	if _, err := Make(Plan{Dir: dir, Nodes: []string{"a"}, NodeValid: time.Hour, Force: true}); err != nil {
		t.Fatal(err)
	}
	want("a new one", false, 3)
	if events[2] != "new" {
		t.Errorf("events %q", events)
	}
	if _, err := NewKeeper(f, "b", nil); err == nil {
		t.Error("a keeper of another node's certificate")
	}
}
