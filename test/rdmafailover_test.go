package test

import (
	"errors"
	"os/exec"
	"testing"
	"time"
)

// failbackLimit is longer than a fabric that has failed once is not tried again.
const failbackLimit = time.Minute

// When RDMA breaks under load, the link goes on over tcp, and it returns when RDMA does;
// no request is lost or executed twice.
func TestRDMAFailover(t *testing.T) {
	w := newWire(t)
	s := patient
	s.Fabric = "auto"
	c := w.pair(s, false)
	c.awaitFabric("verbs", limit)
	l := startCounted(t, c, "a", "b", "a")
	const rounds = 2
	for range rounds {
		w.down(w.ends[0])
		c.awaitFabric("tcp", limit)
		l.flows()
		w.up(w.ends[0])
		if *connect != "rdmacm" { // the kernel makes no connections on this device any more
			c.awaitFabric("verbs", failbackLimit)
		}
		l.flows()
	}
	l.end(false)
}

// deleteDevice begins to delete the end's RDMA device and returns what ends when it is
// gone. It waits until nobody has it open.
func (w *wire) deleteDevice(e wireEnd) (gone <-chan error) {
	done := make(chan error, 1)
	go func() {
		out, err := exec.Command("timeout", "120", "rdma", "link", "delete", e.device).CombinedOutput()
		if err != nil {
			err = errors.Join(err, errors.New(string(out)))
		}
		done <- err
	}()
	return done
}

// An RDMA device that is deleted under load goes when the core has gone that had it open:
// the kernel waits for that, and tells nobody. The next core has no device and uses tcp, and
// says so once; the one after the device is back uses it again.
func TestRDMADeviceDeleted(t *testing.T) {
	w := newWire(t)
	s := patient
	s.Fabric = "auto"
	c := w.pair(s, false)
	c.awaitFabric("verbs", limit)
	l := startCounted(t, c, "a", "b", "a")
	gone := w.deleteDevice(w.ends[0])
	for range 5 {
		l.flows()
	}
	select {
	case err := <-gone:
		t.Logf("the device was deleted while a core had it open (%v)", err)
	case <-time.After(2 * time.Second):
		c.killCore("a")
		select {
		case err := <-gone:
			if err != nil {
				t.Errorf("deleting the device: %v", err)
			}
		case <-time.After(limit):
			t.Fatalf("deleting the device: %v", errLate)
		}
	}
	l.flows()
	c.awaitFabric("tcp", limit)
	if st := c.status("a"); st.FallbackReason == "" {
		t.Errorf("the status of a does not say why it uses %s", st.Fabric)
	}
	shell(t, "rdma link add "+w.ends[0].device+" type rxe netdev "+w.ends[0].netdev)
	c.killCore("a")
	c.awaitFabric("verbs", failbackLimit)
	l.flows()
	l.end(false)
}
