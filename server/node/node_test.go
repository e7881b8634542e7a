package node_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rdmad/rdmad/client"
	"github.com/rdmad/rdmad/internal/daemontest"
	"github.com/rdmad/rdmad/server/node"
)

// An inline handler runs on the agent's thread, any other on one of the process's own.
func TestThreads(t *testing.T) {
	everywhere(t, func(t *testing.T, c *client.Conn) {
		ctx := patientContext(t)
		warm(ctx, t, c, "b/t/thread")
		for range 100 {
			if !onAgent(ctx, t, c, "thread") {
				t.Error("an inline handler has run elsewhere")
			}
			if onAgent(ctx, t, c, "outside") {
				t.Error("another handler has run on the agent's thread")
			}
		}
	})
}

// warm calls target, which answers with the name of its thread, until that is an agent's: the first
// requests of a lane may come before the service has mapped it.
func warm(ctx context.Context, t *testing.T, c *client.Conn, target string) {
	t.Helper()
	for n := 0; !onAgentOf(ctx, t, c, target); n++ {
		if n == 1000 {
			t.Fatal("an inline handler never runs on the agent's thread")
		}
	}
}

// onAgent calls a method that answers with the name of its thread, and reports whether that is
// an agent's.
func onAgent(ctx context.Context, t *testing.T, c *client.Conn, method string) bool {
	t.Helper()
	return onAgentOf(ctx, t, c, "b/t/"+method)
}

func onAgentOf(ctx context.Context, t *testing.T, c *client.Conn, target string) bool {
	t.Helper()
	name, err := c.Call(ctx, target, nil)
	if err != nil {
		t.Fatal(err)
	}
	return strings.HasPrefix(string(name), "rdmad-agent")
}

// Whatever the size of a request or its answer, it is what the handler has made.
func TestSizes(t *testing.T) {
	everywhere(t, func(t *testing.T, c *client.Conn) {
		ctx := patientContext(t)
		for _, n := range []int{0, 1, 64, 65, 960, 4096, 64 << 10, 1<<20 + 1, 3 << 20} {
			req := make([]byte, n)
			for i := range req {
				req[i] = byte(i * 7)
			}
			if got, err := c.Call(ctx, "b/t/echo", req); err != nil || !bytes.Equal(got, req) {
				t.Errorf("echo of %d bytes: %d bytes, %v", n, len(got), err)
			}
			got, err := c.Call(ctx, "b/t/large", binary.LittleEndian.AppendUint32(nil, uint32(n)))
			if err != nil || len(got) != n {
				t.Fatalf("an answer of %d bytes: %d bytes, %v", n, len(got), err)
			}
			for i, x := range got {
				if x != byte(i%251) {
					t.Fatalf("an answer of %d bytes: byte %d is %d", n, i, x)
				}
			}
		}
	})
}

// What an inline handler does wrong hurts its own request, and nothing else.
func TestHandlersThatFail(t *testing.T) {
	everywhere(t, func(t *testing.T, c *client.Conn) {
		ctx := patientContext(t)
		warm(ctx, t, c, "b/t/thread")
		for range 3 {
			for method, text := range map[string]string{"fail": "no such page", "panic": "a handler's panic", "exit": "handler exited"} {
				_, err := c.Call(ctx, "b/t/"+method, []byte("x"))
				if !errors.Is(err, client.ErrRemote) || !strings.Contains(err.Error(), text) {
					t.Errorf("%s: %v", method, err)
				}
				if !onAgent(ctx, t, c, "thread") {
					t.Fatalf("after %s the agent handles no more", method)
				}
			}
		}
	})
}

// Streams to a core work as to any process.
func TestStream(t *testing.T) {
	everywhere(t, func(t *testing.T, c *client.Conn) {
		ctx := patientContext(t)
		m, err := c.Method(ctx, "b/t/stream")
		if err != nil {
			t.Fatal(err)
		}
		s, err := m.Stream(ctx)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		for n := range 100 {
			msg := bytes.Repeat([]byte{byte(n)}, n*97)
			if err := s.Send(ctx, msg); err != nil {
				t.Fatal(err)
			}
			if got, err := s.Recv(ctx); err != nil || !bytes.Equal(got, msg) {
				t.Fatalf("message %d: %d bytes, %v", n, len(got), err)
			}
		}
	})
}

