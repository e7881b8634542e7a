package test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/rdmad/rdmad/client"
	"github.com/rdmad/rdmad/cmd/rdmad/sandbox"
	"github.com/rdmad/rdmad/internal/attach"
	"github.com/rdmad/rdmad/shm"
)

func TestUnknownTargets(t *testing.T) {
	c := newPair(t, sandbox.Settings{})
	startService(t, c, "b", "jobs")
	c.awaitService("a", "b", "jobs", "stream", 0) // the last that it registers
	conn := c.attach("a")
	for target, want := range map[string]error{
		"b/nothing/there":       client.ErrNoService,
		"b/jobs/nothing":        client.ErrNoService,
		"nothing/there":         client.ErrNoService,
		"c/jobs/transform":      client.ErrNoService,
		"a/jobs/transform":      client.ErrNoService,
		"jobs":                  client.ErrInvalid,
		"":                      client.ErrInvalid,
		"a/b/c/d":               client.ErrInvalid,
		"b/jo bs/transform":     client.ErrInvalid,
		"b//transform":          client.ErrInvalid,
		"b/jobs/":               client.ErrInvalid,
		"b/jobs/\x00":           client.ErrInvalid,
		"b/" + name64 + "/post": client.ErrInvalid,
	} {
		if _, err := conn.Call(bounded(t), target, nil); !errors.Is(err, want) {
			t.Errorf("%.20q: error %v, want %v", target, err, want)
		}
	}
	if _, err := conn.Call(bounded(t), "jobs/who", nil); err != nil {
		t.Errorf("after all these: %v", err)
	}
}

// name64 is one byte longer than names may be.
var name64 = strings.Repeat("x", attach.MaxNameLen+1)

func TestOversize(t *testing.T) {
	c := newPair(t, sandbox.Settings{})
	startService(t, c, "b", "jobs")
	c.awaitService("a", "b", "jobs", "stream", 0) // the last that it registers
	conn := c.attach("a")
	ctx := bounded(t)
	m, err := conn.Method(ctx, "b/jobs/transform")
	if err != nil {
		t.Fatal(err)
	}
	m = m.With(client.Direct())
	// The large class of the default configuration.
	const most = 511*4160 - 64
	check := func(what string, err error, size int) {
		t.Helper()
		var large *client.TooLargeError
		if !errors.As(err, &large) || !errors.Is(err, client.ErrTooLarge) || large.What != what || large.Size != size {
			t.Errorf("%s of %d bytes: %v", what, size, err)
		}
	}
	_, err = m.Call(ctx, make([]byte, most+1))
	check("request", err, most+1)
	check("request", m.Post(ctx, make([]byte, most+1)), most+1)
	_, err = m.With(client.AnswerSize(most+1)).Call(ctx, make([]byte, minSize))
	check("room for an answer", err, most+1)
	_, err = m.Reserve(ctx, math.MaxInt)
	check("request", err, math.MaxInt)
	_, err = m.With(client.AnswerSize(math.MaxInt)).Call(ctx, make([]byte, minSize))
	check("room for an answer", err, math.MaxInt)
	_, err = m.With(client.Within(math.MaxInt)).Call(ctx, make([]byte, most+1)) // means as much as there is
	check("request", err, most+1)
	// The handler makes an answer of 1,001 bytes, and there is room for 1,000.
	msg := []byte{0xe9, 0x03, 0, 0, 0}
	_, err = m.With(client.AnswerSize(1000)).Call(ctx, msg)
	check("answer", err, 0)

	msg = make([]byte, most)
	copy(msg, []byte{0, 0, 0x10, 0})
	answer, err := m.With(client.AnswerSize(1<<20)).Call(ctx, msg)
	if err != nil || !right(answer, 1<<20, digest(msg)) {
		t.Errorf("the largest request: %d bytes, %v", len(answer), err)
	}
}

