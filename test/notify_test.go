package test

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rdmad/rdmad/client"
	"github.com/rdmad/rdmad/cmd/rdmad/sandbox"
	"github.com/rdmad/rdmad/shm"
)

// listener is a service manager that only listens.
type listener struct {
	socket string
	conn   *net.UnixConn
	read   chan struct{}

	mu   sync.Mutex
	said []string // KEY=VALUE lines, in order
}

func newListener(t *testing.T, dir string) *listener {
	t.Helper()
	l := &listener{socket: filepath.Join(dir, "listen"), read: make(chan struct{})}
	var err error
	if l.conn, err = net.ListenUnixgram("unixgram", &net.UnixAddr{Name: l.socket, Net: "unixgram"}); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(l.read)
		buf := make([]byte, 4096)
		for {
			n, fds, err := shm.RecvFDs(l.conn, buf)
			if err != nil {
				return
			}
			shm.CloseFDs(fds)
			l.mu.Lock()
			l.said = append(l.said, strings.Split(string(buf[:n]), "\n")...)
			l.mu.Unlock()
		}
	}()
	t.Cleanup(func() {
		_ = l.conn.Close()
		<-l.read
	})
	return l
}

// count returns how often a line with a prefix was said.
func (l *listener) count(prefix string) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, line := range l.said {
		if strings.HasPrefix(line, prefix) {
			n++
		}
	}
	return n
}

// service starts a node as a service manager does, with further variables and passed
// descriptors.
func (l *listener) service(t *testing.T, config string, files []*os.File, env ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("sh", "-c", `LISTEN_PID=$$ WATCHDOG_PID=$$ exec "$0" "$@"`, programs.rdmad, "run", "-c", config)
	cmd.Env = append(append(os.Environ(), "NOTIFY_SOCKET="+l.socket, fmt.Sprint("LISTEN_FDS=", len(files))), env...)
	cmd.ExtraFiles = files
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	return cmd
}

