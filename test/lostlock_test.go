package test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/rdmad/rdmad/cmd/rdmad/sandbox"
	"github.com/rdmad/rdmad/internal/config"
)

// Somebody has removed the lock of a daemon that runs. Another one on its socket is refused, and takes nothing from it, also
// where it is not kept from an address.
func TestLockRemoved(t *testing.T) {
	c := newCluster(t, sandbox.Settings{}, "a")
	c.start("a")
	before := c.status("a").PIDs
	socket := c.socket("a")
	if err := os.Remove(config.LockFile(socket)); err != nil {
		t.Fatal(err)
	}
	pid, err := os.ReadFile(config.PIDFile(socket))
	if err != nil {
		t.Fatal(err)
	}
	for _, listen := range []string{c.nodes["a"].Listen, ""} {
		run(t, rdmad(t, "run", "-c", filepath.Join(c.dir, "a.toml"), "--set", "node.listen="+listen)).check(t, "run", 1, "node.socket: the socket is in use", "listens at "+socket)
		if s, err := askStatus(t, socket); err != nil || s.PIDs != before {
			t.Fatalf("the first one: %v, its processes %v", err, before)
		}
		if now, err := os.ReadFile(config.PIDFile(socket)); err != nil || string(now) != string(pid) {
			t.Errorf("the pid file has %q, %v; it was %q", now, err, pid)
		}
	}
	c.crash("a") // what a dead one has left is taken
}
