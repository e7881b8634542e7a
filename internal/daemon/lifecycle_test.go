package daemon_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/rdmad/rdmad/client"
	"github.com/rdmad/rdmad/internal/attach"
	"github.com/rdmad/rdmad/internal/daemontest"
	"github.com/rdmad/rdmad/server"
)

// A core that dies again and again, also right after its start, is started again
// and again.
func TestCoreDiesRepeatedly(t *testing.T) {
	a, b := daemontest.Pair(t, "")
	serve(t, b)
	last := 0
	for range 3 {
		daemontest.Eventually(t, "kill", func() error {
			pid, err := a.Core()
			if err != nil {
				return err
			}
			if pid == last {
				return errors.New("the old core")
			}
			last = pid
			return a.KillCore()
		})
	}
	if err := a.Connected("b"); err != nil {
		t.Fatal(err)
	}
	callable(t, attachClient(t, a), "b/text/upper")
}

// An attached process that does nothing does not keep the node from stopping.
func TestHaltWithIdleWorkers(t *testing.T) {
	a, _ := daemontest.Pair(t, "")
	took := haltWithIdleWorkers(t, a)
	// The quickest of several: a machine may be busy.
	for n := 0; n < 4 && took > 4*time.Second; n++ {
		if err := errors.Join(a.Start(), a.Connected("b")); err != nil {
			t.Fatal(err)
		}
		took = min(took, haltWithIdleWorkers(t, a))
	}
	if took > 4*time.Second {
		t.Errorf("the stop took %v", took)
	}
	for _, f := range []string{a.Socket, a.Socket + ".lock", a.Socket + ".pid"} {
		if _, err := os.Stat(f); err == nil {
			t.Errorf("%s is left behind", f)
		}
	}
	if err := a.Start(); err != nil {
		t.Fatal(err)
	}
	if err := a.Connected("b"); err != nil {
		t.Error(err)
	}
}

// haltWithIdleWorkers stops a node that has workers which do nothing, and returns how long
// that took.
func haltWithIdleWorkers(t *testing.T, n *daemontest.Node) time.Duration {
	t.Helper()
	var sessions []*attach.Session
	for _, role := range []attach.Role{attach.RoleTool, attach.RoleClient, attach.RoleService} {
		s, err := attach.Open(t.Context(), n.Socket, attach.Hello{Role: role}, attach.Events{})
		if err != nil {
			t.Fatal(err)
		}
		sessions = append(sessions, s)
	}
	silent, err := dialRaw(n.Socket) // never says hello
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	start := time.Now()
	if err := n.Halt(); err != nil {
		t.Fatal(err)
	}
	took := time.Since(start)
	for _, s := range sessions {
		<-s.Done()
		if err := s.Err(); !errors.Is(err, attach.ErrClosed) {
			t.Errorf("the session ended with %v", err)
		}
		_ = s.Close()
		s.Release()
	}
	return took
}

