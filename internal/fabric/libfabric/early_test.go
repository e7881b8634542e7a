//go:build libfabric && cgo && linux

package libfabric

import (
	"errors"
	"testing"

	"github.com/rdmad/rdmad/internal/fabric"
)

// whilePolled calls f, which has nothing to do with the owner of a queue, while another goroutine polls that queue and finds nothing.
func whilePolled(t *testing.T, q fabric.CQ, f func()) {
	t.Helper()
	stop, polls, stopped := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	go func() {
		var c [16]fabric.Completion
		for {
			n, err := q.Poll(c[:])
			if n != 0 || err != nil {
				stopped <- errors.Join(errors.New("there is something"), err)
				return
			}
			select {
			case polls <- struct{}{}:
			case <-stop:
				stopped <- nil
				return
			default:
			}
		}
	}()
	defer func() {
		t.Helper()
		close(stop)
		if err := <-stopped; err != nil {
			t.Error(err)
		}
	}()
	<-polls
	f()
}

// moreEnds makes another pair of ends on the queues of a pairing.
func (p *pairing) moreEnds(depth int) (e [2]*Endpoint) {
	p.Helper()
	for i := range e {
		ep, err := p.pd[i].CreateEndpoint(fabric.EndpointAttr{CQ: p.cq[i], Tag: 7, SendDepth: 16, RecvDepth: depth})
		p.must(err)
		e[i] = ep.(*Endpoint)
	}
	return e
}

// Who has made an endpoint posts receives, more than the library has room for, while the queue's owner is at work. The library gets
// those that are left when the endpoint is active.
func TestReceivesBeforeConnect(t *testing.T) {
	const depth = 4096
	eachProvider(t, func(t *testing.T, cfg Config) {
		if cfg.Provider == shmProvider {
			t.Skip("it refuses for good what it has no room for: TestRefusedBeforeConnect")
		}
		p := newPairing(t, cfg, 16, depth)
		defer p.close()
		var e [2]*Endpoint
		whilePolled(t, p.cq[0], func() {
			e = p.moreEnds(depth)
			for i := range uint64(depth) {
				n, err := e[0].PostRecv([]fabric.RecvWR{{ID: 1 + i, Local: fabric.Local{Region: p.mr[0], Offset: i, Len: 1}}})
				if n != 1 || err != nil {
					t.Fatal(n, err)
				}
			}
		})
		t.Logf("the library has taken %d receives and refused %d times", e[0].stats.Recvs, e[0].stats.Again)
		meet(t, e)
		send := func() {
			_, err := e[1].PostSend([]fabric.SendWR{{Op: fabric.OpSend, Flags: fabric.FlagSignaled, Local: fabric.Local{Region: p.mr[1], Len: 1}}})
			p.must(err)
		}
		for next := uint64(1); next <= depth; next++ {
			send()
			here, there := false, false
			p.collect(func(end int, c fabric.Completion) bool {
				if c.Status != fabric.StatusSuccess || c.Tag != 7 || end == 0 && c.ID != next {
					t.Fatalf("end %d: %+v", end, c)
				}
				here, there = here || end == 0, there || end == 1
				return here && there
			})
		}
		p.must(errors.Join(e[0].Close(), e[1].Close()))
	})
}

// One for which the library refuses to take receives for good fails when it is active, and its peer is told.
func TestRefusedBeforeConnect(t *testing.T) {
	eachProvider(t, func(t *testing.T, cfg Config) {
		p := newPairing(t, cfg, 16, 4096)
		defer p.close()
		var e [2]*Endpoint
		whilePolled(t, p.cq[0], func() {
			e = p.moreEnds(16)
			e[0].refused(errKeyInUse)
		})
		meet(t, e)
		ended := 0
		p.collect(func(end int, c fabric.Completion) bool {
			switch {
			case c.Op != fabric.OpDisconnect || c.Tag != 7:
				t.Fatalf("end %d: %+v", end, c)
			case end == 0 && c.Status != fabric.StatusFatal, end == 1 && c.Vendor != VendorPeerFailed:
				t.Errorf("end %d: %+v", end, c)
			}
			ended++
			return ended == 2
		})
		p.must(errors.Join(e[0].Close(), e[1].Close()))
	})
}
