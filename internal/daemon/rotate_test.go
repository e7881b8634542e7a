package daemon_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/rdmad/rdmad/client"
	"github.com/rdmad/rdmad/internal/attach"
	"github.com/rdmad/rdmad/internal/daemontest"
	"github.com/rdmad/rdmad/internal/status"
	"github.com/rdmad/rdmad/server"
)

// runOffender breaks the protocol until it is disconnected. It says why, and how it fares when it attaches again, and lives on.
// With another argument it says goodbye first.
func runOffender(args []string) error {
	reason, err := daemontest.Offend(args[0], len(args) > 1)
	if err != nil {
		return err
	}
	fmt.Println(reason)
	s, err := attach.Open(context.Background(), args[0], attach.Hello{Role: attach.RoleService, Name: "offender"}, attach.Events{})
	if err == nil {
		_ = s.Close()
	}
	fmt.Println(err)
	return daemontest.Stay()
}

// domainOf returns the state of the only domain of a node.
func domainOf(t *testing.T, n *daemontest.Node) (status.Domain, *status.Node) {
	t.Helper()
	st, err := n.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return st.Domains[0], st
}

// To have said goodbye makes no difference to a process that is disconnected for what it writes: it is an outcast, and
// its domain gets new memory.
func TestGoodbyeOfAnOffender(t *testing.T) {
	a, _ := daemontest.Pair(t, "")
	offender := daemontest.Spawn(t, "offender", a.Socket, "bye")
	if why := offender.Line(); !strings.Contains(why, "limits.strikes") {
		t.Errorf("it was disconnected: %s", why)
	}
	if again := offender.Line(); !strings.Contains(again, "disconnected for what it has written") {
		t.Errorf("it attached again: %s", again)
	}
	daemontest.Eventually(t, "the domain gets new memory", func() error {
		if d, st := domainOf(t, a); st.Counters["rotations"] != 1 || d.Held != 1 {
			return fmt.Errorf("%d rotations, %d held", st.Counters["rotations"], d.Held)
		}
		return nil
	})
}

// A process that breaks the protocol is disconnected. Because it lives on, its domain gets
// new memory: what was under way has an outcome, the others attach again, and everything
// goes on, also after the core's death.
func TestDomainRotation(t *testing.T) {
	a, b := daemontest.Pair(t, "")
	core, err := a.Core()
	if err != nil {
		t.Fatal(err)
	}
	entered, leave := make(chan bool, 8), make(chan bool)
	handlers := map[string]server.Handler{
		"echo": func(c *server.Call) error { return c.Reply(c.Request()) },
		"block": func(c *server.Call) error {
			entered <- true
			<-leave
			return c.Reply(nil)
		},
	}
	attachServer(t, a, handlers)
	t.Cleanup(func() { close(leave) }) // before the server is closed
	serve(t, b)
	near, far := attachClient(t, a), attachClient(t, b)
	callable(t, near, "a/text/echo")
	callable(t, near, "b/text/upper")
	callable(t, far, "a/text/echo")
	outcomes := make(chan error, 2)
	for _, c := range []*client.Conn{near, far} {
		go func() {
			_, err := c.Call(t.Context(), "a/text/block", nil)
			outcomes <- err
		}()
		<-entered
	}
	offender := daemontest.Spawn(t, "offender", a.Socket)
	if why := offender.Line(); !strings.Contains(why, "broken the protocol") || !strings.Contains(why, "limits.strikes") {
		t.Errorf("the offender is told %q", why)
	}
	if again := offender.Line(); !strings.Contains(again, "was disconnected for what it has written") {
		t.Errorf("the offender attaches again: %q", again)
	}
	for range 2 {
		if err := <-outcomes; !errors.Is(err, client.ErrMaybeExecuted) {
			t.Errorf("a call whose handler was running: %v", err)
		}
	}
	<-near.Done()
	again := attachClient(t, a)
	attachServer(t, a, handlers)
	callable(t, again, "a/text/echo")
	check := func(generation int) {
		t.Helper()
		for _, target := range []string{"a/text/echo", "b/text/upper"} {
			callable(t, again, target)
			for range 100 {
				if got, err := again.Call(t.Context(), target, []byte("X")); err != nil || string(got) != "X" {
					t.Fatalf("%s: %q, %v", target, got, err)
				}
			}
		}
		callable(t, far, "a/text/echo")
		if d, _ := domainOf(t, a); d.Generation != generation {
			t.Errorf("%+v", d)
		}
		if d, _ := domainOf(t, b); d.Generation != 0 {
			t.Errorf("the peer's domain: %+v", d)
		}
	}
	check(1)
	d, st := domainOf(t, a)
	if st.PIDs.Core != core || st.Counters["struck_out"] != 1 || st.Counters["rotations"] != 1 || d.Held != 1 {
		t.Errorf("core %d, was %d; %+v; %v", st.PIDs.Core, core, d, st.Counters)
	}
	if n := st.Counters["worker_dead"]; n != 0 {
		t.Errorf("%d processes count as dead, and all live", n)
	}
	if err := a.KillCore(); err != nil {
		t.Fatal(err)
	}
	check(1)
	offender.Kill()
	daemontest.Eventually(t, "nothing of the offender is left", func() error {
		if d, st := domainOf(t, a); d.Held+d.Lingering > 0 {
			return fmt.Errorf("%+v, %+v", d, st.Workers)
		}
		return nil
	})
}
