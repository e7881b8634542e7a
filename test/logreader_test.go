package test

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/rdmad/rdmad/cmd/rdmad/sandbox"
)

// A daemon outlives who reads its log, and so does its core.
func TestLogReaderGone(t *testing.T) {
	c := newCluster(t, sandbox.Settings{}, "a")
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd := rdmad(t, "run", "-c", filepath.Join(c.dir, "a.toml"))
	cmd.Stdout, cmd.Stderr = nil, w
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = w.Close()
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	eventually(t, "it serves", func() bool { _, err := askStatus(t, c.socket("a")); return err == nil })
	core := c.status("a").PIDs.Core
	_ = r.Close()
	if err := cmd.Process.Signal(syscall.SIGHUP); err != nil { // which both log
		t.Fatal(err)
	}
	eventually(t, "it has reloaded, or ended", func() bool {
		s, err := askStatus(t, c.socket("a"))
		if err == nil && s.PIDs.Core != core {
			t.Fatal("the core has ended")
		}
		return err == nil && s.Config.Reload != nil || len(ended) > 0
	})
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Errorf("the daemon has ended: %v", err)
	}
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("the daemon ended: %v", err)
		}
	case <-time.After(time.Minute):
		t.Error("it does not stop")
		_ = cmd.Process.Kill()
		<-ended
	}
}

// TLS files that cannot be used change nothing: neither for the core that runs nor within the node for the next one, whose
// peers come back when they can.
func TestBadTLSFilesAndTheNextCore(t *testing.T) {
	c := newCluster(t, sandbox.Settings{TLS: true}, "a", "b")
	c.start("a")
	c.start("b")
	startService(t, c, "a", "jobs")
	conn := c.attach("a")
	works := func() {
		t.Helper()
		if _, err := conn.Call(bounded(t), "a/jobs/who", nil); err != nil {
			t.Error(err)
		}
	}
	works()
	linked := func() bool {
		s, err := askStatus(t, c.socket("a"))
		return err == nil && s.Peers[0].State == "connected"
	}
	eventually(t, "the nodes are connected", linked)
	key := filepath.Join(c.dir, "a-key.pem")
	good, err := os.ReadFile(key)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(key, good[:len(good)/2], 0o600); err != nil { // half copied
		t.Fatal(err)
	}
	before := c.status("a").PIDs.Core
	run(t, rdmad(t, "upgrade", "--socket", c.socket("a"))).check(t, "upgrade", 1, "refused", "could not use the files of [tls]")
	if now := c.status("a").PIDs.Core; now != before || !linked() {
		t.Errorf("core %d has become %d", before, now)
	}
	works()
	kill(t, before)
	eventually(t, "another core serves", func() bool {
		s, err := askStatus(t, c.socket("a"))
		return err == nil && s.PIDs.Core != before
	})
	works()
	if linked() {
		t.Error("connected without a key")
	}
	run(t, rdmad(t, "status", "--socket", c.socket("a"))).check(t, "status", 0, "the files of [tls] cannot be used")
	c.counts("a", "tls-files")
	if err := os.WriteFile(key, good, 0o600); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the nodes are connected again", linked)
	works()
}
