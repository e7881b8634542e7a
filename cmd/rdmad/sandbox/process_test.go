package sandbox

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// limit bounds what a test waits for; nothing takes as long.
const limit = 3 * time.Minute

func startShell(t *testing.T, script string) *Process {
	t.Helper()
	p, err := StartProcess("the shell", filepath.Join(t.TempDir(), "log"), "sh", "-c", script)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Kill)
	return p
}

// await waits until the process has written the word.
func await(t *testing.T, p *Process, word string) {
	t.Helper()
	for end := time.Now().Add(limit); !strings.Contains(p.Tail(), word); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("no %q%s", word, p.Tail())
		}
	}
}

func TestProcessStop(t *testing.T) {
	for _, c := range []struct{ script, want string }{
		{`trap 'exit 0' TERM; echo up; while :; do sleep 0.01; done`, ""},
		{`trap 'echo bye; exit 3' TERM; echo up; while :; do sleep 0.01; done`, "the shell ended: exit status 3; its log ends:\n  up\n  bye"},
		{`trap '' TERM; echo up; while :; do sleep 0.01; done`, "was killed"},
	} {
		p := startShell(t, c.script)
		await(t, p, "up")
		if p.Ended() != nil || !p.Alive() {
			t.Fatalf("%q: has ended before it was stopped", c.script)
		}
		grace := limit
		if c.want == "was killed" {
			grace = 50 * time.Millisecond
		}
		err := p.Stop(grace)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%q: %v, want %q", c.script, err, c.want)
		}
		if p.Alive() || p.Ended() == nil {
			t.Errorf("%q: alive after Stop", c.script)
		}
	}
}

// Kill reaches the children of the process too.
func TestProcessKillsGroup(t *testing.T) {
	p := startShell(t, `sleep 1000 & echo $! child; wait`)
	await(t, p, "child")
	child := childrenOf(p.PID())
	if len(child) != 1 {
		t.Fatalf("children %v, want one", child)
	}
	p.Kill()
	for end := time.Now().Add(limit); ; time.Sleep(time.Millisecond) {
		// A zombie that nobody has reaped yet is dead all the same.
		stat, err := os.ReadFile("/proc/" + strconv.Itoa(child[0]) + "/stat")
		if err != nil || strings.Contains(string(stat), ") Z ") {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("the child lives: %s", stat)
		}
	}
}

func TestTailIsShort(t *testing.T) {
	p := startShell(t, `i=0; while [ $i -lt 5000 ]; do echo line $i; i=$((i+1)); done`)
	<-p.Done()
	tail := p.Tail()
	if n := strings.Count(tail, "\n"); n != tailLines || !strings.HasSuffix(tail, "line 4999") {
		t.Errorf("%d lines: %s", n, tail)
	}
}

func TestFreePorts(t *testing.T) {
	ports, err := FreePorts(20)
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(ports)
	if n := len(slices.Compact(ports)); n != 20 {
		t.Errorf("%d different addresses of 20", n)
	}
}

// What a command leaves behind is found and ended, also what ignores SIGTERM.
func TestOrphans(t *testing.T) {
	if err := adoptOrphans(); err != nil {
		t.Fatal(err)
	}
	p := startShell(t, `(trap '' TERM; sleep 1000 & sleep 1001 & wait) & echo done`)
	<-p.Done()
	if err := p.Ended(); !strings.Contains(err.Error(), "status 0") {
		t.Fatal(err)
	}
	if n := len(childrenOf(os.Getpid())); n == 0 {
		t.Fatal("the shell left nothing behind")
	}
	endOrphans()
	if left := childrenOf(os.Getpid()); len(left) > 0 {
		t.Errorf("children %v are left", left)
	}
}

func TestSignal(t *testing.T) {
	p := startShell(t, `echo up; exec sleep 1000`)
	await(t, p, "up")
	if err := p.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-p.Done()
	if err := p.Ended(); !strings.Contains(err.Error(), "killed") {
		t.Errorf("%v", err)
	}
}

// Children are not taken for what a service manager has started.
func TestProcessHasNoManager(t *testing.T) {
	for _, name := range managers {
		t.Setenv(name, "1")
	}
	t.Setenv("FDSTORED", "kept")
	p := startShell(t, "env; echo done")
	await(t, p, "done")
	text, err := os.ReadFile(p.log)
	if err != nil || !strings.Contains(string(text), "FDSTORED=kept\n") {
		t.Errorf("%s, %v", text, err)
	}
	for line := range strings.Lines(string(text)) {
		if name, _, _ := strings.Cut(line, "="); slices.Contains(managers, name) {
			t.Errorf("it has %s", line)
		}
	}
}
