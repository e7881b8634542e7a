package test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/rdmad/rdmad/client"
	"github.com/rdmad/rdmad/cmd/rdmad/sandbox"
	"github.com/rdmad/rdmad/internal/event"
	"github.com/rdmad/rdmad/server"
)

// descriptors returns what a process has open, by what it leads to.
func descriptors(t *testing.T, pid int) map[string]int {
	t.Helper()
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		t.Fatal(err)
	}
	kinds := map[string]int{}
	for _, e := range entries {
		to, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/%s", pid, e.Name()))
		if err != nil {
			continue
		}
		kind, _, _ := strings.Cut(to, ":[") // the numbers of sockets and pipes differ
		kinds[kind]++
	}
	return kinds
}

// A core that is killed again and again, while workers are attached and idle, is not
// noticed by them: their next calls are answered, their services found, and the
// supervisor keeps as many descriptors as before.
func TestCoreKilledAgainAndAgain(t *testing.T) {
	const kills = 20
	c := newPair(t, sandbox.Settings{})
	here, there := startService(t, c, "a", "here"), startService(t, c, "b", "there")
	c.awaitService("a", "b", "there", "who", 0)
	conn := c.attach("a")
	region, err := conn.AllocRegion(bounded(t), 1<<16)
	if err != nil {
		t.Fatal(err)
	}
	copy(region.Bytes(), "still here")
	works := func(when string) {
		t.Helper()
		for _, target := range []string{"a/here/who", "b/there/who"} {
			if _, err := conn.Call(bounded(t), target, nil); err != nil {
				t.Fatalf("%s: %s: %v", when, target, err)
			}
		}
	}
	works("at first")
	ids := methodIDs(c, "a")
	pids, err := c.nodes["a"].PIDs(bounded(t))
	if err != nil {
		t.Fatal(err)
	}
	before := descriptors(t, pids.Supervisor)
	for n := range kills {
		c.killCore("a")
		works(fmt.Sprintf("after %d kills", n+1))
	}
	if got := string(region.Bytes()[:10]); got != "still here" {
		t.Errorf("the region holds %q", got)
	}
	if got := methodIDs(c, "a"); got != ids {
		t.Errorf("the methods have ids %s, had %s", got, ids)
	}
	var now map[string]int
	defer func() {
		if t.Failed() {
			t.Logf("the supervisor has %v, had %v", now, before)
		}
	}()
	eventually(t, "the supervisor keeps what it kept", func() bool {
		now = descriptors(t, pids.Supervisor)
		same := len(now) <= len(before)
		for kind, n := range now {
			same = same && n <= before[kind]
		}
		return same
	})
	if err := region.Free(); err != nil {
		t.Error(err)
	}
	eventually(t, "the region is freed", func() bool {
		for _, w := range c.status("a").Workers {
			if w.Regions > 0 {
				return false
			}
		}
		return true
	})
	for _, m := range []*member{here, there} {
		var n tally
		_ = m.in.Close()
		m.hear(&n)
		m.finish()
	}
}

// methodIDs returns the ids of the node's own methods.
func methodIDs(c *cluster, node string) string {
	c.t.Helper()
	var ids []string
	for _, s := range c.status(node).Services {
		if s.Node == node {
			ids = append(ids, fmt.Sprintf("%s/%s=%#x", s.Service, s.Method, s.ID))
		}
	}
	return strings.Join(ids, " ")
}

// stopCore stops a core, so that it answers nothing, and returns what kills it.
func stopCore(t *testing.T, c *cluster, name string) (kill func()) {
	t.Helper()
	pids, err := c.nodes[name].PIDs(bounded(t))
	if err != nil {
		t.Fatal(err)
	}
	halt(t, pids.Core)
	return sync.OnceFunc(func() { _ = syscall.Kill(pids.Core, syscall.SIGKILL) })
}

// Questions to a core that does not answer, and then dies, are answered by the next one,
// once.
func TestQuestionsOutliveTheCore(t *testing.T) {
	c := newPair(t, sandbox.Settings{})
	startService(t, c, "a", "here")
	startService(t, c, "b", "there")
	c.awaitService("a", "b", "there", "who", 0)
	conn := c.attach("a")
	srv, err := server.Attach(bounded(t), c.socket("a"), server.Name("test"))
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- srv.Serve(context.Background()) }()
	defer func() {
		if err := srv.Close(); err != nil {
			t.Error(err)
		}
		<-served
	}()
	const rounds = 3
	for n := range rounds {
		kill := stopCore(t, c, "a")
		var all sync.WaitGroup
		ask := func(what string, f func() error) {
			all.Go(func() {
				if err := f(); err != nil {
					t.Errorf("%s: %v", what, err)
				}
			})
		}
		methods := []string{"who", "transform", "flip"}
		ask("resolve", func() error { _, err := conn.Method(bounded(t), "a/here/"+methods[n]); return err })
		ask("resolve elsewhere", func() error { _, err := conn.Method(bounded(t), "b/there/"+methods[n]); return err })
		ask("register", func() error {
			return srv.Handle("mine", fmt.Sprint("m", n), func(c *server.Call) error { return c.Reply(nil) })
		})
		ask("alloc", func() error { _, err := conn.AllocRegion(bounded(t), 1<<16); return err })
		ask("status", func() error { _, err := conn.Status(bounded(t)); return err })
		ask("ping", func() error { _, err := conn.Ping(bounded(t), "b"); return err })
		kill()
		all.Wait()
		if _, err := conn.Call(bounded(t), fmt.Sprint("a/mine/m", n), nil); err != nil {
			t.Errorf("a call of what was registered: %v", err)
		}
	}
	eventually(t, "there are as many regions as were asked for", func() bool {
		regions := 0
		for _, w := range c.status("a").Workers {
			regions += w.Regions
		}
		return regions == rounds
	})
}

