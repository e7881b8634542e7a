package test

import (
	"bytes"
	"crypto/rand"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/rdmad/rdmad/cmd/rdmad/sandbox"
)

// pageserver returns a command of the example between two nodes.
func pageserver(c *cluster, args ...string) *exec.Cmd {
	cmd := exec.Command(programs.pageserver, args...)
	cmd.Env = append(os.Environ(), "RDMAD_SOCKET="+c.socket("a"), "RDMAD_SOCKET_B="+c.socket("b"), "TMPDIR="+c.dir)
	return cmd
}

// content makes a file of a size.
func content(t *testing.T, size int) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "file")
	data := make([]byte, size)
	if _, err := rand.Read(data); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// The demo copies files of every kind of size, and leaves nothing behind.
func TestPageserverDemo(t *testing.T) {
	c := newPair(t, sandbox.Settings{})
	for _, size := range []int{0, 1, 8191, 8192, 8193, 5*8192 + 17, 4 << 20} {
		r := run(t, pageserver(c, "demo", "--workers", "3", "--file", content(t, size)))
		r.check(t, strconv.Itoa(size)+" bytes", 0, "copy verified", "pages/s", "p99", "average group", strconv.Itoa((size+8191)/8192)+" pages")
	}
	if left, err := filepath.Glob(filepath.Join(c.dir, "pageserver-*")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v (%v)", left, err)
	}
}

func TestPageserverErrors(t *testing.T) {
	c := newPair(t, sandbox.Settings{})
	for _, test := range []struct {
		args   string
		status int
		want   string
	}{
		{"", 2, "usage"},
		{"nonsense", 2, "usage"},
		{"serve", 1, "--root-file"},
		{"serve --root-file " + c.dir, 1, "not a regular file"},
		{"serve --root-file " + c.dir + "/none", 1, "no such file"},
		{"fetch", 1, "--out"},
		{"fetch --out " + c.dir + "/copy", 1, "no such service"},
		{"fetch --workers 0 --out " + c.dir + "/copy", 1, "0 workers"},
		{"demo --file " + c.dir + "/none", 1, "no such file"},
	} {
		run(t, pageserver(c, strings.Fields(test.args)...)).check(t, "pageserver "+test.args, test.status, test.want)
	}
	alone := exec.Command(programs.pageserver, "demo")
	alone.Env = []string{}
	run(t, alone).check(t, "demo outside of a sandbox", 1, "rdmad sandbox -- pageserver demo")
	if exists(c.dir + "/copy") {
		t.Error("a failed fetch left its copy behind")
	}
}

// A file that becomes shorter while it is copied is no good copy.
func TestPageserverShrinkingFile(t *testing.T) {
	c := newPair(t, sandbox.Settings{})
	original, out := filepath.Join(c.dir, "original"), filepath.Join(c.dir, "copy")
	if err := os.WriteFile(original, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	// Large, but without blocks: copying it takes far longer than noticing
	// that it has begun.
	if err := os.Truncate(original, 4<<30); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	serve := pageserver(c, "serve", "--socket", c.socket("b"), "--root-file", original)
	serve.Stdout, serve.Stderr = &log, &log
	if err := serve.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = serve.Process.Kill()
		_ = serve.Wait()
	}()
	c.awaitService("a", "b", "pages", "sum", 0)
	fetch := begin(t, pageserver(c, "fetch", "--workers", "1", "--depth", "1", "--out", out))
	eventually(t, "the copy begins", func() bool { return exists(out) })
	if err := os.Truncate(original, 100); err != nil {
		t.Fatal(err)
	}
	r := fetch.end()
	r.check(t, "fetch", 1)
	if !strings.Contains(r.errOut, "changed its size") && !strings.Contains(r.errOut, "beyond the end") {
		t.Errorf("%s\n%s", r.errOut, log.String())
	}
	if exists(out) {
		t.Error("the copy is left")
	}
}
