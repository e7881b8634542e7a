package node_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/rdmad/rdmad/client"
	"github.com/rdmad/rdmad/internal/daemontest"
	"github.com/rdmad/rdmad/server"
	"github.com/rdmad/rdmad/server/node"
)

// refuseEnv makes the cores of a test fail to register, and says how.
const refuseEnv = "RDMAD_TEST_REFUSE"

// The test binary is the core of the nodes under test.
func TestMain(m *testing.M) {
	if node.InCore {
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
		defer stop()
		_ = node.Run(ctx, node.Config{}, register) // does not return
	}
	daemontest.Helper("supervisor", supervise)
	daemontest.Helper("unread", superviseUnread)
	daemontest.Helper("offender", offend)
	daemontest.Main(m)
}

// supervise runs the node that a file configures.
func supervise(args []string) error {
	fmt.Println("begins")
	return node.Run(context.Background(), node.Config{File: args[0]}, register)
}

// handled counts the requests to t/count in this core.
var handled atomic.Uint64

// methods are those of the service t that the agent handles.
var methods = map[string]server.Handler{
	"echo": func(c *server.Call) error {
		select {
		case echoes <- struct{}{}:
		default:
		}
		return c.Reply(c.Request())
	},
	"thread": thread,
	"count": func(c *server.Call) error {
		n := handled.Add(1)
		if p := c.Answer(8); p != nil {
			binary.LittleEndian.PutUint64(p, n)
		}
		return nil
	},
	"fail":  func(*server.Call) error { return errors.New("no such page") },
	"panic": func(*server.Call) error { panic("a handler's panic") },
	"exit":  func(*server.Call) error { runtime.Goexit(); return nil },
	"die":   func(*server.Call) error { return syscall.Kill(os.Getpid(), syscall.SIGKILL) },
	// hang makes the file that its request names, and returns no more.
	"hang": func(c *server.Call) error {
		if name := string(c.Request()); name != "" {
			if err := os.WriteFile(name, nil, 0o600); err != nil {
				return err
			}
		}
		select {}
	},
	// doze holds the agent up for as many milliseconds as the request has bytes.
	"doze": func(c *server.Call) error {
		time.Sleep(time.Duration(len(c.Request())) * time.Millisecond)
		return nil
	},
	// large answers with as many bytes as its request says, more than fit the slots.
	"large": func(c *server.Call) error {
		p := c.Answer(int(binary.LittleEndian.Uint32(c.Request())))
		for i := range p {
			p[i] = byte(i % 251)
		}
		return nil
	},
}

// echoes gets a value when the agent has called the handler of t/echo, if there is room.
var echoes = make(chan struct{}, 1)

// outlast makes the file that its request names, waits until the core is told to hand over, and returns when
// the agent has handled some requests since.
func outlast(c *server.Call) error {
	told := make(chan os.Signal, 1)
	signal.Notify(told, syscall.SIGUSR1)
	defer signal.Stop(told)
	if err := os.WriteFile(string(c.Request()), nil, 0o600); err != nil {
		return err
	}
	<-told
	for range cap(echoes) + 2 { // as many as there is room for may be from before
		<-echoes
	}
	return nil
}

// thread answers with the name of the thread that handles it.
func thread(c *server.Call) error {
	name, err := os.ReadFile("/proc/thread-self/comm")
	if err != nil {
		return err
	}
	return c.Reply([]byte(strings.TrimSpace(string(name))))
}

// slowEnv names a pipe: cores of a test have not registered before somebody has written to it.
const slowEnv = "RDMAD_TEST_SLOW"

func register(ctx context.Context, s *server.Server) error {
	switch os.Getenv(refuseEnv) {
	case "error":
		return errors.New("the table of pages is damaged")
	case "panic":
		panic("the table of pages is damaged")
	case "goexit":
		runtime.Goexit()
	case "exit":
		os.Exit(1)
	case "exit well":
		os.Exit(0)
	}
	if socket := os.Getenv(secondEnv); socket != "" {
		if err := serveSecond(ctx, socket, s); err != nil {
			return err
		}
	}
	for name, h := range methods {
		if err := s.Handle("t", name, h, server.AnswerSize(64), server.Inline()); err != nil {
			return err
		}
	}
	if name := os.Getenv(slowEnv); name != "" {
		if _, err := os.ReadFile(name); err != nil {
			return err
		}
	}
	return errors.Join(
		registerCache(ctx, s),
		s.Handle("t", "outside", thread, server.AnswerSize(64)),
		s.Handle("t", "outlast", outlast, server.AnswerSize(64)),
		// late answers when the agent, which has nothing else to do, sleeps.
		s.Handle("t", "late", func(c *server.Call) error {
			time.Sleep(20 * time.Millisecond)
			return c.Reply(c.Request())
		}, server.AnswerSize(64)),
		s.HandleStream("t", "stream", func(st *server.Stream) error {
			for {
				p, err := st.Recv()
				if errors.Is(err, io.EOF) {
					return nil
				}
				if err == nil {
					err = st.Send(p)
				}
				if err != nil {
					return err
				}
			}
		}, server.Inline()))
}

// goTo makes a request of target and does not wait for its outcome.
func goTo(ctx context.Context, t *testing.T, c *client.Conn, target, req string) *client.Future {
	t.Helper()
	m, err := c.Method(ctx, target)
	if err != nil {
		t.Fatal(err)
	}
	f, err := m.Go(ctx, []byte(req))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// awaitFile returns when there is such a file.
func awaitFile(t *testing.T, name string) {
	t.Helper()
	daemontest.Eventually(t, name, func() error {
		_, err := os.Stat(name)
		return err
	})
}

// attach attaches a client to n until the test ends.
func attach(t testing.TB, n *daemontest.Node) *client.Conn {
	t.Helper()
	c, err := client.Attach(t.Context(), n.Socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// patience is how long anything may take that ends at all: a machine may be busy.
const patience = 4 * time.Minute

// patientContext returns a context that ends when something takes too long.
func patientContext(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeoutCause(t.Context(), patience, fmt.Errorf("not within %v", patience))
	t.Cleanup(cancel)
	return ctx
}

// everywhere runs a test with a caller at another node, and one at the same.
func everywhere(t *testing.T, f func(t *testing.T, c *client.Conn)) {
	a, b := daemontest.Pair(t, "")
	t.Run("far", func(t *testing.T) { f(t, attach(t, a)) })
	t.Run("near", func(t *testing.T) { f(t, attach(t, b)) })
}
