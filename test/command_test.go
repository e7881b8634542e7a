package test

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rdmad/rdmad/cmd/rdmad/look"
)

// ran is how a command ended.
type ran struct {
	status      int
	out, errOut string
}

// running is a command that has been started.
type running struct {
	t           *testing.T
	cmd         *exec.Cmd
	out, errOut bytes.Buffer
	late        *time.Timer
	ended       bool
}

// begin starts a command, which is killed if it takes too long or the test ends
// before it.
func begin(t *testing.T, cmd *exec.Cmd) *running {
	t.Helper()
	r := &running{t: t, cmd: cmd}
	cmd.Stdout, cmd.Stderr = &r.out, &r.errOut
	// Children that hold on to its files must not keep the test waiting.
	cmd.WaitDelay = limit
	if err := cmd.Start(); err != nil {
		t.Fatalf("%v: %v", cmd.Args, err)
	}
	r.late = time.AfterFunc(2*limit, func() { _ = cmd.Process.Kill() })
	t.Cleanup(func() {
		if !r.ended {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
			r.late.Stop()
		}
	})
	return r
}

// end waits for the command to end and returns its exit status: 128 and more if
// a signal ended it.
func (r *running) end() ran {
	r.t.Helper()
	defer r.late.Stop()
	err := r.cmd.Wait()
	r.ended = true
	result := ran{out: r.out.String(), errOut: r.errOut.String()}
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		if result.status = exit.ExitCode(); result.status < 0 {
			result.status = 128 + int(exit.Sys().(syscall.WaitStatus).Signal())
		}
	case err != nil:
		r.t.Fatalf("%v: %v", r.cmd.Args, err)
	}
	return result
}

// run runs a command to its end.
func run(t *testing.T, cmd *exec.Cmd) ran {
	t.Helper()
	return begin(t, cmd).end()
}

// runInTime is run for a command with a short time limit, which is to meet something else
// than the limit of its first step, or a core that is slow: where the machine was too busy for that, once more.
func runInTime(t *testing.T, cmd func() *exec.Cmd) (r ran) {
	t.Helper()
	for range 20 {
		if r = run(t, cmd()); !strings.Contains(r.out+r.errOut, look.ErrNoAnswer.Error()) {
			break
		}
	}
	return r
}

// rdmad returns the command with a temporary directory of its own, which must be
// empty afterwards.
func rdmad(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	// Not t.TempDir, whose names are too long for a socket.
	dir, err := os.MkdirTemp("", "rdmad-cmd-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if left, err := filepath.Glob(filepath.Join(dir, "*")); err != nil || len(left) > 0 {
			t.Errorf("rdmad %s left %v behind (%v)", args[0], left, err)
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	cmd := exec.Command(programs.rdmad, args...)
	cmd.Env = append(os.Environ(), "TMPDIR="+dir)
	return cmd
}

// check compares how a command ended with how it should have: with a status,
// and some words in its output or, after a failure, in its one line of errors.
func (r ran) check(t *testing.T, what string, status int, words ...string) {
	t.Helper()
	text := r.out
	if status != 0 && r.out == "" {
		text = r.errOut
	}
	if r.status != status {
		t.Errorf("%s: status %d, want %d\n%s%s", what, r.status, status, r.out, r.errOut)
	}
	for _, w := range words {
		if !strings.Contains(text, w) {
			t.Errorf("%s: no %q in:\n%s", what, w, text)
		}
	}
}
