package test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/rdmad/rdmad/internal/config"
)

// alone is a daemon without peers that a test starts with flags and an environment of its own.
type alone struct {
	dir, socket string
}

// startAlone starts "rdmad run" with a standard input, variables and arguments, and waits until one can attach. DIR in the
// arguments is where its socket is.
func startAlone(t *testing.T, in string, env []string, args ...string) alone {
	t.Helper()
	dir, err := os.MkdirTemp("", "rdmad-alone-") // not t.TempDir, whose names are too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	a := alone{dir, filepath.Join(dir, "a.sock")}
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	args = strings.Split(strings.ReplaceAll(strings.Join(args, "\x00"), "DIR", dir), "\x00")
	cmd := exec.Command(programs.rdmad, append([]string{"run"}, args...)...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(strings.ReplaceAll(in, "DIR", dir)), log, log
	cmd.Env = append(config.WithoutKeys(os.Environ()), env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		if err := cmd.Wait(); err != nil {
			text, _ := os.ReadFile(log.Name())
			t.Errorf("the daemon: %v\n%s", err, text)
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	eventually(t, "the daemon is ready", func() bool {
		_, err := askStatus(t, a.socket)
		return err == nil
	})
	return a
}

// ask runs a command about the daemon, with a standard input that is not its configuration.
func (a alone) ask(t *testing.T, args ...string) ran {
	t.Helper()
	cmd := rdmad(t, args...)
	cmd.Env = append(config.WithoutKeys(cmd.Env), "RDMAD_SOCKET="+a.socket)
	cmd.Stdin = strings.NewReader("[node]\nname = \"another\"\n")
	return run(t, cmd)
}

// bundled returns the parts of a support bundle.
func (a alone) bundled(t *testing.T) map[string]string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "bundle.tar.gz")
	a.ask(t, "support-bundle", "-o", file, "--limit", "60s").check(t, "support-bundle", 0)
	return readBundle(t, file)
}

// A configuration that cannot be read again is not looked for in the standard input of whoever asks.
func TestConfigurationFromAPipe(t *testing.T) {
	a := startAlone(t, "[node]\nname = \"a\"\nsocket = \"DIR/a.sock\"\n"+modest, nil, "-c", "/dev/stdin")
	a.ask(t, "config", "diff").check(t, "diff", 2, "/dev/stdin, which cannot be read again", "rdmad config diff FILE")
	a.ask(t, "doctor").check(t, "doctor", 0, "OK    config", "in force", "/dev/stdin, which cannot be read again", "node a runs at")
	parts := a.bundled(t)
	if text := parts["config.toml"]; !strings.Contains(text, `name = "a"`) || !strings.Contains(text, "in force") {
		t.Errorf("config.toml:\n%s", text)
	}
	if text := parts["doctor.txt"]; !strings.Contains(text, "0 warnings, 0 failures") {
		t.Errorf("doctor.txt:\n%s", text)
	}
}
