package main

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdmad/rdmad/internal/handoff"
)

// fullPipe returns the end to write to of a pipe that is full, and that nobody reads.
func fullPipe(t *testing.T) *os.File {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = errors.Join(r.Close(), w.Close()) })
	size, err := unix.FcntlInt(w.Fd(), unix.F_GETPIPE_SZ, 0)
	if err == nil {
		_, err = w.Write(make([]byte, size))
	}
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// A daemon, and a core, that cannot start say so and end, with the status of that, whether somebody reads it or not.
func TestEndsUnread(t *testing.T) {
	dir := t.TempDir()
	refused := filepath.Join(dir, "refused.toml") // by the core
	if err := os.WriteFile(refused, []byte("[node]\nname = \"a\"\nsocket = \""+dir+"/s\"\nlisten = \"127.0.0.1:0\"\n[fabric]\nprovider = \"tcp\"\nlisten = \"192.0.2.1:0\"\n"+
		"[[peer]]\nname = \"b\"\naddress = \"127.0.0.1:1\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	gone := func(t *testing.T) *os.File {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		_ = r.Close()
		t.Cleanup(func() { _ = w.Close() })
		return w
	}
	for name, out := range map[string]func(*testing.T) *os.File{"full": fullPipe, "gone": gone} {
		for _, c := range []struct {
			args   []string
			status int
		}{
			{[]string{handoff.CoreCommand}, exitFailure},
			{[]string{"run", "-c", filepath.Join(dir, "none.toml")}, exitUsage},
			{[]string{"run", "-c", refused}, exitFailure},
		} {
			cmd := command(c.args...)
			cmd.Stderr = out(t)
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			kill := time.AfterFunc(time.Minute, func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) })
			_ = cmd.Wait() // its status is looked at
			kill.Stop()
			if got := cmd.ProcessState.ExitCode(); got != c.status {
				t.Errorf("%s, %s: %v, want status %d", name, c.args, cmd.ProcessState, c.status)
			}
		}
	}
}
