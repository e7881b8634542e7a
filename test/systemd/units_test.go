package systemd

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

const units = "../../deploy/systemd"

// read returns a file of the repository.
func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// write makes a file.
func write(t *testing.T, name, text string, mode os.FileMode) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
}

// need skips the test where a program is missing.
func need(t *testing.T, programs ...string) {
	t.Helper()
	for _, p := range programs {
		if _, err := exec.LookPath(p); err != nil {
			t.Skipf("there is no %s here", p)
		}
	}
}

// The most exposure, as systemd computes it, of the service with the drop-in.
const mostExposure = 3.0

var exposure = regexp.MustCompile(`Overall exposure level for \S+: ([0-9.]+)`)

// systemd finds nothing wrong with the units, and little exposure with the drop-in.
func TestUnits(t *testing.T) {
	need(t, "systemd-analyze")
	dir := t.TempDir()
	service := strings.ReplaceAll(read(t, units+"/rdmad.service"), "/usr/bin/rdmad", "/bin/true")
	service = regexp.MustCompile(`(?m)^Documentation=.*\n`).ReplaceAllString(service, "") // the pages may not be installed
	hard := strings.ReplaceAll(read(t, units+"/rdmad.service.d/hardened.conf"), "[Service]", "")
	write(t, dir+"/rdmad.service", strings.Replace(service, "[Install]", hard+"\n[Install]", 1), 0o644)
	write(t, dir+"/rdmad.socket", regexp.MustCompile(`(?m)^Documentation=.*\n`).ReplaceAllString(read(t, units+"/rdmad.socket"), ""), 0o644)
	for _, unit := range []string{"rdmad.service", "rdmad.socket"} {
		out, _ := exec.Command("systemd-analyze", "verify", filepath.Join(dir, unit)).CombinedOutput()
		for line := range strings.Lines(string(out)) {
			if strings.Contains(line, "rdmad") {
				t.Errorf("verify %s: %s", unit, line)
			}
		}
	}
	out, err := exec.Command("systemd-analyze", "security", "--offline=true", dir+"/rdmad.service").CombinedOutput()
	m := exposure.FindSubmatch(out)
	if m == nil {
		t.Skipf("systemd-analyze does not judge files here: %v", err)
	}
	if score, err := strconv.ParseFloat(string(m[1]), 64); err != nil || score > mostExposure {
		t.Errorf("exposure %s, want at most %v\n%s", m[1], mostExposure, out)
	}
	t.Logf("exposure %s", m[1])
}

// The service with the drop-in does everything under systemd: it starts and is ready,
// reloads, carries calls, survives the death of its supervisor with its workers attached, is
// restarted by the watchdog when its core stops, stops, and is started by its socket.
func TestUnderSystemd(t *testing.T) {
	need(t, "unshare", "ip", "go")
	if _, err := os.Stat("/lib/systemd/systemd"); err != nil || os.Getuid() != 0 {
		t.Skip("needs systemd and root")
	}
	dir := t.TempDir()
	build := exec.Command("go", "build", "-o", dir+"/rdmad", "../../cmd/rdmad")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	write(t, dir+"/config.toml", "[node]\nname = \"a\"\n[log]\nlevel = \"warn\"\n", 0o644)
	write(t, dir+"/boot.sh", read(t, "boot.sh"), 0o755)
	write(t, dir+"/inside.sh", read(t, "inside.sh"), 0o755)
	// Faster than in earnest, and with no page to look for.
	service := strings.Replace(read(t, units+"/rdmad.service"), "WatchdogSec=30s", "WatchdogSec=10s", 1)
	service = strings.Replace(service, "RestartSec=1s", "RestartSec=100ms", 1)
	write(t, dir+"/units/rdmad.service", service, 0o644)
	write(t, dir+"/units/rdmad.socket", read(t, units+"/rdmad.socket"), 0o644)
	write(t, dir+"/units/rdmad.service.d/hardened.conf", read(t, units+"/rdmad.service.d/hardened.conf"), 0o644)
	write(t, dir+"/units/test.target", "[Unit]\nDescription=test\nWants=inside.service\n", 0o644)
	write(t, dir+"/units/inside.service", "[Unit]\nDescription=inside\nDefaultDependencies=no\n[Service]\nType=oneshot\nTimeoutStartSec=300\n"+
		"ExecStart=/bin/bash /tmp/x/inside.sh\nStandardOutput=file:/tmp/x/out\nStandardError=file:/tmp/x/out\n", 0o644)
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	// The namespaces' first process is killed with unshare, and everything in them with it.
	cmd := exec.CommandContext(ctx, "unshare", "--mount", "--pid", "--cgroup", "--uts", "--ipc", "--net", "--fork", "--kill-child", "bash", dir+"/boot.sh", dir)
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.WaitDelay = time.Minute
	err := cmd.Run()
	out, _ := os.ReadFile(dir + "/out")
	if !strings.Contains(string(out), "STEP start:") {
		t.Skipf("systemd cannot be started here: %v\n%s", err, log.String())
	}
	for _, want := range []string{
		`state: active`, `oom: continue`, `text: Node a serves /run/rdmad/rdmad.sock`, `serves: node a: running`,
		`seccomp: CapBnd:\s0000000000004000 NoNewPrivs:\s1 Seccomp:\s2`, `reload: $`, `reloaded: no difference`,
		`calls: .*calls/s`, `stored: [1-9]`, `restarts: more $`, `attached: .*calls/s`, `watchdog: more $`, `stop: $`, `result: success`,
		`socket: $`, `activated: node a: running`, `again: node a: running`, `end: $`,
	} {
		if !regexp.MustCompile(`(?m)^STEP ` + strings.TrimSuffix(want, "$") + map[bool]string{true: ` *$`}[strings.HasSuffix(want, "$")]).Match(out) {
			t.Errorf("missing %q", want)
		}
	}
	if t.Failed() {
		t.Logf("%s\n%s", out, log.String())
	}
}
