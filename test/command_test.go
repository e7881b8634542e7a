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
)

// ran is how a command ended.
type ran struct {
	status      int
	out, errOut string
}

// run runs a command to its end and returns its exit status: 128 and more if a
// signal ended it.
func run(t *testing.T, cmd *exec.Cmd) ran {
	t.Helper()
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	// Children that hold on to its files must not keep the test waiting.
	cmd.WaitDelay = limit
	late := time.AfterFunc(2*limit, func() {
		if cmd.Process != nil {
			_ = cmd.Process.Kill()
		}
	})
	defer late.Stop()
	err := cmd.Run()
	r := ran{out: out.String(), errOut: errOut.String()}
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		if r.status = exit.ExitCode(); r.status < 0 {
			r.status = 128 + int(exit.Sys().(syscall.WaitStatus).Signal())
		}
	case err != nil:
		t.Fatalf("%v: %v", cmd.Args, err)
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
