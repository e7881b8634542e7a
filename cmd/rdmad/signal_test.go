package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/rdmad/rdmad/internal/attach"
	"github.com/rdmad/rdmad/shm"
)

// impostor answers on a socket as a daemon does whose supervisor is the given process.
func impostor(t *testing.T, supervisor int) (socket string) {
	t.Helper()
	socket = filepath.Join(t.TempDir(), "s")
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: socket, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	answer := func(c *attach.Conn) {
		defer c.Close()
		for {
			m, _, err := c.Recv()
			if err != nil {
				return
			}
			switch m.Type {
			case attach.TypeHello:
				_ = c.Send(&attach.Message{Type: attach.TypeWelcome, Welcome: &attach.Welcome{ABI: shm.ABIVersion, Node: "n", Domain: "d"}})
			case attach.TypeStatus:
				_ = c.Send(&attach.Message{Type: attach.TypeStatusIs, Seq: m.Seq, StatusJSON: json.RawMessage(fmt.Sprintf(`{"node":"n","pids":{"supervisor":%d},"config":{}}`, supervisor))})
			}
		}
	}
	go func() {
		for {
			sock, err := l.AcceptUnix()
			if err != nil {
				return
			}
			go answer(attach.NewConn(sock))
		}
	}()
	return socket
}

// command is the test's program as rdmad.
func command(args ...string) *exec.Cmd {
	c := exec.Command(os.Args[0], args...)
	c.Env = append(os.Environ(), asCommand+"=1")
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return c
}

// Whatever the process behind a socket says of itself, nobody is signalled but who listens there.
func TestSignalsOnlyTheDaemon(t *testing.T) {
	stranger := exec.Command("sleep", "600")
	if err := stranger.Start(); err != nil {
		t.Fatal(err)
	}
	for _, what := range []string{"reload", "upgrade"} {
		for _, pid := range []int{stranger.Process.Pid, 1, 0, -1, -stranger.Process.Pid} {
			out, err := command(what, "--socket", impostor(t, pid), "--timeout", "10s").CombinedOutput()
			if exit, ok := err.(*exec.ExitError); !ok || exit.ExitCode() != exitFailure || !strings.Contains(string(out), fmt.Sprintf("its supervisor is process %d", pid)) {
				t.Errorf("%s of process %d: %v, %s", what, pid, err, out)
			}
		}
	}
	if err := stranger.Process.Kill(); err != nil {
		t.Error(err)
	}
	_ = stranger.Wait()
	if s, ok := stranger.ProcessState.Sys().(syscall.WaitStatus); !ok || s.Signal() != syscall.SIGKILL {
		t.Errorf("a process that has nothing to do with it: %v", stranger.ProcessState)
	}
}

// A command that waits for its standard input ends with the first signal.
func TestSignalWhileReading(t *testing.T) {
	c := command("call", "x/y", "-", "--socket", "/nonexistent")
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	errs, err := c.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	// It takes what is written, so it is reading then.
	if _, err := in.Write(make([]byte, 1<<20)); err != nil {
		t.Fatal(err)
	}
	if err := c.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	text, _ := bufio.NewReader(errs).ReadString('\n')
	if err := c.Wait(); err == nil || c.ProcessState.ExitCode() != exitFailure || !strings.Contains(text, "reading the payload") {
		t.Errorf("%v, %q", err, text)
	}
}

// Times that are none are wrong command lines, and not daemons that do not answer.
func TestTimeouts(t *testing.T) {
	for _, args := range []string{"call x/y", "ping b", "reload", "upgrade", "trace"} {
		for _, d := range []string{"0", "-1s", "soon"} {
			out, err := command(append(strings.Fields(args), "--timeout", d)...).CombinedOutput()
			if exit, ok := err.(*exec.ExitError); !ok || exit.ExitCode() != exitUsage {
				t.Errorf("%s --timeout %s: %v, %s", args, d, err, out)
			}
		}
	}
}
