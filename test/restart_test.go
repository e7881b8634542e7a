package test

import (
	"errors"
	"syscall"
	"testing"
	"time"

	"github.com/rdmad/rdmad/client"
	"github.com/rdmad/rdmad/cmd/rdmad/sandbox"
)

// kill kills a process that is no child of this one.
func kill(t *testing.T, pid int) {
	t.Helper()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
}

// Either node may start first, and services and clients at any time after their
// own node.
func TestStartOrder(t *testing.T) {
	for _, order := range [][2]string{{"a", "b"}, {"b", "a"}} {
		c := newCluster(t, sandbox.Settings{}, "a", "b")
		c.start(order[0])
		if order[0] == "b" {
			startService(t, c, "b", "jobs")
		} else if _, err := c.attach("a").Call(bounded(t), "b/jobs/who", nil); !errors.Is(err, client.ErrNoService) {
			t.Errorf("a call to a node that does not run: %v", err)
		}
		c.start(order[1])
		if order[0] == "a" {
			startService(t, c, "b", "jobs")
		}
		conn := c.attach("a")
		eventually(t, "calls work", func() bool {
			_, err := conn.Call(bounded(t), "b/jobs/who", nil)
			return err == nil
		})
		startTraffic(t, conn, "b/jobs/transform").undisturbed(t)
	}
}

// newPatient starts nodes a and b that finish what they have accepted however long it takes
// where there is much else to do.
func newPatient(t *testing.T) *cluster {
	t.Helper()
	c := newCluster(t, sandbox.Settings{}, "a", "b")
	for _, name := range c.names {
		c.edit(name, swap(t, `drain_timeout = "3s"`, `drain_timeout = "1m"`))
	}
	c.start("a", "b")
	return c
}

// A node that goes and comes back, in an orderly way or not, is found again by
// those who were there all the time.
func TestPeerRestarts(t *testing.T) {
	c := newPatient(t)
	conn := c.attach("a")
	for _, how := range []string{"stopped", "killed", "stopped"} {
		startService(t, c, "b", "jobs")
		eventually(t, "calls work", func() bool {
			_, err := conn.Call(bounded(t), "b/jobs/who", nil)
			return err == nil
		})
		tr := startTraffic(t, conn, "b/jobs/transform")
		if how == "stopped" {
			c.stop("b")
		} else {
			c.killNode("b")
		}
		begin := time.Now()
		if _, err := conn.Call(bounded(t), "b/jobs/who", nil); err == nil || outcome(err) == "other" {
			t.Errorf("%s: a call to a node that is gone: %v", how, err)
		}
		if d := time.Since(begin); d > limit/2 {
			t.Errorf("%s: such a call took %v", how, d)
		}
		if err := tr.end(); err != nil {
			t.Errorf("%s: %v", how, err)
		}
		if how == "stopped" && tr.maybeExecuted.Load() > 0 {
			t.Errorf("an orderly stop left %d calls in doubt", tr.maybeExecuted.Load())
		}
		c.awaitQuiet("a", 0)
		c.start("b")
	}
}

// A node that is told to stop finishes what it has accepted, at either end.
func TestDrain(t *testing.T) {
	for _, stopped := range []string{"a", "b"} {
		c := newPatient(t)
		startService(t, c, "b", "jobs")
		c.awaitService("a", "b", "jobs", "sleep", 0)
		conn := c.attach("a")
		const calls = 64
		ends := make(chan map[string]int, 1)
		go func() { ends <- atOnce(bounded(t), conn, "b/jobs/sleep", calls, encoded(sleepMillis)) }()
		eventually(t, "all calls are sent", func() bool { return c.status("a").Counters["requests_sent"] >= calls })
		c.stop(stopped)
		if got := <-ends; got["answered"] != calls {
			t.Errorf("node %s stopped: %d calls ended as %v", stopped, calls, got)
		}
		if _, err := conn.Call(bounded(t), "b/jobs/who", nil); outcome(err) == "answered" || outcome(err) == "other" {
			t.Errorf("node %s stopped: a call after that: %v", stopped, err)
		}
	}
}

// A daemon whose core dies while it drains starts another one for that: what is under way is answered all the same, from its own node and
// from others.
func TestCoreDiesInItsDrain(t *testing.T) {
	c := newPatient(t)
	held := holdRequests(t, c, "b", 2)
	c.awaitService("a", "b", "held", "hold", 0)
	var under []*client.Future
	for _, from := range []string{"a", "b"} {
		f, err := c.attach(from).Go(bounded(t), "b/held/hold", nil)
		if err != nil {
			t.Fatal(err)
		}
		under = append(under, f)
	}
	eventually(t, "both requests are with their handler", func() bool { return held.begun.Load() == 2 })
	core := c.status("b").PIDs.Core
	if err := c.nodes["b"].Process().Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	c.awaitPeer("a", "b", "draining")
	kill(t, core)
	held.letGo()
	for _, f := range under {
		if _, err := f.Wait(bounded(t)); err != nil {
			t.Errorf("a request that was under way: %v", err)
		}
	}
	c.stop("b") // which has ended well, or does so
}
