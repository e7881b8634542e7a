package test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Two commands make the certificates and the lines that configure a node.
func TestCerts(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "certs")
	r := run(t, rdmad(t, "certs", "init", "--dir", dir, "--name", "lab", "a", "b"))
	r.check(t, "init", 0, "ca.pem: new", "rdmad://node/a", "rdmad://node/b", "# node b\n[tls]\nmode = \"required\"\ncert = \""+filepath.Join(dir, "b.pem"))
	run(t, rdmad(t, "certs", "init", "--dir", dir, "b")).check(t, "again", 1, "b.pem exists already", "--force")
	run(t, rdmad(t, "certs", "init", "--dir", dir, "--force", "b")).check(t, "by force", 0, "used again")
	run(t, rdmad(t, "certs", "init", "--dir", dir, "--name", "other", "c")).check(t, "another cluster", 1, `authority of "lab"`)
	run(t, rdmad(t, "certs", "init", "--dir", dir, "--ca-days", "100", "c")).check(t, "another validity", 1, filepath.Join(dir, "ca.pem"), "--ca-days", "another directory")
	run(t, rdmad(t, "certs", "init", "--dir", dir, "--ca-days", "3650", "--force", "b")).check(t, "the same validity", 0, "used again")
	run(t, rdmad(t, "certs", "init", "a")).check(t, "no directory", 2, "--dir")
	run(t, rdmad(t, "certs", "init", "--dir", dir)).check(t, "no node", 2, "name of a node")
	run(t, rdmad(t, "certs", "init", "--dir", dir, "B")).check(t, "bad name", 2, `"B"`)
	run(t, rdmad(t, "certs", "init", "--dir", dir, "--days", "0", "c")).check(t, "no days", 2, "--days")
	run(t, rdmad(t, "certs", "nonsense")).check(t, "no command", 2, "nonsense")

	r = run(t, rdmad(t, "certs", "init", "--dir", dir, "--json", "c"))
	r.check(t, "JSON", 0)
	var list []struct{ Node, Name, Config string }
	if err := json.Unmarshal([]byte(r.out), &list); err != nil || len(list) != 1 || list[0].Name != "rdmad://node/c" {
		t.Fatalf("%v: %s", err, r.out)
	}
	config := filepath.Join(dir, "c.toml")
	if err := os.WriteFile(config, []byte("[node]\nname = \"c\"\n"+list[0].Config), 0o600); err != nil {
		t.Fatal(err)
	}
	run(t, rdmad(t, "config", "check", "-c", config)).check(t, "the printed lines", 0, "ok")
	// What else it finds, and its status, is the machine's business.
	if r = run(t, rdmad(t, "doctor", "-c", config)); !strings.Contains(r.out, "c.pem is for rdmad://node/c") {
		t.Errorf("the doctor says:\n%s", r.out)
	}

	files := []string{filepath.Join(dir, "ca.pem"), filepath.Join(dir, "c.pem")}
	run(t, rdmad(t, append([]string{"certs", "show"}, files...)...)).check(t, "show", 0, "(authority)", "rdmad://node/c", "CN=rdmad CA of lab")
	run(t, rdmad(t, "certs", "show", config)).check(t, "no certificate", 1, "no certificate in PEM")
	r = run(t, rdmad(t, append([]string{"certs", "show", "--json"}, files...)...))
	var shown []struct {
		Node, Fingerprint string
		Authority         bool
	}
	if err := json.Unmarshal([]byte(r.out), &shown); err != nil || len(shown) != 2 || !shown[0].Authority || shown[1].Node != "c" || len(shown[1].Fingerprint) != 64 {
		t.Errorf("%v: %s", err, r.out)
	}
}

// A sandbox with TLS says so, and leaves nothing behind.
func TestSandboxTLS(t *testing.T) {
	r := run(t, rdmad(t, "sandbox", "--tls", "--", "rdmad", "status"))
	r.check(t, "status", 0, "TLS: required of peers", "TLS 1.3", "rdmad://node/b")
	if strings.Contains(r.out, "REFUSED FROM") {
		t.Errorf("refusals:\n%s", r.out)
	}
	file := filepath.Join(t.TempDir(), "told")
	run(t, rdmad(t, append([]string{"sandbox", "--tls"}, telling(file, "exit 0")...)...)).check(t, "nothing left", 0)
	s := told(t, file)
	s.gone(t)
}
