package test

import (
	"archive/tar"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/rdmad/rdmad/client"
	"github.com/rdmad/rdmad/cmd/rdmad/sandbox"
)

// readBundle returns the parts of a bundle by their names, and checks what holds for all.
func readBundle(t *testing.T, file string) map[string]string {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || info.Mode() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	parts, order := map[string]string{}, []string{}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		if h.Mode != 0o600 || h.Uid != 0 {
			t.Errorf("%s: mode %o, user %d", h.Name, h.Mode, h.Uid)
		}
		name := filepath.Base(h.Name)
		parts[name], order = string(data), append(order, name)
	}
	if order[0] != "MANIFEST" {
		t.Errorf("in this order: %v", order)
	}
	for _, name := range order[1:] {
		if !strings.Contains(parts["MANIFEST"], "\n"+name+": ") {
			t.Errorf("MANIFEST does not have %s", name)
		}
	}
	return parts
}

// A bundle of a daemon that runs has everything, without any secret that is around it.
func TestSupportBundle(t *testing.T) {
	const planted = "PLANTED7a3f"
	c := newCluster(t, sandbox.Settings{TLS: true}, "a", "b")
	config := filepath.Join(c.dir, "a.toml")
	text, err := os.ReadFile(config)
	if err != nil {
		t.Fatal(err)
	}
	text = append(text, "\n# password = "+planted+"\n# https://bob:"+planted+"@example.org\n"...)
	if err := os.WriteFile(config, text, 0o600); err != nil {
		t.Fatal(err)
	}
	c.start("a", "b")
	c.awaitPeer("a", "b", "connected")
	conn, err := client.Attach(bounded(t), c.socket("a"), client.Name("worker token="+planted))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()

	dir := t.TempDir()
	file := filepath.Join(dir, "bundle.tar.gz")
	r := run(t, rdmad(t, "support-bundle", "--socket", c.socket("a"), "-o", file, "--json", "--limit", "60s"))
	r.check(t, "support-bundle", 0, file)
	parts := readBundle(t, file)
	for name, want := range map[string]string{
		"versions.txt": "the daemon of node a", "doctor.txt": "OK", "config.toml": `name = "a"`, "status.json": `"node": "a"`, "errors.txt": "",
		"daemon.log": "core ready", "goroutines.txt": "(*Agent).run", "processes.txt": "Max locked memory", "devices.json": "", "system.txt": "MemTotal",
	} {
		if !strings.Contains(parts[name], want) {
			t.Errorf("%s: no %q in:\n%s", name, want, parts[name])
		}
	}
	if !json.Valid([]byte(parts["status.json"])) || !strings.Contains(parts["status.json"], "worker token=[removed]") {
		t.Errorf("status.json:\n%s", parts["status.json"])
	}
	key := regexp.MustCompile(`(?m)^key = "(.*)"$`).FindStringSubmatch(string(text))
	if key == nil || !strings.Contains(parts["config.toml"], key[1]) {
		t.Errorf("the path of the key is not in:\n%s", parts["config.toml"])
	}
	secret, err := os.ReadFile(key[1])
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(secret)), "\n")
	for name, text := range parts {
		for _, s := range append(lines[1:len(lines)-1], planted, "PRIVATE KEY-----") {
			if strings.Contains(text, s) {
				t.Errorf("%s has %q", name, s)
			}
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("%v, %v", left, err)
	}
}

// A bundle of a core that hangs takes a bounded time, and has what can be had without it:
// what its threads do is of the most interest then.
func TestSupportBundleOfHangingCore(t *testing.T) {
	c := newPair(t, sandbox.Settings{})
	core := c.status("a").PIDs.Core
	stopCore(t, c, "a")
	defer func() { _ = syscall.Kill(core, syscall.SIGCONT) }()
	var parts map[string]string
	// What asks the core may be too late to say what it knows, where the machine stands still: then once more.
	for tries := range 5 {
		file := filepath.Join(t.TempDir(), fmt.Sprintf("bundle%d.tar.gz", tries))
		r := run(t, rdmad(t, "support-bundle", "--socket", c.socket("a"), "--limit", "5s", "-o", file))
		r.check(t, "support-bundle", 0, "not had", "status.json", "goroutines.txt")
		if parts = readBundle(t, file); !strings.Contains(parts["MANIFEST"], "it took too long") {
			break
		}
	}
	for _, name := range []string{"status.json", "errors.txt", "goroutines.txt"} {
		if _, ok := parts[name]; ok || !regexp.MustCompile(`(?m)^`+name+`: .*does not answer`).MatchString(parts["MANIFEST"]) {
			t.Errorf("%s of a core that does not answer; MANIFEST:\n%s", name, parts["MANIFEST"])
		}
	}
	for name, want := range map[string]string{"processes.txt": "T (stopped)", "counters.json": `"Process": "halted"`, "config.toml": `name = "a"`, "daemon.log": "core ready"} {
		if !strings.Contains(parts[name], want) {
			t.Errorf("%s: no %q in:\n%s", name, want, parts[name])
		}
	}
	run(t, rdmad(t, "status", "--socket", c.socket("a"))).check(t, "status", 1, "does not answer", "rdmad support-bundle")
}

// Without a daemon there is a bundle all the same.
func TestSupportBundleWithoutDaemon(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "bundle.tar.gz")
	r := run(t, rdmad(t, "support-bundle", "--socket", filepath.Join(dir, "none.sock"), "-c", filepath.Join(dir, "none.toml"), "-o", file))
	r.check(t, "support-bundle", 0, file, "not had", "config.toml", "status.json", "processes.txt")
	parts := readBundle(t, file)
	for _, name := range []string{"versions.txt", "doctor.txt", "system.txt"} {
		if parts[name] == "" {
			t.Errorf("no %s", name)
		}
	}
	for _, want := range []string{"is not running", "none.toml", "no daemon has the socket"} {
		if !strings.Contains(parts["MANIFEST"], want) {
			t.Errorf("no %q in:\n%s", want, parts["MANIFEST"])
		}
	}
}

// What a configuration that is refused has is in no part of a bundle, neither a private key in the place of its path nor another value.
func TestSupportBundleOfRefusedConfiguration(t *testing.T) {
	dir := t.TempDir()
	file, config := filepath.Join(dir, "bundle.tar.gz"), filepath.Join(dir, "config.toml")
	planted := []string{"MHcCAQEEIDoqPLANTED", "hunter2PLANTED"}
	if err := os.WriteFile(config, []byte("[node]\nlisten = \""+planted[1]+"\"\n[tls]\nkey = \""+planted[0]+"\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	r := run(t, rdmad(t, "support-bundle", "--socket", filepath.Join(dir, "none.sock"), "-c", config, "-o", file))
	r.check(t, "support-bundle", 0, file)
	parts := readBundle(t, file)
	if want := config + ":4: tls.key: refused; rdmad config check tells why"; !strings.Contains(parts["doctor.txt"], want) {
		t.Errorf("no %q in:\n%s", want, parts["doctor.txt"])
	}
	for name, text := range parts {
		for _, secret := range planted {
			if strings.Contains(text, secret) {
				t.Errorf("%s has %q:\n%s", name, secret, text)
			}
		}
	}
}
