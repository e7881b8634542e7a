package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rdmad/rdmad/cmd/rdmad/sandbox"
	"github.com/rdmad/rdmad/internal/attach"
)

// The environment of the test binary when it is started as something else.
const (
	// asCommand makes it rdmad.
	asCommand = "RDMAD_TEST_COMMAND"
	// asMounter makes it run rdmad with the directory mounted as it says: KIND:DIR.
	asMounter = "RDMAD_TEST_MOUNT"
)

// The kinds of mounts.
const (
	mountReadOnly = "read-only"
	mountFull     = "full"
)

func TestMain(m *testing.M) {
	if how := os.Getenv(asMounter); how != "" {
		os.Exit(runMounter(how))
	}
	if os.Getenv(asCommand) != "" {
		os.Exit(execute())
	}
	os.Exit(m.Run())
}

// patience bounds a command.
const patience = 3 * time.Minute

// nobody is the user that may do nothing.
const nobody = 65534

// fixture is what commands are tried with.
type fixture struct {
	t *testing.T
	// program is the command, which everybody may run; dir a directory whose path is
	// short enough for sockets, config a good configuration, with its socket in files,
	// and bad another.
	program, dir, files, config, bad string
	// socket is that of a daemon, after startDaemon.
	socket string
	fakes  int
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	dir, err := os.MkdirTemp("", "rdmad-bad-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	f := &fixture{t: t, dir: dir, program: filepath.Join(dir, "rdmad"), files: filepath.Join(dir, "files"),
		config: filepath.Join(dir, "good.toml"), bad: filepath.Join(dir, "bad.toml")}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	err = errors.Join(os.Chmod(dir, 0o755), os.Mkdir(f.files, 0o755), copyFile(f.program, self),
		os.WriteFile(f.config, []byte("[node]\nname = \"a\"\nsocket = \""+f.files+"/a.sock\"\n"), 0o644),
		os.WriteFile(f.bad, []byte("[agent]\ncount = 0\n"), 0o644))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// copyFile copies a program: a link would keep its mode, which may be only for its owner.
func copyFile(to, from string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

// result is how a command ended.
type result struct {
	t              *testing.T
	line           string
	Status         int
	Stdout, Stderr string `json:",omitempty"`
	stderr         string
	// left are the files that it has left, if it was mounted.
	Left, left []string
}

// oneLine checks that the command has failed with a status and has said so, with the given
// words, in one line of standard error.
func (r *result) oneLine(status int, words ...string) {
	r.t.Helper()
	if r.Status != status || strings.Count(r.stderr, "\n") != 1 || strings.TrimSpace(r.stderr) == "" {
		r.t.Errorf("%s: status %d, want %d and one line:\n%s%s", r.line, r.Status, status, r.Stdout, r.stderr)
	}
	for _, w := range words {
		if !strings.Contains(r.stderr, w) {
			r.t.Errorf("%s: no %q in: %s", r.line, w, r.stderr)
		}
	}
}

// command makes a command of a path of the tree and arguments.
func (f *fixture) command(ctx context.Context, path, args string) *exec.Cmd {
	args = strings.NewReplacer("DIR", f.files, "CONFIG", f.config, "BAD", f.bad).Replace(args)
	cmd := exec.CommandContext(ctx, f.program, append(strings.Fields(path)[1:], strings.Fields(args)...)...)
	cmd.Env = append(os.Environ(), asCommand+"=1", "RDMAD_SOCKET=", "TMPDIR="+f.files)
	cmd.Dir = f.dir
	cmd.WaitDelay = patience
	cmd.SysProcAttr = &syscall.SysProcAttr{}
	return cmd
}

// finish runs a command to its end. Its standard output is kept unless it has one.
func (f *fixture) finish(cmd *exec.Cmd) *result {
	f.t.Helper()
	var out, errOut strings.Builder
	if cmd.Stdout == nil {
		cmd.Stdout = &out
	}
	cmd.Stderr = &errOut
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		f.t.Fatalf("%v: %v", cmd.Args, err)
	}
	return &result{t: f.t, line: strings.Join(cmd.Args, " "), Status: cmd.ProcessState.ExitCode(), Stdout: out.String(), stderr: errOut.String()}
}

func (f *fixture) run(path, args string) *result {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(f.t.Context(), patience)
	defer cancel()
	return f.finish(f.command(ctx, path, args))
}

// runAs is run as another user.
func (f *fixture) runAs(user uint32, path, args string) *result {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(f.t.Context(), patience)
	defer cancel()
	cmd := f.command(ctx, path, args)
	cmd.SysProcAttr.Credential = &syscall.Credential{Uid: user, Gid: user}
	return f.finish(cmd)
}

// runTo is run with its standard output to a file.
func (f *fixture) runTo(file, path, args string) *result {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(f.t.Context(), patience)
	defer cancel()
	out, err := os.OpenFile(file, os.O_WRONLY, 0)
	if err != nil {
		f.t.Fatal(err)
	}
	defer out.Close()
	cmd := f.command(ctx, path, args)
	cmd.Stdout = out
	return f.finish(cmd)
}

// runMounted is run with the directory of files mounted as the kind says; nil where that
// is not permitted.
func (f *fixture) runMounted(kind, path, args string) *result {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(f.t.Context(), patience)
	defer cancel()
	cmd := f.command(ctx, path, args)
	cmd.Env = append(cmd.Env, asMounter+"="+kind+":"+f.files)
	cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWNS
	if uid := os.Getuid(); uid != 0 {
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: uid, Size: 1}}
	}
	out, err := cmd.Output()
	if err != nil {
		f.t.Logf("%s with a %s directory: not tried: %v", path, kind, err)
		return nil
	}
	r := &result{t: f.t, line: strings.Join(cmd.Args, " ")}
	if err := json.Unmarshal(out, r); err != nil {
		f.t.Fatalf("%v in:\n%s", err, out)
	}
	r.stderr, r.left = r.Stderr, r.Left
	return r
}