// A worker that dies with the core is found to be dead by the next one.
func TestCoreAndWorkerKilledTogether(t *testing.T) {
	c := newPair(t, sandbox.Settings{})
	victim := startService(t, c, "a", "jobs")
	startService(t, c, "a", "other")
	conn := c.attach("a")
	for _, target := range []string{"a/jobs/who", "a/other/who"} {
		if _, err := conn.Call(bounded(t), target, nil); err != nil {
			t.Fatal(err)
		}
	}
	kill := stopCore(t, c, "a")
	if err := victim.kill(); err == nil {
		t.Error("the service ended by itself")
	}
	kill()
	c.awaitQuiet("a", victim.pid())
	if _, err := conn.Call(bounded(t), "a/other/who", nil); err != nil {
		t.Error(err)
	}
	if _, err := conn.Call(bounded(t), "a/jobs/who", nil); !errors.Is(err, client.ErrNoService) {
		t.Errorf("a call to a service that is dead: %v", err)
	}
	startService(t, c, "a", "jobs")
	if _, err := conn.Call(bounded(t), "a/jobs/who", nil); err != nil {
		t.Error(err)
	}
}

// Whoever attaches while cores die is attached, or is told clearly that it is not.
func TestAttachWhileCoresDie(t *testing.T) {
	c := newCluster(t, sandbox.Settings{}, "a")
	c.start("a")
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	var all sync.WaitGroup
	var attached atomic.Int64
	for range 4 {
		all.Go(func() {
			for ctx.Err() == nil {
				conn, err := client.Attach(bounded(t), c.socket("a"), client.Name("attacher"))
				if errors.Is(err, client.ErrClosed) {
					continue
				}
				if err != nil {
					t.Errorf("attach: %v", err)
					return
				}
				if _, err := conn.Status(bounded(t)); err != nil {
					t.Errorf("the first question: %v", err)
				}
				if err := conn.Close(); err != nil {
					t.Errorf("close: %v", err)
				}
				attached.Add(1)
			}
		})
	}
	for range 5 {
		last := attached.Load()
		eventually(t, "processes attach", func() bool { return attached.Load() > last+20 })
		c.killCore("a")
	}
	stop()
	all.Wait()
	eventually(t, "nobody is left", func() bool { return len(c.status("a").Workers) == 1 })
}

// When the supervisor dies too, everything ends, and workers are told what to do.
func TestSupervisorAndCoreKilled(t *testing.T) {
	c := newCluster(t, sandbox.Settings{}, "a")
	c.start("a")
	service := startService(t, c, "a", "jobs")
	conn := c.attach("a")
	pids, err := c.nodes["a"].PIDs(bounded(t))
	if err != nil {
		t.Fatal(err)
	}
	halt(t, pids.Supervisor) // it starts no other core. A core that is halted goes on when its supervisor dies: its group is an orphan then
	for _, pid := range []int{pids.Core, pids.Supervisor} {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
	<-c.nodes["a"].Process().Done()
	select {
	case <-conn.Done():
	case <-time.After(limit):
		t.Fatal("the attachment goes on")
	}
	if _, err := conn.Status(bounded(t)); !errors.Is(err, client.ErrClosed) || !strings.Contains(err.Error(), "attach again") {
		t.Errorf("a question: %v", err)
	}
	if err := service.wait(); err == nil {
		t.Error("the service did not notice")
	}
	c.start("a")
}

// A core that somebody has told to stop, which is not how a node is stopped, is followed by another, and the log says how it
// has ended.
func TestCoreToldToStop(t *testing.T) {
	c := newCluster(t, sandbox.Settings{}, "a")
	c.start("a")
	core := c.status("a").PIDs.Core
	if err := syscall.Kill(core, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the next core knows how the one before has ended", func() bool {
		s, err := askStatus(t, c.socket("a"))
		if err != nil || s.PIDs.Core == core {
			return false
		}
		for _, e := range s.Errors {
			if e.Code == event.CoreDied {
				return strings.HasSuffix(e.Text, ": it ended with status 0")
			}
		}
		return false
	})
}

// The core is found by its name, the next one, too.
func TestNameOfTheCore(t *testing.T) {
	c := newCluster(t, sandbox.Settings{}, "a")
	c.start("a")
	for range 2 {
		core := c.status("a").PIDs.Core
		if name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", core)); err != nil || string(name) != "rdmad-core\n" {
			t.Errorf("%q, %v", name, err)
		}
		run(t, rdmad(t, "upgrade", "--socket", c.socket("a"))).check(t, "upgrade", 0)
	}
}