func TestNoDaemon(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	attachTo := func(what string) {
		t.Helper()
		if _, err := client.Attach(bounded(t), socket); !errors.Is(err, client.ErrNotRunning) || !strings.Contains(err.Error(), socket) {
			t.Errorf("%s: %v", what, err)
		}
	}
	attachTo("no socket")
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: socket, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	attachTo("a socket that nobody listens on")

	// A daemon that was killed leaves a socket, which the next one takes over.
	c := newCluster(t, sandbox.Settings{}, "a")
	c.start("a")
	pids, err := c.nodes["a"].PIDs(bounded(t))
	if err != nil {
		t.Fatal(err)
	}
	c.nodes["a"].Process().Kill()
	eventually(t, "the core ends", func() bool { return !alive(pids.Core) })
	socket = c.socket("a")
	attachTo("a daemon that was killed")
	c.start("a")
	c.attach("a")
}

// A second daemon on the same socket must leave the first alone.
func TestSecondDaemon(t *testing.T) {
	c := newPair(t, sandbox.Settings{})
	startService(t, c, "b", "jobs")
	c.awaitService("a", "b", "jobs", "stream", 0) // the last that it registers
	tr := startTraffic(t, c.attach("a"), "b/jobs/transform")
	out, err := exec.Command(programs.rdmad, "run", "-c", filepath.Join(c.dir, "a.toml")).CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 1 {
		t.Errorf("the second daemon: %v", err)
	}
	pid := strconv.Itoa(c.nodes["a"].Process().PID())
	if !strings.Contains(string(out), c.socket("a")) || !strings.Contains(string(out), pid) {
		t.Errorf("the second daemon does not name the socket and process %s: %s", pid, out)
	}
	tr.flows(t)
	tr.undisturbed(t)
}

// Workers with another version are told both versions.
func TestWrongVersion(t *testing.T) {
	c := newCluster(t, sandbox.Settings{}, "a")
	c.start("a")
	for _, test := range []struct {
		hello attach.Hello
		want  []string
	}{
		{attach.Hello{Protocol: 99, ABI: shm.ABIVersion, Role: attach.RoleClient}, []string{"the program has protocol 99", "node a has " + strconv.Itoa(attach.Protocol)}},
		{attach.Hello{Protocol: attach.Protocol, ABI: 77 << 16, Role: attach.RoleService}, []string{"the program has ABI 77.0", fmt.Sprintf("node a has ABI %d.", shm.ABIMajor)}},
	} {
		raw, err := net.Dial("unixpacket", c.socket("a"))
		if err != nil {
			t.Fatal(err)
		}
		conn := attach.NewConn(raw.(*net.UnixConn))
		if err := conn.Send(&attach.Message{Type: attach.TypeHello, Hello: &test.hello}); err != nil {
			t.Fatal(err)
		}
		m, fds, err := conn.Recv()
		if err != nil || len(fds) > 0 || m.Fail == nil || !errors.Is(m.Fail.Err(), attach.ErrVersion) {
			t.Fatalf("%+v: %+v, %v", test.hello, m, err)
		}
		for _, w := range test.want {
			if !strings.Contains(m.Fail.Text, w) {
				t.Errorf("%+v: no %q in %q", test.hello, w, m.Fail.Text)
			}
		}
		if _, _, err := conn.Recv(); !errors.Is(err, attach.ErrClosed) {
			t.Errorf("%+v: the daemon goes on: %v", test.hello, err)
		}
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	}
}

// attachRole attaches and says how that went: the node and the domain, or the
// error.
func attachRole(ctx context.Context, args *roleArgs, say *json.Encoder) error {
	conn, err := client.Attach(ctx, args.Socket)
	switch {
	case errors.Is(err, client.ErrPermission):
		return say.Encode("permission: " + err.Error())
	case err != nil:
		return say.Encode(err.Error())
	}
	defer conn.Close()
	return say.Encode(conn.Node() + " " + conn.Domain())
}

// nobody is a user that owns nothing.
const nobody = 65534

// asNobody runs a worker process as another user.
func asNobody(cmd *exec.Cmd) {
	cmd.SysProcAttr.Credential = &syscall.Credential{Uid: nobody, Gid: nobody}
}

// needRoot skips a test that runs processes as another user.
func needRoot(t *testing.T) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("only root can run a process as another user")
	}
}