// Many callers at a time: each request is handled once, and answered.
func TestMany(t *testing.T) {
	everywhere(t, func(t *testing.T, c *client.Conn) {
		ctx := patientContext(t)
		const callers, calls = 16, 2000
		first := count(t, ctx, c)
		var seen sync.Map
		var wg sync.WaitGroup
		for range callers {
			wg.Go(func() {
				for range calls {
					p, err := c.Call(ctx, "b/t/count", nil)
					if err != nil {
						t.Error(err)
						return
					}
					if _, twice := seen.LoadOrStore(binary.LittleEndian.Uint64(p), true); twice {
						t.Errorf("number %d was answered twice", binary.LittleEndian.Uint64(p))
					}
				}
			})
		}
		wg.Wait()
		if n := count(t, ctx, c) - first - 1; n != callers*calls {
			t.Errorf("%d requests handled, want %d", n, callers*calls)
		}
	})
}

func count(t *testing.T, ctx context.Context, c *client.Conn) uint64 {
	t.Helper()
	p, err := c.Call(ctx, "b/t/count", nil)
	if err != nil {
		t.Fatal(err)
	}
	return binary.LittleEndian.Uint64(p)
}

// A core that dies inside a handler has perhaps executed that request. Those behind it have not begun,
// and the next core executes them: they wait until its service has registered.
func TestDeath(t *testing.T) {
	everywhere(t, func(t *testing.T, c *client.Conn) {
		ctx := patientContext(t)
		count(t, ctx, c)
		doze, err := c.Method(ctx, "b/t/doze")
		if err != nil {
			t.Fatal(err)
		}
		die, err := c.Method(ctx, "b/t/die")
		if err != nil {
			t.Fatal(err)
		}
		next, err := c.Method(ctx, "b/t/echo")
		if err != nil {
			t.Fatal(err)
		}
		// The first one keeps the agent busy until all of them are there, most times.
		first, err := doze.Go(ctx, make([]byte, 200))
		if err != nil {
			t.Fatal(err)
		}
		killer, err := die.Go(ctx, nil)
		if err != nil {
			t.Fatal(err)
		}
		var behind []*client.Future
		for range 32 {
			f, err := next.Go(ctx, []byte("still here"))
			if err != nil {
				t.Fatal(err)
			}
			behind = append(behind, f)
		}
		if _, err := first.Wait(ctx); err != nil && !errors.Is(err, client.ErrMaybeExecuted) {
			t.Errorf("the request before: %v", err)
		}
		if _, err := killer.Wait(ctx); !errors.Is(err, client.ErrMaybeExecuted) {
			t.Errorf("the request that killed the core: %v", err)
		}
		for i, f := range behind {
			if p, err := f.Wait(ctx); err != nil || string(p) != "still here" {
				t.Errorf("request %d behind it: %q, %v", i, p, err)
			}
		}
	})
}

// Requests that are under way when the node stops are answered.
func TestDrain(t *testing.T) {
	a, b := daemontest.Pair(t, "")
	ctx, c := patientContext(t), attach(t, a)
	m, err := c.Method(ctx, "b/t/doze")
	if err != nil {
		t.Fatal(err)
	}
	var futures []*client.Future
	for range 20 {
		f, err := m.Go(ctx, make([]byte, 10))
		if err != nil {
			t.Fatal(err)
		}
		futures = append(futures, f)
	}
	if err := b.Halt(); err != nil {
		t.Error(err)
	}
	for i, f := range futures {
		if _, err := f.Wait(ctx); err != nil && !errors.Is(err, client.ErrNotExecuted) && !errors.Is(err, client.ErrClosed) {
			t.Errorf("request %d: %v", i, err)
		}
	}
	if err := b.Start(); err != nil {
		t.Fatal(err)
	}
	daemontest.Eventually(t, "a call after the restart", func() error {
		_, err := c.Call(ctx, "b/t/echo", nil)
		return err
	})
}

// A node whose service cannot register does not start.
func TestRefusal(t *testing.T) {
	for _, how := range []string{"error", "panic", "goexit", "exit", "exit well"} {
		t.Run(how, func(t *testing.T) {
			t.Setenv(refuseEnv, how)
			a, b := daemontest.PairApart(t, "", "")
			for _, n := range []*daemontest.Node{a, b} {
				if err := n.Ended(patientContext(t)); err == nil || !strings.Contains(err.Error(), "the core cannot start") {
					t.Errorf("node %s: %v", n.Name, err)
				}
			}
		})
	}
}

// What is wrong with the configuration is said before anything is started.
func TestBadConfig(t *testing.T) {
	for what, c := range map[string]node.Config{
		"no such file": {File: "/nonexistent/config.toml"},
		"print one to begin with: rdmad config example": {File: "/nonexistent/config.toml"},
		"node.surname":      {File: os.DevNull, Set: []string{"node.surname=x"}},
		"RegisterLimit":     {File: "/nonexistent/config.toml", RegisterLimit: -time.Second},
		"registers methods": {},
	} {
		f := register
		if what == "registers methods" {
			f = nil
		}
		if err := node.Run(t.Context(), c, f); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("want an error with %q: %v", what, err)
		}
	}
}
