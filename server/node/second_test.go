package node_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/rdmad/rdmad/client"
	"github.com/rdmad/rdmad/internal/daemontest"
	"github.com/rdmad/rdmad/server"
)

// secondEnv is the socket by which cores of a test attach a second server.
const secondEnv = "RDMAD_TEST_SECOND"

// serveSecond serves t/only and t/stay, which returns after t/release, by a second server of the core, until t/leave.
func serveSecond(ctx context.Context, socket string, first *server.Server) error {
	s, err := server.Attach(ctx, socket)
	if err != nil {
		return err
	}
	ctx, leave := context.WithCancel(ctx)
	release := make(chan struct{})
	go func() {
		_ = s.Serve(ctx)
		_ = s.Close()
	}()
	return errors.Join(
		s.Handle("t", "only", func(*server.Call) error { return nil }),
		s.Handle("t", "stay", func(c *server.Call) error {
			if err := os.WriteFile(string(c.Request()), nil, 0o600); err != nil {
				return err
			}
			<-release
			return nil
		}),
		first.Handle("t", "leave", func(*server.Call) error { leave(); return nil }),
		first.Handle("t", "release", func(*server.Call) error { close(release); return nil }))
}

// A server that ends, and lives in a core that goes on, is given nothing more, whatever its handlers do.
func TestSecondServerEnds(t *testing.T) {
	dir := t.TempDir()
	file, socket := filepath.Join(dir, "config.toml"), filepath.Join(dir, "rdmad.sock")
	t.Setenv(secondEnv, socket)
	if err := os.WriteFile(file, fmt.Appendf(nil, "[node]\nname=\"a\"\nsocket=%q\ndrain_timeout=\"100ms\"\n[log]\nlevel=\"error\"\n", socket), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx := patientContext(t)
	supervisor := daemontest.Spawn(t, "supervisor", file)
	defer supervisor.Kill()
	c := attachSoon(socket)
	defer c.Close()
	warm(ctx, t, c, "a/t/thread")
	begun := filepath.Join(dir, "begun")
	f := goTo(ctx, t, c, "a/t/stay", begun)
	awaitFile(t, begun)
	if _, err := c.Call(ctx, "a/t/only", nil); err != nil {
		t.Error(err)
	}
	if _, err := c.Call(ctx, "a/t/leave", nil); err != nil {
		t.Error(err)
	}
	daemontest.Eventually(t, "nobody serves what the second server did", func() error {
		if _, err := c.Call(ctx, "a/t/only", nil); !errors.Is(err, client.ErrNoService) {
			return fmt.Errorf("a call: %w", err)
		}
		return nil
	})
	if _, err := c.Call(ctx, "a/t/release", nil); err != nil {
		t.Error(err)
	}
	if _, err := f.Wait(ctx); err != nil {
		t.Errorf("what had begun: %v", err)
	}
}
