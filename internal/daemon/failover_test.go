package daemon_test

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/rdmad/rdmad/internal/daemon"
	"github.com/rdmad/rdmad/internal/daemontest"
	"github.com/rdmad/rdmad/server"
)

// linkFabric waits until node a's link to b is carried by the given provider.
func linkFabric(t *testing.T, a *daemontest.Node, want string) {
	t.Helper()
	daemontest.Eventually(t, "the link uses "+want, func() error {
		s, err := a.Status(t.Context())
		if err != nil {
			return err
		}
		if got := s.Peers[0].Fabric; got != want {
			return fmt.Errorf("it uses %q", got)
		}
		return nil
	})
}

// With fabric.provider = "auto" a link whose RDMA device fails goes on over tcp, and
// returns when it can; every request is executed once on the way.
func TestFailover(t *testing.T) {
	file := filepath.Join(t.TempDir(), "broken")
	t.Setenv(daemon.BrittleEnv, file)
	a, b := daemontest.Pair(t, "[fabric]\nlisten = \"127.0.0.1:0\"\nprovider = \"auto\"\n")
	linkFabric(t, a, "verbs")
	var executed sync.Map
	attachServer(t, b, map[string]server.Handler{"once": func(c *server.Call) error {
		if n, again := executed.LoadOrStore(binary.LittleEndian.Uint64(c.Request()), true); again {
			t.Errorf("request %v was executed again", n)
		}
		return c.Reply(c.Request())
	}})
	conn := attachClient(t, a)
	found(t, conn, "b/text/once")
	m, err := conn.Method(t.Context(), "b/text/once")
	check(t, err)
	var next, answered atomic.Uint64
	stop := make(chan struct{})
	var callers sync.WaitGroup
	for range 4 {
		callers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				id := binary.LittleEndian.AppendUint64(nil, next.Add(1))
				if _, err := m.Call(t.Context(), id); err != nil {
					t.Errorf("call: %v", err)
					return
				}
				answered.Add(1)
			}
		})
	}
	progress := func() {
		t.Helper()
		was := answered.Load()
		daemontest.Eventually(t, "calls are answered", func() error {
			if n := answered.Load(); n < was+100 {
				return fmt.Errorf("%d since", n-was)
			}
			return nil
		})
	}
	for range 2 {
		progress()
		check(t, os.WriteFile(file, nil, 0o600))
		linkFabric(t, a, "tcp")
		progress()
		check(t, os.Remove(file))
		linkFabric(t, a, "verbs")
	}
	progress()
	close(stop)
	callers.Wait()
	n := 0
	executed.Range(func(any, any) bool { n++; return true })
	if uint64(n) != next.Load() {
		t.Errorf("%d requests were executed of %d", n, next.Load())
	}
}

// A link goes on over tcp as well when one of its nodes can register no memory with the device, whichever of the two.
func TestFailoverWithoutMemory(t *testing.T) {
	for _, at := range []string{"asker", "answerer"} {
		t.Run(at, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "broken")
			t.Setenv(daemon.BrittleEnv, file)
			a, b := daemontest.Pair(t, "[fabric]\nlisten = \"127.0.0.1:0\"\nprovider = \"auto\"\n")
			linkFabric(t, a, "verbs")
			short := map[string]*daemontest.Node{"asker": a, "answerer": b}[at]
			core, err := short.Core()
			check(t, err)
			check(t, os.WriteFile(file+daemon.NoMemory, []byte(strconv.Itoa(core)), 0o600))
			attachServer(t, b, map[string]server.Handler{"echo": func(c *server.Call) error { return c.Reply(c.Request()) }})
			conn := attachClient(t, a)
			daemontest.Eventually(t, "a call is answered", func() error { // which it cannot be over the device
				_, err := conn.Call(t.Context(), "b/text/echo", []byte("x"))
				return err
			})
			linkFabric(t, a, "tcp")
			check(t, os.Remove(file+daemon.NoMemory))
			linkFabric(t, a, "verbs")
			_, err = conn.Call(t.Context(), "b/text/echo", []byte("x"))
			check(t, err)
		})
	}
}
