//go:build verbs && cgo && linux

package verbs

import (
	"context"
	"testing"
	"time"

	"github.com/rdmad/rdmad/internal/fabric"
)

// A port that goes down ends connections, also those on which nothing is sent that could
// fail.
func TestPortDownEndsConnections(t *testing.T) {
	inLab(t)
	r := newRig(t, Default(), 512, true)
	a, _ := r.pair(16, 16)
	netdev := r.dev[0].gid.Netdev
	ip(t, "link", "set", netdev, "down")
	t.Cleanup(func() { ip(t, "link", "set", netdev, "up") })
	r.until("both ends end", func() bool { return r.count(0, fabric.OpDisconnect) == 1 && r.count(1, fabric.OpDisconnect) == 1 })
	c := r.got[0][len(r.got[0])-1]
	if c.Status != fabric.StatusRetryExceeded && c.Status != fabric.StatusFlushed {
		t.Errorf("%+v: %v", c, a.ep.Explain(c))
	}
}

// Connections out of band break when the port goes down, and the same devices make new ones when
// it is back: what could not be sent meanwhile has put the queue pair of the control
// messages into its error state. (With rdmacm the kernel's own queue pair for
// connection messages is in the same state, on rdma_rxe of Linux 6.1 for good.)
func TestConnectAfterThePortWasDown(t *testing.T) {
	inLab(t)
	r := newRig(t, Default(), 512, true)
	a, b := r.pair(16, 16)
	netdev := r.dev[0].gid.Netdev
	ip(t, "link", "set", netdev, "down")
	// However the test ends, the port comes back.
	t.Cleanup(func() { ip(t, "link", "set", netdev, "up") })
	if _, err := a.ep.PostSend([]fabric.SendWR{writeImm(a, b, 8, 1)}); err != nil {
		t.Fatal(err)
	}
	r.until("the connection breaks", func() bool { return r.count(0, fabric.OpDisconnect) > 0 })
	r.must(a.ep.Close()) // tells the peer, in vain
	r.must(b.ep.Close())
	ip(t, "link", "set", netdev, "up")

	var err error
	for start := time.Now(); time.Since(start) < patience; {
		// Addresses come back some time after the link.
		c, d := r.newEnd(0, 16, 16), r.newEnd(1, 16, 16)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		passive := make(chan error, 1)
		go func() { passive <- c.ep.Connect(ctx, d.ep.Address(), fabric.Passive) }()
		err = d.ep.Connect(ctx, c.ep.Address(), fabric.Active)
		if perr := <-passive; err == nil {
			err = perr
		}
		cancel()
		if err != nil {
			continue
		}
		r.must(c.ep.Activate())
		r.must(d.ep.Activate())
		if _, err := d.ep.PostRecv(make([]fabric.RecvWR, 1)); err != nil {
			t.Fatal(err)
		}
		before := r.count(1, fabric.OpRecvImm)
		if _, err := c.ep.PostSend([]fabric.SendWR{writeImm(c, d, 8, 2)}); err != nil {
			t.Fatal(err)
		}
		r.until("a write arrives again", func() bool { return r.count(1, fabric.OpRecvImm) > before })
		return
	}
	t.Fatalf("no connection after the port was down: %v", err)
}