// A node that stops lets calls under way finish and takes no new ones.
func TestDrain(t *testing.T) {
	// However long it takes to be refused once, the calls under way are not given up.
	a, b := daemontest.Pair(t, "drain_timeout=\"5m\"\n[limits]\nconnect_wait=\"100ms\"\n")
	open, entered := make(chan struct{}), make(chan struct{}, 1)
	attachServer(t, b, map[string]server.Handler{"gate": func(c *server.Call) error {
		select {
		case entered <- struct{}{}:
		default: // only the first one is waited for
		}
		<-open
		return c.Reply([]byte("done"))
	}})
	c := attachClient(t, a)
	var m *client.Method
	daemontest.Eventually(t, "look up", func() (err error) {
		m, err = c.Method(t.Context(), "b/text/gate")
		return err
	})
	var fs []*client.Future
	for range 20 {
		f, err := m.Go(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		fs = append(fs, f)
	}
	<-entered
	halted := make(chan error, 1)
	go func() { halted <- b.Halt() }()
	daemontest.Eventually(t, "draining", func() error {
		f, err := m.Go(t.Context(), nil)
		if err == nil {
			fs = append(fs, f) // it was still in time
			return errors.New("accepted")
		}
		if !errors.Is(err, client.ErrNoService) && !errors.Is(err, client.ErrNotExecuted) {
			t.Fatal(err)
		}
		return nil
	})
	close(open)
	for i, f := range fs {
		if got, err := f.Wait(t.Context()); err != nil || string(got) != "done" {
			t.Errorf("call %d: %q, %v", i, got, err)
		}
	}
	if err := <-halted; err != nil {
		t.Error(err)
	}
}

// A second daemon for the same socket is refused.
func TestSocketInUse(t *testing.T) {
	a, _ := daemontest.Pair(t, "")
	if err := daemontest.Again(a); err == nil || !errors.Is(err, daemontest.ErrInUse) {
		t.Errorf("a second daemon: %v", err)
	}
	if _, err := a.Status(t.Context()); err != nil {
		t.Errorf("the first daemon: %v", err)
	}
}

// Requests and their processes on one node, of both roles, all killed at once:
// the slots and ids are used again.
func TestWorkersKilledAtOnce(t *testing.T) {
	a, b := daemontest.Pair(t, "[limits]\nworkers=12\n[[class]]\nname=\"tiny\"\nslot_size=128\nslots=64\nmax_run=16\n")
	attachServer(t, b, map[string]server.Handler{"echo": func(c *server.Call) error {
		return c.Reply(c.Request()[:min(len(c.Request()), c.Capacity())])
	}})
	for range 4 {
		var ps []*daemontest.Process
		for range 4 {
			ps = append(ps, daemontest.Spawn(t, "caller", a.Socket, "b/text/echo"))
		}
		// In the middle of their work.
		sent := uint64(0)
		daemontest.Eventually(t, "traffic", func() error {
			st, err := a.Status(t.Context())
			if err != nil {
				return err
			}
			if sent == 0 {
				sent = st.Counters["requests_sent"] + 1
			}
			if st.Counters["requests_sent"] < sent+2000 {
				return errors.New("not yet")
			}
			return nil
		})
		for _, p := range ps {
			p.Kill()
		}
	}
	daemontest.Eventually(t, "the dead are buried", func() error {
		st, err := a.Status(t.Context())
		if err != nil {
			return err
		}
		if len(st.Workers) > 1 {
			return fmt.Errorf("%d workers", len(st.Workers))
		}
		for _, l := range st.Lanes {
			if l.Busy > 0 {
				return fmt.Errorf("lane %+v", l)
			}
		}
		return nil
	})
	c := attachClient(t, a)
	callable(t, c, "b/text/echo")
	m, err := c.Method(t.Context(), "b/text/echo")
	if err != nil {
		t.Fatal(err)
	}
	// Every slot can be claimed: nothing was lost.
	var rs []*client.Request
	for range 64 {
		r, err := m.With(client.NoWait(), client.AnswerSize(1)).Reserve(t.Context(), 1)
		if err != nil {
			t.Fatalf("slot %d: %v", len(rs), err)
		}
		rs = append(rs, r)
	}
	for _, r := range rs {
		r.Abort()
	}
}

// runCaller calls as much as it can until it is killed.
func runCaller(args []string) error {
	c, err := client.Attach(context.Background(), args[0])
	if err != nil {
		return err
	}
	var m *client.Method
	if err := daemontest.Poll("look up", func() (err error) {
		m, err = c.Method(context.Background(), args[1])
		return err
	}); err != nil {
		return err
	}
	fmt.Println("ready")
	for n := 0; ; n++ {
		msg := make([]byte, n%300)
		f, err := m.With(client.AnswerSize(n%400)).Go(context.Background(), msg)
		if err != nil {
			return err
		}
		if n%3 == 0 {
			_, _ = f.Wait(context.Background())
		}
		if n%7 == 0 {
			if err := m.Post(context.Background(), msg); err != nil {
				return err
			}
		}
	}
}
