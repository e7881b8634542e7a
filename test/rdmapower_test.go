package test

import (
	"encoding/binary"
	"errors"
	"testing"
	"time"

	"github.com/rdmad/rdmad/client"
	"github.com/rdmad/rdmad/cmd/rdmad/sandbox"
)

// powerOff ends a node as the loss of its machine's power does: nothing more comes from
// it, not even a farewell of its kernel's, and nothing of it is left.
func (w *wire) powerOff(c *cluster, name string, workers []*member) {
	w.t.Helper()
	pids, err := c.nodes[name].PIDs(bounded(w.t))
	if err != nil {
		w.t.Fatal(err)
	}
	w.cut(true)
	kill(w.t, pids.Supervisor)
	kill(w.t, pids.Core)
	for _, m := range workers {
		_ = m.kill()
	}
	<-c.nodes[name].Process().Done()
}

// A peer whose machine loses its power under load: requests that were sent end as "may have
// been executed" and those that were not as "not executed", both in time. When the machine is
// back, its node is another incarnation, and is called again.
func TestRDMAPowerOff(t *testing.T) {
	const hold, sent, late = 4 * time.Second, 32, 8
	w := newWire(t)
	c := w.pair(sandbox.Settings{LinkHold: hold.String()}, true)
	l := startCounted(t, c, "a", "a")
	slow := startMember(t, "service", roleArgs{Socket: c.socket("b"), Service: "slow", Handlers: sent + 4})
	var pid int
	slow.hear(&pid)
	c.awaitService("a", "b", "slow", "hang", 0)
	conn := c.attach("a")
	var fs []*client.Future
	send := func(method string, n int) {
		t.Helper()
		m, err := conn.Method(bounded(t), "b/slow/"+method)
		if err != nil {
			t.Fatal(err)
		}
		for range n {
			f, err := m.Go(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			fs = append(fs, f)
		}
	}
	there := c.attach("b")
	send("hang", sent)
	eventually(t, "handlers run", func() bool {
		a, err := there.Call(bounded(t), "b/slow/hanging", nil)
		return err == nil && binary.LittleEndian.Uint64(a) >= sent
	})
	incarnation := c.status("b").Incarnation
	who, err := conn.Method(bounded(t), "b/slow/who")
	if err != nil {
		t.Fatal(err)
	}
	off := time.Now()
	w.powerOff(c, "b", append(l.services["b"], slow))
	eventually(t, "the lanes are suspended", func() bool {
		for _, lane := range c.status("a").Lanes {
			if lane.Peer == "b" && lane.Direction == "out" && lane.State == "up" && lane.Busy > 0 {
				return false
			}
		}
		return true
	})
	suspended := time.Since(off)
	for range late {
		f, err := who.Go(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		fs = append(fs, f)
	}
	for i, f := range fs {
		want := client.ErrMaybeExecuted
		if i >= sent {
			want = client.ErrNotExecuted
		}
		if _, err := f.Wait(bounded(t)); !errors.Is(err, want) {
			t.Errorf("request %d of %d ended with %v, want %v", i, len(fs), err, want)
		}
	}
	ended := time.Since(off)
	t.Logf("the lanes were suspended after %v, all requests ended after %v; link_hold is %v", suspended, ended, hold)
	// What it takes to notice is a second; the machine is slow.
	if most := hold + 15*time.Second; ended > most {
		t.Errorf("the last request ended after %v, want %v at most", ended, most)
	}

	w.cut(false)
	c.start("b")
	if now := c.status("b").Incarnation; now == incarnation {
		t.Error("the node has its old incarnation")
	}
	startNoted(t, c, "b", l.journal)
	c.awaitService("a", "b", "jobs", "note", 0)
	l.flows()
	l.end(true)
}
