//go:build libfabric && cgo && linux

package libfabric

import (
	"errors"
	"testing"
	"time"

	"github.com/rdmad/rdmad/internal/fabric"
)

// A peer that sends without a pause, so that there is always more than the caller has room for, does not put off what is reported of
// others: that one of them is gone, and what comes back when this side closes another.
func TestEndsBesideAFlood(t *testing.T) {
	const ahead, size, tag = 32, 8, 10
	eachProvider(t, func(t *testing.T, cfg Config) {
		p := newPairing(t, cfg, 2*ahead, size)
		defer p.close()
		other, closed := p.connected(4, tag), p.connected(4, 2*tag)
		key := p.mr[0].Remote()
		send := func(n int) {
			t.Helper()
			for range n {
				_, err := p.ep[0].PostRecv(make([]fabric.RecvWR, 1))
				p.must(err)
				n, err := p.ep[1].PostSend([]fabric.SendWR{{Op: fabric.OpWriteImm, Flags: fabric.FlagSignaled,
					Local: fabric.Local{Region: p.mr[1], Len: size}, RemoteAddr: key.Addr, RemoteKey: key.Key}})
				if p.must(err); n != 1 {
					t.Fatal("no room for a message")
				}
			}
		}
		flood := func(until func(fabric.Completion) bool) {
			t.Helper()
			for end := time.Now().Add(time.Minute); time.Now().Before(end); {
				var one, acks [1]fabric.Completion
				_, err := p.cq[1].Poll(acks[:])
				p.must(err)
				n, err := p.cq[0].Poll(one[:])
				p.must(err)
				switch {
				case n == 0:
				case one[0].Op == fabric.OpRecvImm:
					send(1)
				case until(one[0]):
					return
				}
			}
			t.Fatal("it is not reported")
		}
		send(ahead)
		_, err := closed[0].PostRecv(make([]fabric.RecvWR, 2))
		p.must(err)
		p.must(closed[0].Close())
		back := 0
		flood(func(c fabric.Completion) bool {
			if c.Tag == 2*tag && c.Op == fabric.OpRecv && c.Status == fabric.StatusFlushed {
				back++
			}
			return back == 2
		})
		p.must(other[1].Close())
		flood(func(c fabric.Completion) bool { return c.Tag == tag && c.Op == fabric.OpDisconnect })
		p.must(errors.Join(other[0].Close(), closed[1].Close()))
	})
}
