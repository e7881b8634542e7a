package test

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rdmad/rdmad/client"
	"github.com/rdmad/rdmad/cmd/rdmad/sandbox"
	"github.com/rdmad/rdmad/internal/attach"
	"github.com/rdmad/rdmad/shm"
	"github.com/rdmad/rdmad/slots"
)

// manager is a service manager that keeps descriptors, as systemd does.
type manager struct {
	t      *testing.T
	socket string
	conn   *net.UnixConn
	read   chan struct{} // closed when nobody reads any more

	mu    sync.Mutex
	kept  map[string]int
	ready int
	died  int // how often it was told that a core died
}

func newManager(t *testing.T, dir string) *manager {
	t.Helper()
	m := &manager{t: t, socket: filepath.Join(dir, "notify"), kept: map[string]int{}, read: make(chan struct{})}
	var err error
	if m.conn, err = net.ListenUnixgram("unixgram", &net.UnixAddr{Name: m.socket, Net: "unixgram"}); err != nil {
		t.Fatal(err)
	}
	go m.listen()
	t.Cleanup(func() {
		_ = m.conn.Close()
		<-m.read
		for _, fd := range m.kept {
			_ = unix.Close(fd)
		}
	})
	return m
}

// listen does what services say.
func (m *manager) listen() {
	defer close(m.read)
	buf := make([]byte, 4096)
	for {
		n, fds, err := shm.RecvFDs(m.conn, buf)
		if err != nil {
			return
		}
		said := map[string]string{}
		for line := range strings.Lines(string(buf[:n])) {
			key, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "=")
			said[key] = value
		}
		m.mu.Lock()
		name := said["FDNAME"]
		old, known := m.kept[name]
		switch {
		case said["FDSTORE"] == "1" && len(fds) == 1 && name != "" && !known && !m.has(fds[0]):
			m.kept[name], fds = fds[0], nil
		case said["FDSTOREREMOVE"] == "1" && known:
			_ = unix.Close(old)
			delete(m.kept, name)
		case said["READY"] == "1":
			m.ready++
		case strings.Contains(said["STATUS"], "died"):
			m.died++
		}
		m.mu.Unlock()
		shm.CloseFDs(fds)
	}
}

// has reports whether the open file of a descriptor is kept already, under whatever name: a descriptor of the same one is
// dropped. m.mu is held.
func (m *manager) has(fd int) bool {
	const file = 0 // KCMP_FILE
	self := uintptr(os.Getpid())
	for _, kept := range m.kept {
		// A kernel without the call does not know.
		if order, _, errno := unix.Syscall6(unix.SYS_KCMP, self, self, file, uintptr(kept), uintptr(fd), 0); errno == 0 && order == 0 {
			return true
		}
	}
	return false
}

// names returns the names of what is kept.
func (m *manager) names() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Sorted(maps.Keys(m.kept))
}

// said waits until supervisors have said that they run, so often: one may do so later than it answers, and must not be killed before.
func (m *manager) said(times int) {
	m.t.Helper()
	eventually(m.t, "the supervisor has said that it runs", func() bool {
		m.mu.Lock()
		defer m.mu.Unlock()
		return m.ready >= times
	})
}

// run starts a service with what is kept.
func (m *manager) run(args ...string) *exec.Cmd {
	m.t.Helper()
	cmd := exec.Command("sh", append([]string{"-c", `LISTEN_PID=$$ exec "$0" "$@"`}, args...)...)
	var names []string
	m.mu.Lock()
	for name, fd := range m.kept {
		again, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			m.t.Fatal(err)
		}
		names = append(names, name)
		f := os.NewFile(uintptr(again), name)
		defer f.Close()
		cmd.ExtraFiles = append(cmd.ExtraFiles, f)
	}
	m.mu.Unlock()
	cmd.Env = append(os.Environ(), "NOTIFY_SOCKET="+m.socket, fmt.Sprint("LISTEN_FDS=", len(names)), "LISTEN_FDNAMES="+strings.Join(names, ":"))
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(func() { _ = cmd.Process.Kill() })
	return cmd
}