// A service manager hears when the node is ready, reloads and stops, in the order and the
// form that it wants.
func TestNotify(t *testing.T) {
	c := newCluster(t, sandbox.Settings{Extra: "[log]\nlevel = \"error\"\n"}, "a")
	l := newListener(t, c.dir)
	cmd := l.service(t, filepath.Join(c.dir, "a.toml"), nil)
	eventually(t, "the node is ready", func() bool { return l.count("READY=1") == 1 })
	conn, err := client.Attach(bounded(t), c.socket("a"))
	if err != nil {
		t.Fatalf("ready, and %v", err)
	}
	if err := conn.Close(); err != nil {
		t.Fatal(err)
	}
	if l.count("WATCHDOG=") != 0 || l.count("STATUS=Node a serves") != 1 {
		t.Errorf("said: %q", l.said)
	}
	if err := cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the node has reloaded", func() bool { return l.count("READY=1") == 2 })
	l.mu.Lock()
	now := 0
	for i, line := range l.said {
		if line == "RELOADING=1" {
			value, _ := strings.CutPrefix(l.said[i+1], "MONOTONIC_USEC=")
			if now, err = strconv.Atoi(value); err != nil {
				t.Errorf("after RELOADING=1: %q", l.said[i+1])
			}
		}
	}
	l.mu.Unlock()
	if age := shm.Nanotime()/1000 - int64(now); age < 0 || age > limit.Microseconds() {
		t.Errorf("the reload was %d us ago", age)
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	eventually(t, "it has said that it stops", func() bool { return l.count("STOPPING=1") == 1 && l.count("EXTEND_TIMEOUT_USEC=") == 1 })
}

// The watchdog is fed while the core makes progress, and not while it is stopped; a core
// that comes after one that has died is watched, too.
func TestWatchdog(t *testing.T) {
	c := newCluster(t, sandbox.Settings{Extra: "[log]\nlevel = \"error\"\n"}, "a")
	l := newListener(t, c.dir)
	const often = 400 * time.Millisecond
	cmd := l.service(t, filepath.Join(c.dir, "a.toml"), nil, fmt.Sprint("WATCHDOG_USEC=", often.Microseconds()))
	fed := func(what string) {
		t.Helper()
		before := l.count("WATCHDOG=1")
		eventually(t, what, func() bool { return l.count("WATCHDOG=1") >= before+3 })
	}
	fed("the watchdog is fed")
	core := c.status("a").PIDs.Core
	resume := halt(t, core)
	eventually(t, "the watchdog is not fed", func() bool {
		before := l.count("WATCHDOG=1")
		time.Sleep(2 * often) // what was on its way has come
		return l.count("WATCHDOG=1") == before
	})
	resume()
	fed("the watchdog is fed again")
	kill(t, core)
	fed("the watchdog is fed by another core")
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}

// A service manager that does not read does not keep the node from serving.
func TestEventsOfNotify(t *testing.T) {
	c := newCluster(t, sandbox.Settings{}, "a")
	l := newListener(t, c.dir)
	_ = l.conn.Close()
	<-l.read
	again, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: l.socket + "2", Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	l.socket += "2"
	cmd := l.service(t, filepath.Join(c.dir, "a.toml"), nil)
	eventually(t, "the node serves", func() bool { _, err := askStatus(t, c.socket("a")); return err == nil })
	_ = again.Close()
	if err := cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	c.counts("a", "manager-deaf")
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}

// A node takes the sockets of a socket unit, leaves them where they are when it ends, and
// refuses those that are not where its configuration says.
func TestSocketActivation(t *testing.T) {
	c := newCluster(t, sandbox.Settings{Extra: "[log]\nlevel = \"error\"\n"}, "a", "b")
	listen := func(path string) *os.File {
		t.Helper()
		s, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: path, Net: "unixpacket"})
		if err != nil {
			t.Fatal(err)
		}
		s.SetUnlinkOnClose(false)
		defer s.Close()
		f, err := s.File()
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	workers := listen(c.socket("a"))
	defer workers.Close()
	tcp, err := net.Listen("tcp", c.nodes["a"].Listen)
	if err != nil {
		t.Fatal(err)
	}
	defer tcp.Close()
	peers, err := tcp.(*net.TCPListener).File()
	if err != nil {
		t.Fatal(err)
	}
	defer peers.Close()
	l := newListener(t, c.dir)
	config := filepath.Join(c.dir, "a.toml")
	names := "LISTEN_FDNAMES=rdmad.socket:rdmad.socket"
	c.start("b")
	for range 2 {
		cmd := l.service(t, config, []*os.File{workers, peers}, names)
		// It waits in the socket until the node accepts it.
		conn, err := client.Attach(bounded(t), c.socket("a"))
		if err != nil {
			t.Fatal(err)
		}
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
		eventually(t, "the peer has connected", func() bool {
			s := c.status("a")
			return len(s.Peers) == 1 && s.Peers[0].State == "connected"
		})
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
		if !exists(c.socket("a")) {
			t.Fatal("the socket unit's socket was removed")
		}
	}
	elsewhere := listen(filepath.Join(c.dir, "elsewhere"))
	defer elsewhere.Close()
	cmd := l.service(t, config, []*os.File{elsewhere}, "LISTEN_FDNAMES=rdmad.socket")
	if err := cmd.Wait(); err == nil || cmd.ProcessState.ExitCode() != 1 {
		t.Errorf("a socket elsewhere: %v", err)
	}
	other, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	port, err := other.(*net.TCPListener).File()
	if err != nil {
		t.Fatal(err)
	}
	defer port.Close()
	cmd = l.service(t, config, []*os.File{workers, port}, names)
	if err := cmd.Wait(); err == nil || cmd.ProcessState.ExitCode() != 1 {
		t.Errorf("a port that is not node.listen's: %v", err)
	}
}

// A service manager that is not there, whose variable is left over, does not keep the node from serving; one that has passed
// something is missed.
func TestNoManager(t *testing.T) {
	c := newCluster(t, sandbox.Settings{}, "a")
	l := newListener(t, c.dir)
	config := filepath.Join(c.dir, "a.toml")
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	none := l.socket + ".none"
	refuses := l.socket + ".refuses"
	left, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: refuses, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	if err := left.Close(); err != nil {
		t.Fatal(err)
	}
	for _, l.socket = range []string{none, refuses} {
		cmd := l.service(t, config, nil)
		eventually(t, "the node serves", func() bool { _, err := askStatus(t, c.socket("a")); return err == nil })
		c.counts("a", "manager-deaf")
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
		cmd = l.service(t, config, []*os.File{null}, "LISTEN_FDNAMES=kept#0")
		if err := cmd.Wait(); err == nil || cmd.ProcessState.ExitCode() != 1 {
			t.Errorf("without the manager that keeps something: %v", err)
		}
	}
}
