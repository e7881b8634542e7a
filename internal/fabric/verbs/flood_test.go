//go:build verbs && cgo && linux

package verbs

import (
	"testing"

	"github.com/rdmad/rdmad/internal/fabric"
)

// A peer that sends without a pause, so that the queue is never seen empty, does not put off what is reported of others, nor that
// the room of endpoints that have been closed is free again.
func TestEndsBesideAFlood(t *testing.T) {
	needDevice(t)
	const ahead = 64
	r := newRig(t, Default(), 16, false)
	a, b := r.pair(ahead, 2*ahead)
	c, d := r.pair(4, 4)
	other, closed := r.pair(4, 4)
	send := func(n int) {
		t.Helper()
		for i := range n {
			if n, err := b.ep.PostRecv(make([]fabric.RecvWR, 1)); n != 1 || err != nil {
				t.Fatal(n, err)
			}
			if n, err := a.ep.PostSend([]fabric.SendWR{writeImm(a, b, 8, uint32(i))}); n != 1 || err != nil {
				t.Fatal(n, err)
			}
		}
		// All that was sent has arrived when it has been acknowledged.
		var comps [ahead]fabric.Completion
		for got := 0; got < n; {
			k, err := r.cq[0].Poll(comps[:])
			r.must(err)
			for _, c := range comps[:k] {
				if c.Op == fabric.OpWriteImm {
					got++
				}
			}
		}
	}
	send(ahead)
	if n, err := d.ep.PostRecv(make([]fabric.RecvWR, 2)); n != 2 || err != nil {
		t.Fatal(n, err)
	}
	reserved := r.cq[1].reserved
	r.must(closed.ep.Close())
	r.must(c.ep.Close())
	_ = other
	ended := false
	for polls, most := 0, 10*(r.cq[1].lib.capacity()+len(r.cq[1].wcs)); !ended || r.cq[1].reserved == reserved; polls++ {
		if polls == most {
			t.Fatalf("after %d polls: the end of the other connection is reported: %v; %d of %d completions are reserved", polls, ended, r.cq[1].reserved, reserved)
		}
		var one [1]fabric.Completion
		n, err := r.cq[1].Poll(one[:])
		r.must(err)
		if n == 0 {
			t.Fatal("the queue was empty: the test is not about that")
		}
		switch {
		case one[0].Op == fabric.OpDisconnect && one[0].Tag == d.tag:
			ended = true
		case one[0].Op == fabric.OpRecvImm:
			send(1)
		}
	}
}
