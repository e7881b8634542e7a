package daemontest

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// patience is how long Poll and Eventually try, and the longest time that InTime allows:
// much longer than anything takes on a busy machine.
const patience = 2 * time.Minute

// answerTime bounds one question to a daemon, which Poll asks again.
const answerTime = 15 * time.Second

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

// InTime is for tests of deadlines. It calls f with a context that ends soon, and again
// with one that lasts twice as long, until f returns true, which says that what the test
// wants to happen before the deadline has happened before it: how long that takes is not
// up to the test. It ends the test when that never happens.
func InTime(t testing.TB, what string, f func(ctx context.Context) bool) {
	t.Helper()
	for d := 10 * time.Millisecond; d < patience; d *= 2 {
		ctx, cancel := context.WithTimeout(t.Context(), d)
		ok := f(ctx)
		cancel()
		if ok {
			return
		}
	}
	t.Fatalf("%s: never in time", what)
}

// Pair starts two connected nodes for a test, as Start does. After the test they
// are stopped and what they left behind is an error.
func Pair(t testing.TB, extraConfig string) (a, b *Node) {
	t.Helper()
	return PairOfEach(t, extraConfig, extraConfig)
}

// PairOfEach is Pair with different configurations.
func PairOfEach(t testing.TB, extraA, extraB string) (a, b *Node) {
	t.Helper()
	return pair(t, StartEach, extraA, extraB)
}

// PairApart is PairOfEach for nodes that may never connect: it does not wait for that.
func PairApart(t testing.TB, extraA, extraB string) (a, b *Node) {
	t.Helper()
	return pair(t, StartApart, extraA, extraB)
}

func pair(t testing.TB, start func(extraA, extraB string) (*Nodes, error), extraA, extraB string) (a, b *Node) {
	t.Helper()
	if _, err := freeAddresses(1); err != nil { // makes the runtime's own descriptors
		t.Fatal(err)
	}
	before := openFiles(t)
	n, err := start(extraA, extraB)
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
	return SpawnWith(t, nil, name, args...)
}

// SpawnWith is Spawn with a standard input, which may be nil.
func SpawnWith(t testing.TB, in *os.File, name string, args ...string) *Process {
	t.Helper()
	p := &Process{Cmd: exec.Command(os.Args[0], append([]string{name}, args...)...)}
	if in != nil {
		p.Stdin = in
	}
	p.Stderr = os.Stderr
	p.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} // also when the test is killed
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
