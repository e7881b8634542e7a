package supervisor

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/sys/unix"

	"github.com/rdmad/rdmad/internal/config"
)

// Nobody but the daemon's own user can lock its lock, also one that an older rdmad has left, and everybody can
// read who has it. Only one that lives is said to serve.
func TestLock(t *testing.T) {
	cfg := configOf(t, "")
	lock, pid := config.LockFile(cfg.Node.Socket), config.PIDFile(cfg.Node.Socket)
	if err := errors.Join(os.WriteFile(lock, []byte("1234567\n"), 0o644), os.WriteFile(pid, []byte("1234567890\n"), 0o600)); err != nil {
		t.Fatal(err)
	}
	first, second := &supervisor{cfg: cfg, log: zerolog.Nop()}, &supervisor{cfg: cfg, log: zerolog.Nop()}
	if err := errors.Join(first.takeLock(), first.writePID()); err != nil {
		t.Fatal(err)
	}

	for path, want := range map[string]os.FileMode{lock: 0o600, pid: 0o644} {
		if there, err := os.Stat(path); err != nil || there.Mode().Perm() != want {
			t.Errorf("%s: %v, %v", path, there.Mode(), err)
		}
	}
	if text, err := os.ReadFile(pid); err != nil || string(text) != fmt.Sprintln(os.Getpid()) {
		t.Errorf("%q, %v", text, err)
	}
	refused := func(says string) {
		t.Helper()
		if err := second.takeLock(); !errors.Is(err, ErrInUse) || !strings.Contains(err.Error(), says) {
			t.Errorf("%v; it is to say %q", err, says)
		}
	}
	refused(fmt.Sprintf("pid %d) serves", os.Getpid()))
	gone := exec.Command("true")
	if err := gone.Run(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(pid, fmt.Appendln(nil, gone.Process.Pid), 0o644); err != nil {
		t.Fatal(err)
	}
	refused("has locked " + lock)
	second.giveLock()
	if _, err := os.Stat(lock); err != nil {
		t.Errorf("who was refused has removed the lock: %v", err)
	}
	first.giveLock()
	for _, path := range []string{lock, pid} {
		if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is left: %v", path, err)
		}
	}
	if err := second.takeLock(); err != nil {
		t.Error(err)
	}
	second.giveLock()
}

// Who has the lock is told by the kernel: what a killed daemon has left may be the process id of any program.
func TestLocked(t *testing.T) {
	cfg := configOf(t, "")
	s := &supervisor{cfg: cfg, log: zerolog.Nop()}
	lock := config.LockFile(cfg.Node.Socket)
	if Locked(lock, os.Getpid()) {
		t.Error("there is no lock yet")
	}
	if err := s.takeLock(); err != nil {
		t.Fatal(err)
	}
	if !Locked(lock, os.Getpid()) || Locked(lock, os.Getppid()) {
		t.Error("the lock is not seen to be that of this process, and of no other")
	}
	for pid, want := range map[int]string{os.Getpid(): fmt.Sprintf("another rdmad (pid %d)", os.Getpid()), os.Getppid(): "has locked"} {
		if err := os.WriteFile(config.PIDFile(cfg.Node.Socket), fmt.Appendln(nil, pid), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := s.holder(lock); !strings.Contains(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	}
	s.giveLock()
	if err := os.WriteFile(lock, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if Locked(lock, os.Getpid()) {
		t.Error("the lock was given up")
	}
}

// What is no file at the paths of the lock and of the process id, or somebody's file, is neither waited for nor changed.
func TestNoFilesOfItsOwn(t *testing.T) {
	for _, of := range []func(string) string{config.LockFile, config.PIDFile} {
		for what, occupy := range map[string]func(path string) error{
			"a FIFO": func(path string) error { return unix.Mkfifo(path, 0o644) },
			"a link": func(path string) error {
				return errors.Join(os.WriteFile(path+".other", []byte("1\n"), 0o644), os.Link(path+".other", path))
			},
		} {
			cfg := configOf(t, "")
			path := of(cfg.Node.Socket)
			if err := occupy(path); err != nil {
				t.Fatal(err)
			}
			s, refused := &supervisor{cfg: cfg, log: zerolog.Nop()}, make(chan error, 1)
			go func() { refused <- s.open(nil) }()
			select {
			case err := <-refused:
				if err == nil || !strings.Contains(err.Error(), path+" is no file") {
					t.Errorf("%s at %s: %v", what, path, err)
				}
			case <-time.After(time.Minute):
				t.Fatalf("%s at %s is waited for", what, path)
			}
			if got := s.holder(config.LockFile(cfg.Node.Socket)); !strings.Contains(got, "has locked") { // which reads them
				t.Error(got)
			}
			s.close()
			if there, err := os.Lstat(path); err != nil || there.Mode().Perm() != 0o644 {
				t.Errorf("%s at %s: %v, %v", what, path, there, err)
			}
		}
	}
}

// Somebody has cleaned up the directory of a daemon, and another one serves there now. The first one, when it stops, leaves
// what is not its own.
func TestLeavesWhatIsAnothers(t *testing.T) {
	cfg := configOf(t, "")
	first, second := &supervisor{cfg: cfg, log: zerolog.Nop()}, &supervisor{cfg: cfg, log: zerolog.Nop()}
	paths := []string{config.LockFile(cfg.Node.Socket), config.PIDFile(cfg.Node.Socket), cfg.Node.Socket}
	for _, s := range []*supervisor{first, second} {
		for _, path := range paths {
			if err := os.Remove(path); err != nil && s == second {
				t.Error(err)
			}
		}
		if err := errors.Join(s.takeLock(), s.listenWorkers(cfg.Node.Socket), s.writePID()); err != nil {
			t.Fatal(err)
		}
	}
	first.close()
	for _, path := range paths {
		if _, err := os.Lstat(path); err != nil {
			t.Error(err)
		}
	}
	second.close()
	for _, path := range paths {
		if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is left: %v", path, err)
		}
	}
}
