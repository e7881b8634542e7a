package daemon

import (
	"errors"
	"net"
	"os"
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rdmad/rdmad/client"
	"github.com/rdmad/rdmad/internal/agent"
	"github.com/rdmad/rdmad/internal/attach"
	"github.com/rdmad/rdmad/internal/config"
)

// ofOthers makes the processes of a test those of others until it ends: what holds for services in the core holds for none of them.
func ofOthers(t *testing.T) {
	t.Helper()
	own := ownPID
	t.Cleanup(func() { ownPID = own })
	ownPID = -1 // no process has it
}

// served starts the next core with a socket for workers.
func served(t *testing.T, cfg *config.Config, core func() (*conductor, func())) (c *conductor, end func()) {
	t.Helper()
	c, end = core()
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: cfg.Node.Socket, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	c.open(l)
	return c, end
}

// attached attaches a process to c.
func attached(t *testing.T, cfg *config.Config, c *conductor) (*client.Conn, *worker) {
	t.Helper()
	conn, err := client.Attach(t.Context(), cfg.Node.Socket)
	if err != nil {
		t.Fatal(err)
	}
	return conn, workerOf(t, c)
}

// A process that was disconnected for its offences is kept out by every later core, also when its domain has got other memory
// since, and until it is dead.
func TestOutcastsOfOtherMemory(t *testing.T) {
	ofOthers(t)
	cfg := parsed(t, "[observe]\ncounters = \"off\"\n")
	core := successors(t, cfg)
	serve := func() (*conductor, func()) { return served(t, cfg, core) }
	first, end := serve()
	offender, w := attached(t, cfg, first)
	defer offender.Close()
	first.strikeOut(w.domain, w.view, 8, agent.BadMessage)
	<-offender.Done()
	first.rotate(w.domain, w.pid)

	other := exec.Command("sleep", "1000")
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = other.Process.Kill(); _ = other.Wait() }()
	pidfd, err := unix.PidfdOpen(other.Process.Pid, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pidfd)
	first.mu.Lock()
	(&worker{domain: first.allDomains()[0], pid: other.Process.Pid, pidfd: pidfd, struck: 8}).keepOutcast()
	first.mu.Unlock()
	end()

	for range 2 {
		c, end := serve()
		if _, err := client.Attach(t.Context(), cfg.Node.Socket); !errors.Is(err, attach.ErrPermission) {
			t.Errorf("attached again: %v", err)
		}
		c.mu.Lock()
		known := len(c.outcasts)
		c.mu.Unlock()
		if known != 2 {
			t.Errorf("%d processes are kept out", known)
		}
		end()
	}
	last, end := serve()
	_ = other.Process.Kill()
	eventually(t, "the dead one is forgotten", func() error {
		last.mu.Lock()
		defer last.mu.Unlock()
		if len(last.outcasts) != 1 || last.outcasts[os.Getpid()] != 1 {
			return errors.New("it is not")
		}
		return nil
	})
	end()
	left, end := core()
	defer end()
	left.mu.Lock()
	defer left.mu.Unlock()
	if len(left.outcasts) != 1 {
		t.Errorf("%d processes are kept out by the next core", len(left.outcasts))
	}
}

// So it is if its domain gets other memory in the moment before it is disconnected: nothing is kept of it as a worker then.
func TestOutcastOfMemoryThatWasReplacedJustNow(t *testing.T) {
	ofOthers(t)
	cfg := parsed(t, "[observe]\ncounters = \"off\"\n")
	core := successors(t, cfg)
	first, end := served(t, cfg, core)
	offender, w := attached(t, cfg, first)
	defer offender.Close()
	first.mu.Lock()
	first.keepNoMore(keyOf(kindWorker, w.domain, w.id))
	w.domain.retired = true // as replace does
	first.mu.Unlock()
	first.strikeOut(w.domain, w.view, 8, agent.BadMessage)
	<-offender.Done()
	first.mu.Lock()
	w.domain.retired = false
	first.mu.Unlock()
	end()

	second, end := core()
	defer end()
	second.mu.Lock()
	defer second.mu.Unlock()
	if second.outcasts[os.Getpid()] != 1 {
		t.Errorf("kept out: %v", second.outcasts)
	}
}
