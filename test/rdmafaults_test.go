package test

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/rdmad/rdmad/cmd/rdmad/sandbox"
)

// patient are settings of nodes that wait for a link for as long as no test takes: nothing
// may be given up.
var patient = sandbox.Settings{LinkHold: "5m"}

// While queue pairs break, by themselves and because a peer refuses what it is sent, and
// completion queues run over, every request is executed once and answered.
func TestRDMAQueuePairs(t *testing.T) {
	prefix := filepath.Join(t.TempDir(), "hurt")
	t.Setenv("RDMAD_FAULT_VERBS", prefix) // verbs.HurtEnv; this binary may be built without
	if !*faultBuild {
		t.Skip("needs programs built with the tag faultpoints: make lab-faults")
	}
	w := newWire(t)
	c := w.pair(patient, true)
	l := startCounted(t, c, "a", "b", "a")
	before := w.resources()
	const rounds = 6
	for n := range rounds {
		for _, name := range c.names {
			for _, what := range []string{"pairs", "key", "queues"} {
				core := c.status(name).PIDs.Core
				file := fmt.Sprintf("%s.%d", prefix, core)
				if err := os.WriteFile(file, []byte(what), 0o600); err != nil {
					t.Fatal(err)
				}
				if err := syscall.Kill(core, syscall.SIGUSR2); err != nil {
					t.Fatal(err)
				}
				eventually(t, "it is done", func() bool { return !exists(file) })
				l.flows()
				if now := c.status(name).PIDs.Core; now != core {
					t.Fatalf("round %d: core %d of %s was replaced by %d after %s", n, core, name, now, what)
				}
			}
		}
	}
	w.awaitResources(before)
	l.end(false)
	// Each kind of fault has ended connections, and on its own account.
	for _, why := range []string{"flushed", "remote access", "completion queue"} {
		if n := c.logged("a", why) + c.logged("b", why); n == 0 {
			t.Errorf("no log says %q", why)
		} else {
			t.Logf("the logs say %q %d times", why, n)
		}
	}
}

// While the port goes down and comes back under load, nothing is lost. With rdmacm the
// kernel makes no new connections on the device afterwards, so tcp has to be there.
func TestRDMAPortFlaps(t *testing.T) {
	w := newWire(t)
	s := patient
	if *connect == "rdmacm" {
		s.Fabric = "auto"
	}
	c := w.pair(s, false)
	l := startCounted(t, c, "a", "b", "a")
	for n := range 6 {
		e := w.ends[n%2]
		w.down(e)
		time.Sleep(time.Duration(20<<n) * time.Millisecond) // the length of the fault: shorter and longer than the retries
		w.up(e)
		l.flows()
	}
	if s.Fabric == "" {
		c.awaitFabric("verbs", limit)
	}
	l.end(false)
}

// Cores die with queue pairs open, in turns, under load: the next ones adopt everything, and
// the devices have nothing of the dead ones.
func TestRDMACoresKilled(t *testing.T) {
	w := newWire(t)
	c := w.pair(patient, true)
	l := startCounted(t, c, "a", "b", "a")
	before := w.resources()
	for range *coreKills {
		for _, name := range c.names {
			c.killCore(name)
			l.flows()
		}
	}
	w.awaitResources(before)
	l.end(false)
	c.stop("a")
	c.stop("b")
	for kind, n := range w.resources() {
		// A device has a protection domain and queues of the kernel's own.
		if n > 2 {
			t.Errorf("%d of %s are left", n, kind)
		}
	}
}

// A path that loses, repeats, reorders, delays and damages packets only takes longer.
func TestRDMANetem(t *testing.T) {
	for _, how := range []string{
		"loss 1%", "loss 10%", "duplicate 1%", "delay 2ms 1ms", "delay 1ms reorder 25% 50%", "corrupt 0.1%",
		"loss 2% duplicate 2% delay 1ms 1ms corrupt 0.1%",
	} {
		t.Run(how, func(t *testing.T) {
			w := newWire(t)
			c := w.pair(patient, true)
			l := startCounted(t, c, "a", "b", "a")
			for _, e := range w.ends {
				w.netem(e, how)
			}
			for range 5 {
				l.flows()
			}
			for _, e := range w.ends {
				if !w.lossy(e) {
					t.Errorf("no packet has gone by %s", e.netdev)
				}
			}
			w.cut(false)
			l.end(false)
		})
	}
}

// A path on which packets are lost in silence, in both directions or in one, is waited for.
func TestRDMAPartition(t *testing.T) {
	w := newWire(t)
	c := w.pair(patient, true)
	l := startCounted(t, c, "a", "b", "a")
	for _, ends := range [][]wireEnd{w.ends[:], w.ends[:1], w.ends[1:]} {
		for _, e := range ends {
			w.netem(e, "loss 100%")
		}
		time.Sleep(5 * time.Second) // the length of the fault
		for _, e := range ends {
			w.netem(e, "")
		}
		l.flows()
	}
	l.end(false)
}
