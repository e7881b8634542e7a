package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
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
	var out, errOut bytes.Buffer
	status = execute(append([]string{"--json", "--rdmad", rdmadPath, "--dir", dir, "--workers=2", "--services=1", "--progress=1h"}, argv...), &out, &errOut)
	if err := json.Unmarshal(out.Bytes(), &res); err != nil {
		t.Fatalf("status %d, %v:\n%s%s", status, err, out.Bytes(), errOut.Bytes())
	}
	left, err := os.ReadDir(dir)
	if err != nil || status == 0 && len(left) > 0 {
		t.Errorf("it left %v behind (%v)", left, err)
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

// What goes wrong is found: services that run requests twice, not at all, or answer with
// other bytes.
func TestSabotageIsFound(t *testing.T) {
	// Services do each of it now and then: a busy machine needs longer for enough requests.
	for d := time.Second; ; d *= 2 {
		status, res := tortured(t, "--duration="+d.String(), "--faults=none", "--sabotage")
		j := res.Calls
		if status != statusFailed || !res.Failed || j == nil {
			t.Fatalf("status %d: %+v", status, j)
		}
		if j.Duplicated > 0 && j.Lost > 0 && j.Wrong > 0 {
			return
		}
		if d > 20*time.Second {
			t.Fatalf("not all is found: %+v", j)
		}
	}
}
