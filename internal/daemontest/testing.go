package daemontest

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// patience is how long Poll and Eventually try.
const patience = 20 * time.Second

// Poll tries f until it succeeds, for a limited time. It is the one place where
// tests wait for something that nobody tells them.
func Poll(what string, f func() error) error {
	var err error
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		if err = f(); err == nil {
			return nil
		}
		time.Sleep(2 * time.Millisecond) // between two looks
	}
	return fmt.Errorf("%s: %w", what, err)
}

// Eventually is Poll for tests: it ends the test when f does not succeed.
func Eventually(t testing.TB, what string, f func() error) {
	t.Helper()
	if err := Poll(what, f); err != nil {
		t.Fatal(err)
	}
}

// Pair starts two connected nodes for a test, as Start does. After the test they
// are stopped and what they left behind is an error.
func Pair(t testing.TB, extraConfig string) (a, b *Node) {
	t.Helper()
	if _, err := freeAddresses(1); err != nil { // makes the runtime's own descriptors
		t.Fatal(err)
	}
	before := openFiles(t)
	n, err := Start(extraConfig)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Stop(); err != nil {
			t.Error(err)
		}
		checkLeaks(t, before)
	})
	return n.A, n.B
}

// checkLeaks compares with the state before the test.
func checkLeaks(t testing.TB, before []string) {
	t.Helper()
	err := Poll("after the test", func() error {
		if now := openFiles(t); len(now) > len(before) {
			return fmt.Errorf("%d descriptors are open, %d before: %s; before: %s", len(now), len(before), now, before)
		}
		children, err := filepath.Glob("/proc/self/task/*/children")
		if err != nil {
			return err
		}
		for _, f := range children {
			if pids, err := os.ReadFile(f); err == nil && len(bytes.TrimSpace(pids)) > 0 {
				return fmt.Errorf("child processes %s are left", bytes.TrimSpace(pids))
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// openFiles returns what this process has open.
func openFiles(t testing.TB) []string {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	var open []string
	for _, e := range entries {
		if name, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil && !strings.HasPrefix(name, "/proc/") {
			open = append(open, e.Name()+" "+name)
		}
	}
	return open
}

// Threads returns how many threads the process has.
func Threads(t testing.TB) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

// Process is a Helper that runs as a process of its own.
type Process struct {
	*exec.Cmd
	lines *bufio.Scanner
	over  bool
}

// Spawn starts the named Helper and waits for its first line of output, which it
// must print when it is ready. It is killed when the test ends.
func Spawn(t testing.TB, name string, args ...string) *Process {
	t.Helper()
	p := &Process{Cmd: exec.Command(os.Args[0], append([]string{name}, args...)...)}
	p.Stderr = os.Stderr
	out, err := p.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Kill() })
	p.lines = bufio.NewScanner(out)
	if p.Line() == "" {
		p.Kill()
		t.Fatalf("helper %s did not start", name)
	}
	return p
}

// Line returns the next line that the process prints, or "" at its end.
func (p *Process) Line() string {
	if !p.lines.Scan() {
		return ""
	}
	return p.lines.Text()
}

// Kill kills the process with SIGKILL and waits for its end. It may be called
// more than once.
func (p *Process) Kill() {
	if p.over {
		return
	}
	p.over = true
	_ = p.Process.Kill()
	_ = p.Wait()
}
