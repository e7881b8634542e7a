package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdmad/rdmad/internal/attach"
)

// opens reports whether a thread of a process waits for a file that it opens.
func opens(t *testing.T, pid int) bool {
	t.Helper()
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/syscall", pid))
	if err != nil || len(threads) == 0 {
		t.Fatalf("process %d: %v", pid, err)
	}
	for _, file := range threads {
		text, err := os.ReadFile(file)
		if errors.Is(err, fs.ErrPermission) {
			t.Skipf("needs to see in what system call its child is, as root or with kernel.yama.ptrace_scope=0: %v", err)
		}
		if strings.HasPrefix(string(text), fmt.Sprintf("%d ", unix.SYS_OPENAT)) {
			return true
		}
	}
	return false
}

// A command that waits for its configuration, or another file, which is a pipe that nobody writes to, ends when it is told to.
func TestInterruptedConfiguration(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range []string{"run -c", "config check -c", "doctor -c", "certs show"} {
		for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
			t.Run(args+" "+sig.String(), func(t *testing.T) {
				c := command(append(strings.Fields(args), pipe)...)
				var errOut strings.Builder
				c.Stderr = &errOut
				if err := c.Start(); err != nil {
					t.Fatal(err)
				}
				done := make(chan error, 1)
				go func() { done <- c.Wait() }()
				// A file that is there is opened at once, also where that has to be waited for a little.
				for n, end := 0, time.Now().Add(patience); n < 10; time.Sleep(time.Millisecond) {
					if n++; !opens(t, c.Process.Pid) {
						n = 0
					}
					if time.Now().After(end) {
						t.Fatal("it does not open its file")
					}
				}
				if err := c.Process.Signal(sig); err != nil {
					t.Fatal(err)
				}
				select {
				case <-done:
				case <-time.After(patience / 18):
					_ = c.Process.Kill()
					<-done
					t.Fatal("it still waits")
				}
				if s := c.ProcessState; s.ExitCode() != exitFailure || !strings.Contains(errOut.String(), ": "+pipe+": "+sig.String()+" signal received\n") {
					t.Errorf("%v, %s", s, errOut.String())
				}
			})
		}
	}
}

// A command that waits for a daemon which does not answer says what has ended it, and not what that has made of the waiting.
func TestInterruptedQuestion(t *testing.T) {
	f := newFixture(t)
	for path, b := range badInputs {
		if b.asks == nil || b.alone && path != "rdmad doctor" || b.beside || path == "rdmad echo" {
			continue
		}
		asked := make(chan struct{}, 1)
		socket := f.fake(func(c *attach.Conn) {
			select {
			case asked <- struct{}{}:
			default: // some ask more than once
			}
			_, _, _ = c.Recv() // until it ends
		})
		args := *b.asks + " --socket " + socket
		if path == "rdmad trace" {
			args = "--socket " + socket
		}
		c := f.command(t.Context(), path, args)
		var out, errOut strings.Builder
		c.Stdout, c.Stderr = &out, &errOut
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		<-asked
		if err := c.Process.Signal(syscall.SIGINT); err != nil {
			t.Fatal(err)
		}
		_ = c.Wait()
		r := &result{t: t, line: strings.Join(c.Args, " "), Status: c.ProcessState.ExitCode(), Stdout: out.String(), stderr: errOut.String()}
		r.oneLine(exitFailure, "interrupt signal received")
		if strings.Contains(r.stderr, "canceled") || strings.Contains(r.stderr, "read configuration") {
			t.Errorf("%s: %s", r.line, r.stderr)
		}
	}
}
