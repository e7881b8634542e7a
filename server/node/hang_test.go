package node_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rdmad/rdmad/client"
	"github.com/rdmad/rdmad/internal/daemontest"
)

// A handler that blocks takes the core with it; node.hang_limit ends that.
func TestHang(t *testing.T) {
	// A core that stands still for as long, because the machine does, is taken for one that hangs.
	a, b := daemontest.PairOfEach(t, "", "hang_limit=\"10s\"\n")
	ctx, c := patientContext(t), attach(t, a)
	core, err := b.Core()
	if err != nil {
		t.Fatal(err)
	}
	warm(ctx, t, c, "b/t/thread")
	if _, err := c.Call(ctx, "b/t/hang", nil); !errors.Is(err, client.ErrMaybeExecuted) {
		t.Errorf("a call of a handler that blocks: %v", err)
	}
	if p, err := c.Call(ctx, "b/t/echo", []byte("again")); err != nil || string(p) != "again" {
		t.Errorf("afterwards: %q, %v", p, err)
	}
	if next, err := b.Core(); err != nil || next == core {
		t.Errorf("core %d, before %d, %v", next, core, err)
	}
}

// A core that hangs in a handler when its supervisor dies does not outlive it for long.
func TestOrphan(t *testing.T) {
	dir := t.TempDir()
	file, socket := filepath.Join(dir, "config.toml"), filepath.Join(dir, "rdmad.sock")
	if err := os.WriteFile(file, fmt.Appendf(nil, "[node]\nname=\"a\"\nsocket=%q\ndrain_timeout=\"100ms\"\n[log]\nlevel=\"error\"\n", socket), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx := patientContext(t)
	supervisor := daemontest.Spawn(t, "supervisor", file)
	c := attachSoon(socket)
	defer c.Close()
	core := coreOf(ctx, t, c)
	hang, err := c.Method(ctx, "t/hang")
	if err != nil {
		t.Fatal(err)
	}
	warm(ctx, t, c, "t/thread")
	begun := filepath.Join(dir, "begun")
	if err := hang.Post(ctx, []byte(begun)); err != nil {
		t.Fatal(err)
	}
	awaitFile(t, begun)
	supervisor.Kill()
	daemontest.Eventually(t, "the core ends", func() error {
		if err := syscall.Kill(core, 0); !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("core %d: %v", core, err)
		}
		return nil
	})
}

// coreOf returns the process id of the core that a client is attached to.
func coreOf(ctx context.Context, t *testing.T, c *client.Conn) int {
	t.Helper()
	status, err := c.Status(ctx)
	if err != nil {
		t.Fatal(err)
	}
	var pids struct {
		PIDs struct {
			Core int `json:"core"`
		} `json:"pids"`
	}
	if err := json.Unmarshal(status, &pids); err != nil {
		t.Fatal(err)
	}
	return pids.PIDs.Core
}

// No handler runs on the agent's thread before all are registered: nobody would end a core that hangs then.
func TestHangWhileRegistering(t *testing.T) {
	dir := t.TempDir()
	registered := filepath.Join(dir, "registered")
	if err := unix.Mkfifo(registered, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv(slowEnv, registered)
	file, socket := filepath.Join(dir, "config.toml"), filepath.Join(dir, "rdmad.sock")
	if err := os.WriteFile(file, fmt.Appendf(nil, "[node]\nname=\"a\"\nsocket=%q\ndrain_timeout=\"100ms\"\n[log]\nlevel=\"error\"\n", socket), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx := patientContext(t)
	supervisor := daemontest.Spawn(t, "supervisor", file)
	defer supervisor.Kill()
	c := attachSoon(socket)
	defer c.Close()
	// Its service registers still.
	begun := filepath.Join(dir, "begun")
	f := goTo(ctx, t, c, "t/hang", begun)
	for range 100 {
		if _, err := c.Status(ctx); err != nil {
			t.Fatalf("the core does not answer: %v", err)
		}
	}
	if _, err := os.Stat(begun); err == nil {
		t.Error("the handler has begun")
	}
	if err := os.WriteFile(registered, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	// Now one of the process's own threads has it.
	awaitFile(t, begun)
	warm(ctx, t, c, "t/thread")
	f.Cancel()
}
