package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/rdmad/rdmad/bench/peers/internal/result"
	"github.com/rdmad/rdmad/bench/peers/internal/run"
	"github.com/rdmad/rdmad/bench/peers/internal/system"
)

// rdmad is the program that TestMain has built.
var rdmad string

// markEnv is in the environment of all that the tests start, wherever it ends up.
const markEnv = "RDMAD_PEERS_TEST"

// The test binary is also every process of the systems, and every client.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && (os.Args[1] == "serve" || os.Args[1] == "client" || os.Args[1] == "run") {
		main()
		return
	}
	os.Exit(runTests(m))
}

func runTests(m *testing.M) (status int) {
	dir, err := os.MkdirTemp("", "peers-test-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	rdmad = filepath.Join(dir, "rdmad")
	build := exec.Command("go", "build", "-o", rdmad, "./cmd/rdmad")
	build.Dir = "../.." // its dependencies are those of another module
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build rdmad: %v\n%s", err, out)
		return 1
	}
	status = m.Run()
	for end := time.Now().Add(endLimit); status == 0; {
		err := goleak.Find()
		if err == nil {
			break
		}
		if time.Now().After(end) {
			fmt.Fprintln(os.Stderr, "goroutines are left:", err)
			status = 1
		}
	}
	return status
}

// nothingIsLeft marks what the test starts, and fails it if a process with the mark, or a file, is
// left at its end.
func nothingIsLeft(t *testing.T) {
	t.Helper()
	mark := strconv.FormatUint(rand.Uint64(), 16)
	t.Setenv(markEnv, mark)
	// A short path: those of sockets have a limit.
	dir, err := os.MkdirTemp("", "peers-")
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("TMPDIR", dir)
	t.Cleanup(func() {
		// Those that were killed with their parents may need a moment.
		left := marked(t, mark)
		for end := time.Now().Add(endLimit); len(left) > 0 && time.Now().Before(end); left = marked(t, mark) {
			time.Sleep(10 * time.Millisecond)
		}
		if len(left) > 0 {
			t.Errorf("processes are left: %v", left)
		}
		files, err := os.ReadDir(dir)
		if err != nil || len(files) > 0 {
			t.Errorf("files are left: %v, %v", files, err)
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
}

// marked returns the command lines of other processes with the mark, by their pids.
func marked(t *testing.T, mark string) map[int]string {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		t.Fatal(err)
	}
	found := map[int]string{}
	for _, name := range all {
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(name)))
		if err != nil {
			t.Fatal(err)
		}
		// Those of others cannot be read, and are none of this test's.
		environ, err := os.ReadFile(name)
		if err != nil || pid == os.Getpid() || !bytes.Contains(environ, []byte(markEnv+"="+mark+"\x00")) {
			continue
		}
		line, err := os.ReadFile(filepath.Join(filepath.Dir(name), "cmdline"))
		if err == nil {
			found[pid] = string(bytes.ReplaceAll(line, []byte{0}, []byte{' '}))
		}
	}
	return found
}

// limit bounds every test, and endLimit what still has to end then.
const limit, endLimit = 5 * time.Minute, 2 * time.Minute

func bounded(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	t.Cleanup(cancel)
	return ctx
}

// execute runs the command line and returns what it printed.
func execute(t *testing.T, args ...string) (string, error) {
	t.Helper()
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	before := os.Stdout
	os.Stdout = write
	printed := make(chan string, 1)
	go func() {
		text, err := io.ReadAll(read)
		if err != nil {
			t.Error(err)
		}
		printed <- string(text)
	}()
	root := newRoot()
	root.SetArgs(args)
	err = root.ExecuteContext(bounded(t))
	os.Stdout = before
	_ = write.Close()
	defer read.Close()
	return <-printed, err
}