// A user that no domain admits is refused, by the daemon if not by the socket's
// permissions.
func TestForeignUser(t *testing.T) {
	needRoot(t)
	for _, test := range []struct{ mode, want string }{
		{"0666", "no domain"},
		{"0600", "permission denied"},
	} {
		c := newCluster(t, sandbox.Settings{SocketMode: test.mode}, "a")
		c.start("a")
		m := startMember(t, "attach", roleArgs{Socket: c.socket("a")}, asNobody)
		var said string
		m.hear(&said)
		m.finish()
		if !strings.HasPrefix(said, "permission: ") || !strings.Contains(said, test.want) {
			t.Errorf("socket mode %s: %s", test.mode, said)
		}
	}
}

// Members of a group are admitted, whether it is their primary group or not; a process
// without it is not.
func TestMemberOfGroup(t *testing.T) {
	needRoot(t)
	const group = 64999
	c := newCluster(t, sandbox.Settings{SocketMode: "0666", Extra: "[[domain]]\nname = \"default\"\nusers = [0]\ngroups = [64999]\n"}, "a")
	c.start("a")
	for _, test := range []struct {
		gid    uint32
		others []uint32
		want   string
	}{{group, nil, "a default"}, {nobody, []uint32{64998, group}, "a default"}, {nobody, []uint32{64998}, "groups [65534 64998]"}} {
		m := startMember(t, "attach", roleArgs{Socket: c.socket("a")}, func(cmd *exec.Cmd) {
			cmd.SysProcAttr.Credential = &syscall.Credential{Uid: nobody, Gid: test.gid, Groups: test.others}
		})
		var said string
		m.hear(&said)
		m.finish()
		if !strings.Contains(said, test.want) {
			t.Errorf("group %d and %v: %s, want %s", test.gid, test.others, said, test.want)
		}
	}
}

// A node whose port is taken says so; a sandbox then chooses another.
func TestAddressInUse(t *testing.T) {
	c := newCluster(t, sandbox.Settings{}, "a", "b")
	l, err := net.Listen("tcp", c.nodes["a"].Listen)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if err := c.nodes["a"].Start(); err != nil {
		t.Fatal(err)
	}
	if err := c.nodes["a"].Ready(bounded(t)); !errors.Is(err, sandbox.ErrAddressInUse) || !strings.Contains(err.Error(), c.nodes["a"].Listen) {
		t.Errorf("%v", err)
	}
}

// What lies where a daemon wants to have its sockets or its lock, and is none of its own, stays as it is, and
// the daemon says why it does not start.
func TestForeignFilesAreLeft(t *testing.T) {
	const content = "somebody's own\n"
	for name, test := range map[string]struct {
		put func(path string) error
		at  string
		say string
	}{
		"a file at node.socket":         {func(p string) error { return os.WriteFile(p, []byte(content), 0o600) }, "a.sock", "node.socket: "},
		"a directory at node.socket":    {func(p string) error { return os.Mkdir(p, 0o700) }, "a.sock", "node.socket: "},
		"a link at node.socket":         {func(p string) error { return os.Symlink("own", p) }, "a.sock", "node.socket: "},
		"a file at observe.socket":      {func(p string) error { return os.WriteFile(p, []byte(content), 0o600) }, "a.http", "observe.socket: "},
		"a link at the place of a lock": {func(p string) error { return os.Symlink("own", p) }, "a.sock.lock", "lock file: "},
		"a link at the place of a pid":  {func(p string) error { return os.Symlink("own", p) }, "a.sock.pid", "pid file: "},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, sandbox.Settings{}, "a")
			own, path := filepath.Join(c.dir, "own"), filepath.Join(c.dir, test.at)
			if err := os.WriteFile(own, []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := test.put(path); err != nil {
				t.Fatal(err)
			}
			before, err := os.Lstat(path)
			if err != nil {
				t.Fatal(err)
			}
			run(t, rdmad(t, "run", "-c", filepath.Join(c.dir, "a.toml"))).check(t, name, 1, test.say, path)
			if after, err := os.Lstat(path); err != nil || !os.SameFile(before, after) {
				t.Errorf("it was replaced or removed: %v", err)
			}
			for _, p := range []string{own, path} {
				if got, err := os.ReadFile(p); !before.IsDir() && (err != nil || string(got) != content) {
					t.Errorf("%s: %q, %v", p, got, err)
				}
			}
		})
	}
}
