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

// What the daemon has from its flags and its environment counts for those who look at it, too, and no reload is said to change it.
func TestFlagsAndEnvironmentOfTheDaemon(t *testing.T) {
	file := filepath.Join(t.TempDir(), "a.toml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("[node]\nname = \"x\"\n[limits]\nworkers = 10\nservices = 20\n")
	a := startAlone(t, "", []string{"RDMAD_NODE_NAME=a", "RDMAD_LIMITS_SERVICES=30"}, "-c", file, "--set", "node.socket=DIR/a.sock", "--set", "limits.workers=11")
	for _, args := range [][]string{{"config", "diff"}, {"config", "diff", "-c", file}, {"config", "diff", file}} {
		r := a.ask(t, args...)
		r.check(t, strings.Join(args, " "), 0, "no difference", "limits.workers: the daemon has it from its flag --set limits.workers",
			"limits.services: the daemon has it from its environment RDMAD_LIMITS_SERVICES", "what the file says, 20,")
		if strings.Contains(r.out, "NEEDS") {
			t.Errorf("there are changes:\n%s", r.out)
		}
	}
	a.ask(t, "config", "diff", "--set", "limits.workers=12").check(t, "diff with a flag", 0, "limits.workers  11       12")
	a.ask(t, "doctor").check(t, "doctor", 0, "what is in force, of "+file, "RDMAD_NODE_NAME", "node a runs at", "limits.workers = 11 ")
	a.ask(t, "doctor", "-c", file).check(t, "doctor of the file", 0, "node a runs at", "limits.workers = 11 ")
	if text := a.bundled(t)["config.toml"]; !strings.Contains(text, "workers = 11\n") || !strings.Contains(text, `name = "a"`) {
		t.Errorf("config.toml:\n%s", text)
	}
	// What the next start would read is looked at as well.
	write("[limits]\nservcies = 1\n")
	a.ask(t, "doctor").check(t, "doctor of a file with problems", 2, "OK    config", "would not start again: "+file+":2: limits.servcies")
	if text := a.bundled(t)["config.toml"]; !strings.Contains(text, "workers = 11\n") || !strings.Contains(text, "# line 2: limits.servcies\n") {
		t.Errorf("config.toml:\n%s", text)
	}
}

// Problems of a reload can be found from any directory, also if the file was named as it is called in the daemon's own.
func TestReloadOfAFileNearby(t *testing.T) {
	file := filepath.Join(t.TempDir(), "a.toml")
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	near, err := filepath.Rel(here, file)
	if err == nil {
		err = os.WriteFile(file, []byte(modest), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	a := startAlone(t, "", nil, "-c", near, "--set", "node.socket=DIR/a.sock")
	if err := os.WriteFile(file, []byte("[limits]\nservcies = 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	a.ask(t, "reload").check(t, "reload", 2, file+":2: limits.servcies: unknown key")
}
