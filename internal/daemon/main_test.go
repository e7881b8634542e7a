package daemon_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"github.com/rdmad/rdmad/client"
	"github.com/rdmad/rdmad/internal/config"
	"github.com/rdmad/rdmad/internal/daemon"
	"github.com/rdmad/rdmad/server"
)

// The test binary is also the core that the supervisors under test start.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "core" {
		if err := daemon.Core(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// node is a supervisor in this process with a core of its own.
type node struct {
	name, socket, listen string
	stop                 context.CancelFunc
	done                 chan error
}

func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// pair describes two nodes that know each other; extra is appended to both configs.
func pair(t *testing.T, extra string) (a, b *node) {
	t.Helper()
	dir := t.TempDir()
	a = &node{name: "a", socket: filepath.Join(dir, "a.sock"), listen: freeAddress(t)}
	b = &node{name: "b", socket: filepath.Join(dir, "b.sock"), listen: freeAddress(t)}
	a.start(t, b, extra)
	b.start(t, a, extra)
	return a, b
}

func (n *node) start(t *testing.T, peer *node, extra string) {
	t.Helper()
	data := fmt.Sprintf("[node]\nname=%q\nsocket=%q\nlisten=%q\ndrain_timeout=\"5s\"\n[fabric]\nlisten=\"127.0.0.1:0\"\n[log]\nlevel=%q\n[[peer]]\nname=%q\naddress=%q\n%s",
		n.name, n.socket, n.listen, logLevel(), peer.name, peer.listen, extra)
	cfg, err := config.Parse(n.name+".toml", []byte(data))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	n.stop, n.done = stop, make(chan error, 1)
	log := zerolog.New(os.Stderr).Level(zerolog.ErrorLevel)
	done := n.done
	go func() { done <- daemon.Supervise(ctx, cfg, n.name+".toml", []byte(data), log) }()
	t.Cleanup(func() { n.halt(t) })
}

// halt stops the node and checks that it drained and left nothing behind.
func (n *node) halt(t *testing.T) {
	t.Helper()
	if n.stop == nil {
		return
	}
	n.stop()
	n.stop = nil
	if err := <-n.done; err != nil {
		t.Errorf("node %s: %v", n.name, err)
	}
	for _, f := range []string{n.socket, n.socket + ".lock"} {
		if _, err := os.Stat(f); err == nil {
			t.Errorf("node %s left %s behind", n.name, f)
		}
	}
}

func logLevel() string {
	if testing.Verbose() {
		return "debug"
	}
	return "error"
}

// eventually tries f until it succeeds, for at most ten seconds.
func eventually(t *testing.T, what string, f func() error) {
	t.Helper()
	var err error
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); {
		if err = f(); err == nil {
			return
		}
		time.Sleep(5 * time.Millisecond) // between looks at a condition with a deadline
	}
	t.Fatalf("%s: %v", what, err)
}

func attachClient(t *testing.T, n *node) *client.Conn {
	t.Helper()
	var c *client.Conn
	eventually(t, "attach to "+n.name, func() (err error) {
		c, err = client.Attach(t.Context(), n.socket)
		return err
	})
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// serve answers text/upper and text/fail on n until the test ends.
func serve(t *testing.T, n *node) *server.Server {
	t.Helper()
	var s *server.Server
	eventually(t, "attach to "+n.name, func() (err error) {
		s, err = server.Attach(t.Context(), n.socket)
		return err
	})
	for name, h := range map[string]server.Handler{
		"upper": func(c *server.Call) error { return c.Reply([]byte(strings.ToUpper(string(c.Request())))) },
		"fail":  func(*server.Call) error { return fmt.Errorf("no luck") },
		"panic": func(*server.Call) error { panic("oops") },
	} {
		if err := s.Handle("text", name, h); err != nil {
			t.Fatal(err)
		}
	}
	done := make(chan error, 1)
	go func() { done <- s.Serve(context.Background()) }()
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		<-done
	})
	return s
}