// Every system does all its workloads in both settings, and every answer is right.
func TestEverySystem(t *testing.T) {
	nothingIsLeft(t)
	dir := t.TempDir()
	file := filepath.Join(dir, "latest.json")
	table, err := execute(t, "--quick", "--rdmad", rdmad, "--json", file, "--plots", dir, "--revision", "r1")
	if err != nil {
		t.Fatalf("%v\n%s", err, table)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var r result.Results
	if err := json.Unmarshal(text, &r); err != nil {
		t.Fatal(err)
	}
	if r.Rounds != 1 || r.Machine.Revision != "r1" {
		t.Errorf("%d rounds, %+v", r.Rounds, r.Machine)
	}
	for _, s := range []run.Setting{run.Free, run.Pinned} {
		for _, w := range run.Workloads {
			for _, name := range w.Systems {
				check(t, &w, r.Find(string(s), w.Name, name), name)
			}
		}
	}
	// A single round has too few calls for a plot of rare latencies.
	for _, name := range []string{"clients", "sizes", "groups"} {
		for _, s := range []run.Setting{run.Free, run.Pinned} {
			if _, err := os.Stat(filepath.Join(dir, name+"-"+string(s)+".svg")); err != nil {
				t.Error(err)
			}
		}
	}
	if !strings.Contains(table, "\ntargets:") || strings.Contains(table, "FAILED") {
		t.Errorf("the table:\n%s", table)
	}
}

// check checks what was measured in one round.
func check(t *testing.T, w *run.Workload, c *result.Cell, name string) {
	t.Helper()
	if c == nil || len(c.Errors) > 0 || len(c.Samples) != 1 || c.Samples[0] == nil {
		t.Errorf("%s: %s: %+v", w.Name, name, c)
		return
	}
	s := c.Samples[0]
	if w.Idle {
		return
	}
	if s.Messages < uint64(w.Clients*w.Depth) && s.Messages < 12*uint64(w.Depth) || s.Rate <= 0 || s.CPU <= 0 {
		t.Errorf("%s: %s: %+v", w.Name, name, s)
	}
	if (s.P50 <= 0 && s.Messages > 1 || s.P99 != 0 && s.P99 < s.P50 || s.P999 != 0 && s.P999 < s.P99) && w.Op != system.Post {
		t.Errorf("%s: %s: latencies of %+v", w.Name, name, s)
	}
	if sizes := c.GroupSizes; (len(sizes) > 0) != (s.RequestGroup > 0) || name == "rdmad-single" && (len(sizes) != 1 || sizes[0].Most != 1) {
		t.Errorf("%s: %s: sizes of groups: %v", w.Name, name, sizes)
	}
	grouped := name == "rdmad" || name == "rdmad-region" || name == "rdmad-single" || name == "rdmad-embedded"
	if grouped != (s.RequestGroup >= 1) || name == "rdmad-single" && s.RequestGroup != 1 {
		t.Errorf("%s: %s: groups of %+v", w.Name, name, s)
	}
}

// A system that does not start is in the table with the reason, the others are measured, and the exit status says so.
func TestFailureIsReported(t *testing.T) {
	nothingIsLeft(t)
	table, err := execute(t, "--quick", "--rdmad", "/bin/false", "--systems", "unix,rdmad", "--workloads", "call,idle", "--settings", "free")
	if !errors.Is(err, errFailed) {
		t.Errorf("%v, want %v", err, errFailed)
	}
	for _, want := range []string{"rdmad FAILED: ", "exit status 1", "unix"} {
		if !strings.Contains(table, want) {
			t.Errorf("no %q in\n%s", want, table)
		}
	}
}

// options are those of a small comparison.
func options(t *testing.T, systems ...string) run.Options {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	o := run.Options{
		Peers: self, Rdmad: rdmad, Systems: systems, Settings: []run.Setting{run.Free},
		Rounds: 3, Duration: time.Millisecond, Idle: time.Millisecond,
	}
	for _, w := range run.Workloads {
		if w.Name == "call" || w.Name == "callers" {
			o.Workloads = append(o.Workloads, w)
		}
	}
	return o
}

// A service that is killed spoils one measurement: it is started anew.
func TestServiceDies(t *testing.T) {
	nothingIsLeft(t)
	o := options(t, "unix", "rdmad")
	steps := 0
	o.Progress = func(format string, args ...any) {
		t.Logf(format, args...)
		if steps++; steps != 3 {
			return
		}
		for pid, line := range marked(t, os.Getenv(markEnv)) {
			if strings.Contains(line, " serve --system ") {
				if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
					t.Error(err)
				}
			}
		}
	}
	r, err := run.Run(bounded(t), o)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range o.Systems {
		c := r.Find("free", "call", name)
		if c.Samples[0] == nil || c.Samples[1] != nil || c.Samples[2] == nil || len(c.Errors) != 1 {
			t.Errorf("%s: samples %v, errors %q", name, c.Samples, c.Errors)
		}
		if c := r.Find("free", "callers", name); len(c.Errors) != 0 {
			t.Errorf("%s was not started anew: %q", name, c.Errors)
		}
	}
}

// An interrupt ends everything.
func TestInterrupt(t *testing.T) {
	nothingIsLeft(t)
	ctx, cancel := context.WithCancel(bounded(t))
	o := options(t, "tcp", "nats", "rdmad")
	o.Duration = time.Hour // which the test does not have
	o.Progress = func(string, ...any) { cancel() }
	if _, err := run.Run(ctx, o); !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want %v", err, context.Canceled)
	}
}

func TestFlags(t *testing.T) {
	nothingIsLeft(t)
	for _, c := range []struct{ args, want string }{
		{"--rounds 0", "want more than none"},
		{"--duration 0s", "want more than none"},
		{"--systems tcp,none", `no system "none"`},
		{"--workloads none", `no workload "none"`},
		{"--settings none", `no setting "none"`},
		{"--systems tcp,tcp", `"tcp" is named twice`},
		{"--workloads call,call", `"call" is named twice`},
		{"--settings free,free", `"free" is named twice`},
		{"--systems=", "want at least one"},
		{"--systems tcp --workloads oneway", "none of these systems"},
		{"--rdmad /nowhere", "/nowhere"},
		{"--rdmad /etc/passwd", "/etc/passwd"},
		{"extra", "unknown command"},
		{"--nothing", "unknown flag"},
	} {
		args := strings.Fields(c.args)
		if !strings.HasPrefix(c.args, "--rdmad") && c.args != "extra" && c.args != "--nothing" {
			args = append(args, "--rdmad", rdmad)
		}
		if _, err := execute(t, args...); !errors.Is(err, errUsage) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.args, err, c.want)
		}
	}
}
