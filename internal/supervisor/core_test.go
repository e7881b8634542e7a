package supervisor

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/sys/unix"

	"github.com/rdmad/rdmad/internal/handoff"
)

// A core that is told to stop before it listens has stopped well; one that fails has not.
func TestStopOfACore(t *testing.T) {
	for _, c := range []struct {
		script string
		well   bool
	}{
		{"exec sleep 600", true},
		{"trap 'exit 0' TERM; echo; while :; do sleep 0.01; done", true},
		{"trap 'exit 1' TERM; echo; while :; do sleep 0.01; done", false},
		{"trap 'kill -KILL $$' TERM; echo; while :; do sleep 0.01; done", false},
	} {
		cmd := exec.Command("sh", "-c", c.script)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if c.script[0] == 't' {
			_, _ = out.Read(make([]byte, 1)) // the trap is set
		}
		core := &runningCore{cmd: cmd, ended: make(chan struct{})}
		go func() {
			core.err = cmd.Wait()
			close(core.ended)
		}()
		if err := core.stop(time.Minute, zerolog.Nop()); (err == nil) != c.well {
			t.Errorf("%s: %v", c.script, err)
		}
	}
}

// A first core that cannot start is said to be so also if the daemon is told to stop just then.
func TestStopWhileTheCoreCannotStart(t *testing.T) {
	listens := filepath.Join(t.TempDir(), "listens")
	if err := unix.Mkfifo(listens, 0o600); err != nil {
		t.Fatal(err)
	}
	s := scripted(t, "", fmt.Sprintf("trap 'exit %d' TERM; : >%s; while :; do sleep 0.01; done", handoff.StatusNoStart, listens))
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	go func() {
		f, err := os.Open(listens) // the trap is set
		if err != nil {
			t.Error(err)
			return
		}
		_ = f.Close()
		stop()
	}()
	if err := s.run(ctx); err == nil || err.Error() != "the core cannot start" {
		t.Error(err)
	}
}

// A first core that ends well before it is ready may have been told to stop: another one is tried, and no more.
func TestFirstCoresLeave(t *testing.T) {
	starts := filepath.Join(t.TempDir(), "starts")
	s := scripted(t, "", "echo >>"+starts)
	if err := s.run(t.Context()); err == nil || !strings.HasPrefix(err.Error(), "the core cannot start: ") {
		t.Error(err)
	}
	if made, err := os.ReadFile(starts); err != nil || len(made) != 2 {
		t.Errorf("%d starts, want 2 (%v)", len(made), err)
	}
}
