package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// rdmadPath is the rdmad that TestMain has built.
var rdmadPath string

func TestMain(m *testing.M) {
	if role := os.Getenv(roleEnv); role != "" {
		os.Exit(play(role))
	}
	os.Exit(runTests(m))
}

func runTests(m *testing.M) int {
	dir, err := os.MkdirTemp("", "rdmad-torture-test-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	rdmadPath = filepath.Join(dir, "rdmad")
	if out, err := exec.Command("go", "build", "-o", rdmadPath, "../../cmd/rdmad").CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "go build: %v\n%s", err, out)
		return 1
	}
	status := m.Run()
	for end := time.Now().Add(time.Minute); status == 0; {
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

// tortured does a short run and returns its exit status and result.
func tortured(t *testing.T, argv ...string) (status int, res result) {
	t.Helper()
	return torturedBeside(t, func(string) {}, argv...)
}

// torturedBeside does a short run with something else beside it, which is told in which directory the run makes its own.
func torturedBeside(t *testing.T, beside func(dir string), argv ...string) (status int, res result) {
	t.Helper()
	// Not t.TempDir, whose names are too long for a socket.
	dir, err := os.MkdirTemp("", "rdmad-torture-test-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	// Hostile workers are of another user.
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	var also sync.WaitGroup
	also.Go(func() { beside(dir) })
	defer also.Wait()
	var out, errOut bytes.Buffer
	status = execute(append([]string{"--json", "--rdmad", rdmadPath, "--dir", dir, "--workers=2", "--services=1", "--progress=1h"}, argv...), &out, &errOut)
	if err := json.Unmarshal(out.Bytes(), &res); err != nil {
		t.Fatalf("status %d, %v:\n%s%s", status, err, out.Bytes(), errOut.Bytes())
	}
	left, err := os.ReadDir(dir)
	if err != nil || status == 0 && len(left) > 0 || status != 0 && len(left) == 0 {
		t.Errorf("status %d: it left %v behind (%v)", status, left, err)
	}
	if status != 0 {
		t.Logf("%s%s", out.Bytes(), errOut.Bytes())
		logs, _ := filepath.Glob(filepath.Join(dir, "*", "*.log"))
		for _, name := range logs {
			if text, err := os.ReadFile(name); err == nil {
				t.Logf("%s:\n%s", filepath.Base(name), text[max(0, len(text)-2000):])
			}
		}
	}
	return status, res
}

// A little of everything: nothing is lost.
func TestTorture(t *testing.T) {
	status, res := tortured(t, "--duration=12s", "--faults=-silence,-core-stop,-hostile-peer", "--worker-kills=4", "--service-kills=2", "--core-kills=1", "--link-resets=3")
	if status != 0 || res.Failed {
		t.Errorf("status %d: %q", status, res.Problems)
	}
	if res.Calls == nil || res.Calls.Outcomes[outOK.String()] == 0 {
		t.Error("no call was answered")
	}
	t.Logf("%s; faults %v; %d calls", res.Why, res.Faults, res.Calls.Calls)
}

// What goes wrong is found: services that run requests twice, not at all, also if nobody
// wants an answer, or answer with other bytes.
func TestSabotageIsFound(t *testing.T) {
	// Services do each of it now and then: a busy machine needs longer for enough requests.
	for d := time.Second; ; d *= 2 {
		status, res := tortured(t, "--duration="+d.String(), "--faults=none", "--sabotage")
		j := res.Calls
		if status != statusFailed || !res.Failed || j == nil {
			t.Fatalf("status %d: %+v", status, j)
		}
		if j.Duplicated > 0 && j.Lost > 0 && j.Wrong > 0 && j.Failures["post"][neverExecuted] > 0 && res.Unexplained > 0 {
			return
		}
		if d > 20*time.Second {
			t.Fatalf("not all is found: %+v", j)
		}
	}
}

// The list has every fault, and says why one cannot be injected also if it would not be by the rest of the command line.
func TestList(t *testing.T) {
	dir := t.TempDir()
	for _, also := range []string{"--faults=all", "--faults=none"} {
		var out, errOut bytes.Buffer
		if status := execute([]string{"--list", "--rdmad", rdmadPath, "--dir", dir, also}, &out, &errOut); status != 0 {
			t.Errorf("status %d: %s", status, errOut.Bytes())
		}
		for i := range faults {
			if !strings.Contains(out.String(), "\n"+faults[i].name+" ") && !strings.HasPrefix(out.String(), faults[i].name+" ") {
				t.Errorf("%s is missing: %s", faults[i].name, out.Bytes())
			}
		}
		if n := strings.Count(out.String(), "(no: only with --netns)"); n != 2 {
			t.Errorf("%d faults need --netns, want 2: %s", n, out.Bytes())
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("it left %v behind (%v)", left, err)
	}
}

// A core that is killed by somebody else is noticed also where no fault is injected.
func TestCrashIsFound(t *testing.T) {
	status, res := torturedBeside(t, func(dir string) {
		// When there is a book there is load, and the harness knows its cores.
		err := await(t.Context(), recoverLimit, "a worker calls", func() error {
			books, err := filepath.Glob(filepath.Join(dir, "*", "books", "*"))
			if err == nil && len(books) == 0 {
				err = errNotYet
			}
			return err
		})
		sockets, globErr := filepath.Glob(filepath.Join(dir, "*", "b.sock"))
		if err := errors.Join(err, globErr); err != nil || len(sockets) != 1 {
			t.Errorf("%v, %v", sockets, err)
			return
		}
		pid, err := (&node{name: "b", socket: sockets[0]}).core(t.Context())
		if err == nil {
			err = syscall.Kill(pid, syscall.SIGKILL)
		}
		if err != nil {
			t.Error(err)
		}
	}, "--duration=1m", "--faults=none")
	if status != statusFailed || !res.Failed || res.Crashes != 1 {
		t.Errorf("status %d, %d crashes: %q", status, res.Crashes, res.Problems)
	}
}

// A daemon that ends badly when it is told to stop makes the run fail, and the result says so.
func TestBadEndIsFound(t *testing.T) {
	badly := filepath.Join(t.TempDir(), "rdmad")
	script := fmt.Sprintf("#!/bin/sh\n%q \"$@\" &\ntrap \"kill -TERM $!\" TERM\nwait $!\nwait $!\nexit 3\n", rdmadPath)
	if err := os.WriteFile(badly, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	status, res := tortured(t, "--rdmad", badly, "--duration=1s", "--faults=none")
	if status != statusFailed || !res.Failed || !slices.ContainsFunc(res.Problems, func(p string) bool { return strings.Contains(p, "exit status 3") }) {
		t.Errorf("status %d: %q", status, res.Problems)
	}
}
