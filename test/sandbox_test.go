package test

import (
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// sandboxed is what a command in a sandbox tells the test about it: it writes
// the list of processes, its own process id and two sockets to a file.
type sandboxed struct {
	pids    []int
	command int
	sockets []string
}

// telling is a shell script that tells a file about its sandbox.
func telling(file, then string) []string { return tellingAfter("", file, then) }

// tellingAfter is telling, but for what comes first.
func tellingAfter(first, file, then string) []string {
	script := first + `echo "$RDMAD_SANDBOX_PIDS $$ $RDMAD_SOCKET $RDMAD_SOCKET_B" > ` + file + `.new && mv ` + file + `.new ` + file + `; ` + then
	return []string{"--", "sh", "-c", script}
}

// told waits for the file and reads it.
func told(t *testing.T, file string) sandboxed {
	t.Helper()
	eventually(t, "the command runs", func() bool { return exists(file) })
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	f := strings.Fields(string(text))
	if len(f) != 4 {
		t.Fatalf("environment of the sandbox: %q", text)
	}
	var s sandboxed
	var roles []string
	for _, entry := range strings.Split(f[0], ",") {
		role, pid, _ := strings.Cut(entry, "=")
		n, err := strconv.Atoi(pid)
		if err != nil {
			t.Fatalf("processes of the sandbox: %q", f[0])
		}
		roles, s.pids = append(roles, role), append(s.pids, n)
	}
	if got, want := strings.Join(roles, " "), "a.supervisor a.core b.supervisor b.core b.echo"; got != want {
		t.Errorf("roles are %q, want %q", got, want)
	}
	if s.command, err = strconv.Atoi(f[1]); err != nil {
		t.Fatal(err)
	}
	s.sockets = f[2:]
	return s
}

// gone checks that nothing is left of a sandbox.
func (s *sandboxed) gone(t *testing.T) {
	t.Helper()
	for _, pid := range append(s.pids, s.command) {
		if alive(pid) {
			t.Errorf("process %d is left", pid)
		}
	}
	for _, socket := range s.sockets {
		if exists(socket) || exists(filepath.Dir(socket)) {
			t.Errorf("%s is left", socket)
		}
	}
}

// A sandbox passes the status of its command on and leaves nothing behind.
func TestSandboxStatus(t *testing.T) {
	for then, status := range map[string]int{"exit 0": 0, "exit 7": 7, "kill -9 $$": 128 + 9, "kill -TERM $$": 128 + 15} {
		file := filepath.Join(t.TempDir(), "told")
		run(t, rdmad(t, append([]string{"sandbox"}, telling(file, then)...)...)).check(t, then, status)
		s := told(t, file)
		s.gone(t)
	}
}

func TestSandboxSettings(t *testing.T) {
	status := []string{"--", "rdmad", "status"}
	run(t, rdmad(t, append([]string{"sandbox", "--group-max", "7", "--max-group-delay", "50us", "--idle", "event", "--fabric", "tcp"}, status...)...)).
		check(t, "settings", 0, "node a", "fabric tcp", "connected")
	run(t, rdmad(t, append([]string{"sandbox", "--idle", "never"}, status...)...)).
		check(t, "wrong setting", 2, "--idle", "never")
	run(t, rdmad(t, append([]string{"sandbox", "--max-group-delay", "1s"}, status...)...)).
		check(t, "wrong delay", 2, "--max-group-delay", "0s to 100ms")
	run(t, rdmad(t, "sandbox", "--fabric", "auto", "--verbs-device", "x0", "--verbs-connect", "rdmacm", "--fabric-option", "timeout=18", "--", "true")).
		check(t, "settings of [verbs]", 0)
	for flag, value := range map[string]string{"--verbs-device": "x0", "--verbs-connect": "rdmacm", "--fabric-option": "timeout=18"} {
		run(t, rdmad(t, "sandbox", flag, value, "--", "true")).check(t, "settings of [verbs] with tcp", 2, flag, "--fabric tcp has no use for it", "--fabric verbs")
	}
	run(t, rdmad(t, "sandbox", "--fabric", "libfabric", "--verbs-device", "x0", "--", "true")).
		check(t, "settings of [verbs] with libfabric", 2, "--verbs-device: --fabric libfabric has no use for it", "--fabric verbs or auto")
	run(t, rdmad(t, "sandbox", "--fabric", "verbs", "--fabric-option", "timeout=99", "--", "true")).check(t, "wrong value", 2, "--fabric-option timeout", "0 to 31")
	run(t, rdmad(t, "sandbox", "--fabric", "verbs", "--fabric-option", "a b=1", "--", "true")).check(t, "wrong key", 2, "a b", "key=value")
	run(t, rdmad(t, "sandbox", "--", "no-such-command")).check(t, "wrong command", 1, "no-such-command")
	run(t, rdmad(t, "sandbox", "--group-max", "-1", "--", "true")).check(t, "wrong flag", 2, "--group-max")
}

// --keep leaves the configurations and the logs, and nothing else, also where $TMPDIR is relative.
func TestSandboxKeep(t *testing.T) {
	dir, err := os.MkdirTemp("", "rdmad-keep-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	cmd := exec.Command(programs.rdmad, "sandbox", "--keep", "--", "sh", "-c", `cd / && test -S "$RDMAD_SOCKET" && test -S "$RDMAD_SOCKET_B"`)
	cmd.Dir = filepath.Dir(dir)
	cmd.Env = append(os.Environ(), "TMPDIR="+filepath.Base(dir))
	r := run(t, cmd)
	r.check(t, "--keep", 0)
	kept, err := filepath.Glob(filepath.Join(dir, "*", "*"))
	if err != nil {
		t.Fatal(err)
	}
	names := make([]string, len(kept))
	for i, name := range kept {
		names[i] = filepath.Base(name)
	}
	if got, want := strings.Join(names, " "), "a.log a.toml b.echo.log b.log b.toml"; got != want {
		t.Errorf("kept %q, want %q", got, want)
	}
	if len(kept) > 0 && !strings.Contains(r.errOut, filepath.Dir(kept[0])) {
		t.Errorf("does not say where: %q", r.errOut)
	}
}

// What the command leaves running ends with the sandbox, whatever it does about
// signals.
func TestSandboxOrphans(t *testing.T) {
	file := filepath.Join(t.TempDir(), "told")
	orphan := filepath.Join(t.TempDir(), "orphan")
	then := `(trap '' TERM; setsid sleep 1000 & echo $! > ` + orphan + `) & while [ ! -s ` + orphan + ` ]; do sleep 0.01; done`
	run(t, rdmad(t, append([]string{"sandbox"}, telling(file, then)...)...)).check(t, "orphans", 0)
	s := told(t, file)
	s.gone(t)
	text, err := os.ReadFile(orphan)
	if err != nil {
		t.Fatal(err)
	}
	if pid, err := strconv.Atoi(strings.TrimSpace(string(text))); err != nil || alive(pid) {
		t.Errorf("orphan %q is left (%v)", text, err)
	}
}

// A sandbox that is told to end ends its command first.
func TestSandboxSignals(t *testing.T) {
	for _, c := range []struct {
		signal      syscall.Signal
		first, then string
		status      int
	}{
		{syscall.SIGTERM, "", "exec sleep 1000", 128 + 15},
		{syscall.SIGINT, "", "exec sleep 1000", 128 + 15},
		{syscall.SIGTERM, "trap 'exit 5' TERM; ", "while :; do sleep 0.05; done", 5},
		{syscall.SIGHUP, "", "exec sleep 1000", 128 + 15},
	} {
		if signal.Ignored(c.signal) {
			t.Logf("%v is not tried: this test ignores it, and so do the processes that it starts", c.signal)
			continue
		}
		file := filepath.Join(t.TempDir(), "told")
		cmd := rdmad(t, append([]string{"sandbox"}, tellingAfter(c.first, file, c.then)...)...)
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		sandbox := begin(t, cmd)
		s := told(t, file)
		if err := cmd.Process.Signal(c.signal); err != nil {
			t.Fatal(err)
		}
		sandbox.end().check(t, c.signal.String(), c.status)
		s.gone(t)
	}
}

// Children that its process had before it became a sandbox are none of its business.
func TestSandboxChildrenFromBefore(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pid")
	cmd := rdmad(t, "sandbox", "--", "true")
	cmd.Path = "/bin/sh"
	cmd.Args = []string{"sh", "-c", `sleep 1000 >/dev/null 2>&1 & echo $! > "$1"; exec "$0" sandbox -- true`, programs.rdmad, file}
	run(t, cmd).check(t, "exec", 0)
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Errorf("the process that was there before: %v", err)
	}
}

// When a sandbox is killed its processes end; only its directory is left.
func TestSandboxKilled(t *testing.T) {
	file := filepath.Join(t.TempDir(), "told")
	cmd := exec.Command(programs.rdmad, append([]string{"sandbox"}, telling(file, "exec sleep 1000")...)...)
	dir, err := os.MkdirTemp("", "rdmad-killed-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	cmd.Env = append(os.Environ(), "TMPDIR="+dir)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	s := told(t, file)
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	for _, pid := range append(s.pids, s.command) {
		eventually(t, "process "+strconv.Itoa(pid)+" ends", func() bool { return !alive(pid) })
	}
	for _, socket := range s.sockets {
		if exists(socket) {
			t.Errorf("%s is left", socket)
		}
	}
}