// runMounter is the process that runs a command with a directory mounted: it has a mount
// namespace of its own.
func runMounter(how string) int {
	kind, dir, _ := strings.Cut(how, ":")
	if err := mount(kind, dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	cmd := exec.Command(os.Args[0], os.Args[1:]...)
	cmd.Env = slices.DeleteFunc(os.Environ(), func(s string) bool { return strings.HasPrefix(s, asMounter+"=") })
	var out, errOut strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &errOut
	_ = cmd.Run() // its status is told
	r := result{Status: cmd.ProcessState.ExitCode(), Stdout: out.String(), Stderr: errOut.String()}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && d.Name() != filler {
			r.Left = append(r.Left, path)
		}
		return err
	})
	if err == nil {
		err = json.NewEncoder(os.Stdout).Encode(r)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// filler fills a file system.
const filler = "filler"

// mount mounts a file system on dir.
func mount(kind, dir string) error {
	if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("mount: %w", err)
	}
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=64k"); err != nil {
		return fmt.Errorf("mount: %w", err)
	}
	if kind == mountReadOnly {
		return syscall.Mount("tmpfs", dir, "tmpfs", syscall.MS_REMOUNT|syscall.MS_RDONLY, "")
	}
	err := os.WriteFile(filepath.Join(dir, filler), make([]byte, 1<<20), 0o600)
	if !errors.Is(err, syscall.ENOSPC) {
		return fmt.Errorf("filling it: %w", err)
	}
	return nil
}

// startDaemon starts two nodes with an echo service.
func (f *fixture) startDaemon() {
	f.t.Helper()
	f.t.Setenv(asCommand, "1")
	f.t.Setenv("TMPDIR", f.dir)
	s, err := sandbox.Start(f.t.Context(), sandbox.Options{Program: f.program, Settings: sandbox.Settings{Fabric: "tcp"}})
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() {
		if err := s.Close(); err != nil {
			f.t.Error(err)
		}
	})
	f.socket = filepath.Join(s.Dir, "a.sock")
}

// stale returns a socket on which nobody listens any more.
func (f *fixture) stale() string {
	f.t.Helper()
	path := filepath.Join(f.dir, "stale.sock")
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err != nil {
		f.t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	if err := l.Close(); err != nil {
		f.t.Fatal(err)
	}
	return path
}

// regular returns a file that is no socket.
func (f *fixture) regular() string { return f.config }

// locked returns a socket in a directory that only its owner may enter.
func (f *fixture) locked() string {
	f.t.Helper()
	dir := filepath.Join(f.dir, "locked")
	if err := os.Mkdir(dir, 0o700); err != nil {
		f.t.Fatal(err)
	}
	return filepath.Join(dir, "a.sock")
}

// The ways in which a fake daemon answers the first message.
var (
	failVersion = func(c *attach.Conn) {
		_ = c.Send(&attach.Message{Type: attach.TypeFail, Fail: &attach.Fail{Code: "version", Text: "incompatible version: protocol 1, this daemon speaks 99"}})
	}
	otherABI = func(c *attach.Conn) {
		_ = c.Send(&attach.Message{Type: attach.TypeWelcome, Welcome: &attach.Welcome{ABI: 99 << 16, Node: "x", ID: 1}})
	}
	failEscapes = func(c *attach.Conn) {
		_ = c.Send(&attach.Message{Type: attach.TypeFail, Fail: &attach.Fail{Code: "version", Text: "\x1b]0;owned\a\x1b[2J\rall is well"}})
	}
	noMessage = func(c *attach.Conn) { _, _ = c.Socket().Write([]byte("SSH-2.0-nonsense")) }
	hangsUp   = func(*attach.Conn) {}
)

// fake is a daemon that answers each hello so, and hangs up. It returns its socket.
func (f *fixture) fake(answer func(*attach.Conn)) string {
	f.t.Helper()
	f.fakes++
	path := filepath.Join(f.dir, fmt.Sprintf("fake%d.sock", f.fakes))
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err != nil {
		f.t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			sock, err := l.AcceptUnix()
			if err != nil {
				return
			}
			c := attach.NewConn(sock)
			if _, _, err := c.Recv(); err == nil {
				answer(c)
			}
			_ = c.Close()
		}
	}()
	f.t.Cleanup(func() {
		_ = l.Close()
		<-done
	})
	return path
}
