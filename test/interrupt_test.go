package test

import (
	"bufio"
	"fmt"
	"io"
	"strings"
	"syscall"
	"testing"

	"github.com/rdmad/rdmad/cmd/rdmad/sandbox"
	"github.com/rdmad/rdmad/internal/daemontest"
)

// A ping that is interrupted says what it has measured.
func TestInterruptedPing(t *testing.T) {
	c := newPair(t, sandbox.Settings{})
	cmd := rdmad(t, "ping", "b", "--count", "100", "--interval", "1m", "--socket", c.socket("a"))
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.WaitDelay = limit
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill() }()
	lines := bufio.NewScanner(out)
	for lines.Scan() && !strings.Contains(lines.Text(), "    1 ") {
	}
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	rest, err := io.ReadAll(out)
	if text := lines.Text() + string(rest); err != nil || !strings.Contains(text, "a to b: 1 of 100 answers, round trip min/avg/max") {
		t.Errorf("%v: %s", err, text)
	}
	_ = cmd.Wait()
	if status := cmd.ProcessState.ExitCode(); status != 1 {
		t.Errorf("status %d", status)
	}
}

// A benchmark that is interrupted shows what it has measured, and fails. The signal may come to all of its processes, as from a
// terminal, or to the command alone.
func TestInterruptedBench(t *testing.T) {
	c := newPair(t, sandbox.Settings{})
	startEcho(t, c, "b")
	c.awaitService("a", "b", "echo", "echo", 0)
	for _, group := range []bool{false, true} {
		cmd := rdmad(t, "bench", "call", "--clients", "2", "--warmup", "0s", "--duration", "10m", "--socket", c.socket("a"))
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		before := c.status("a").Counters["requests_sent"]
		r := begin(t, cmd)
		daemontest.Eventually(t, "calls are made", func() error {
			if n := c.status("a").Counters["requests_sent"] - before; n < 1000 {
				return fmt.Errorf("%d requests", n)
			}
			return nil
		})
		pid := cmd.Process.Pid
		if group {
			pid = -pid
		}
		if err := syscall.Kill(pid, syscall.SIGINT); err != nil {
			t.Fatal(err)
		}
		ended := r.end()
		ended.check(t, "bench", 1, "full round trip", "interrupted: this is what was measured until then")
		if want := "rdmad: bench: interrupted before its end\n"; ended.errOut != want {
			t.Errorf("it complains: %q, want %q", ended.errOut, want)
		}
	}
}