// A supervisor that is killed, and with it its core, goes on where it was if the service
// manager keeps its descriptors: workers stay attached.
func TestServiceManagerKeepsDescriptors(t *testing.T) {
	c := newCluster(t, sandbox.Settings{Extra: "[log]\nlevel = \"error\"\n"}, "a")
	m := newManager(t, c.dir)
	args := []string{programs.rdmad, "run", "-c", filepath.Join(c.dir, "a.toml")}
	first := m.run(args...)
	eventually(t, "the node runs", func() bool {
		conn, err := client.Attach(bounded(t), c.socket("a"))
		return err == nil && conn.Close() == nil
	})
	service := startService(t, c, "a", "jobs")
	conn := c.attach("a")
	works := func(when string) {
		t.Helper()
		if _, err := conn.Call(bounded(t), "a/jobs/who", nil); err != nil {
			t.Fatalf("%s: %v", when, err)
		}
	}
	works("at first")
	region, err := conn.AllocRegion(bounded(t), 1<<16)
	if err != nil {
		t.Fatal(err)
	}
	before, ids := c.status("a"), methodIDs(c, "a")
	m.said(1)
	for n := range 3 {
		if err := first.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = first.Wait()
		first = m.run(args...)
		eventually(t, "another supervisor runs", func() bool {
			s, err := askStatus(t, c.socket("a"))
			return err == nil && s.PIDs.Supervisor == first.Process.Pid
		})
		works(fmt.Sprint("supervisor ", n))
		m.said(n + 2)
		if s := c.status("a"); s.Incarnation != before.Incarnation || methodIDs(c, "a") != ids {
			t.Errorf("incarnation %s, was %s; methods %s, were %s", s.Incarnation, before.Incarnation, methodIDs(c, "a"), ids)
		}
	}
	if err := region.Free(); err != nil {
		t.Error(err)
	}
	var counted tally
	_ = service.in.Close()
	service.hear(&counted)
	service.finish()
	if err := first.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := first.Wait(); err != nil {
		t.Errorf("the last supervisor: %v", err)
	}
	eventually(t, "nothing is kept", func() bool { return len(m.names()) == 0 })
	<-conn.Done()
}

// What is kept outlives a core that cannot start, as after a mistake in the configuration or while
// a device is away.
func TestServiceManagerKeepsWhatACoreCannotUse(t *testing.T) {
	c := newCluster(t, sandbox.Settings{Extra: "[log]\nlevel = \"error\"\n"}, "a")
	none := newCluster(t, sandbox.Settings{Fabric: "verbs", Verbs: map[string]string{"device": "no_such_device"}, Extra: "[log]\nlevel = \"error\"\n"}, "a", "b")
	m := newManager(t, c.dir)
	file := filepath.Join(c.dir, "a.toml")
	good, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	bad, err := os.ReadFile(filepath.Join(none.dir, "a.toml"))
	if err != nil {
		t.Fatal(err)
	}
	bad = []byte(strings.ReplaceAll(string(bad), none.dir, c.dir))
	args := []string{programs.rdmad, "run", "-c", file}
	now := m.run(args...)
	eventually(t, "the node runs", func() bool {
		conn, err := client.Attach(bounded(t), c.socket("a"))
		return err == nil && conn.Close() == nil
	})
	service := startService(t, c, "a", "jobs")
	conn := c.attach("a")
	if _, err := conn.Call(bounded(t), "a/jobs/who", nil); err != nil {
		t.Fatal(err)
	}
	again := func(text []byte) {
		t.Helper()
		if err := now.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = now.Wait()
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
		now = m.run(args...)
	}
	again(bad)
	eventually(t, "the core cannot start", func() bool {
		m.mu.Lock()
		defer m.mu.Unlock()
		return m.died >= 2
	})
	again(good)
	if _, err := conn.Call(bounded(t), "a/jobs/who", nil); err != nil {
		t.Error(err)
	}
	var counted tally
	_ = service.in.Close()
	service.hear(&counted)
	service.finish()
	if err := now.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := now.Wait(); err != nil {
		t.Errorf("the last supervisor: %v", err)
	}
	<-conn.Done()
}

// Who was disconnected for offences stays out also if the supervisor dies after the domain has got other memory, when what was kept of
// the worker is gone.
func TestServiceManagerKeepsWhoIsKeptOut(t *testing.T) {
	c := newCluster(t, sandbox.Settings{Extra: "[log]\nlevel = \"error\"\n\n[limits]\nstrikes = 8\n"}, "a")
	m := newManager(t, c.dir)
	args := []string{programs.rdmad, "run", "-c", filepath.Join(c.dir, "a.toml")}
	now := m.run(args...)
	eventually(t, "the node runs", func() bool {
		conn, err := client.Attach(bounded(t), c.socket("a"))
		return err == nil && conn.Close() == nil
	})
	s, err := attach.Open(bounded(t), c.socket("a"), attach.Hello{Role: attach.RoleService, Name: "liar"}, attach.Events{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	key := fmt.Sprintf("worker/%s/%d#", s.Welcome.Domain, s.Welcome.ID) // not that of the client, which may still be kept
	worker := func() bool {
		return slices.ContainsFunc(m.names(), func(name string) bool { return strings.HasPrefix(name, key) })
	}
	eventually(t, "the worker is kept", worker)
	for i := range 8 {
		s.Rings.Up.Push(slots.MakeHint(slots.MaxLanes-1, i, uint64(i))) // of a lane that it has not been given
	}
	s.Bells.MarkWorker(s.Welcome.ID)
	s.Bell.Ring()
	eventually(t, "the domain has other memory", func() bool { return !worker() })
	m.said(1)
	if err := now.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = now.Wait()
	now = m.run(args...)
	m.said(2) // until then the last one's core may answer
	eventually(t, "it is refused", func() bool {
		conn, err := client.Attach(bounded(t), c.socket("a"))
		if err == nil {
			t.Error("it is attached again")
			_ = conn.Close()
		}
		return err == nil || errors.Is(err, client.ErrPermission)
	})
	if err := now.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := now.Wait(); err != nil {
		t.Errorf("the last supervisor: %v", err)
	}
}
