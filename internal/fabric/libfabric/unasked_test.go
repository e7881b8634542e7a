//go:build libfabric && cgo && linux

package libfabric

import (
	"errors"
	"testing"
	"time"

	"github.com/rdmad/rdmad/internal/fabric"
)

// A peer that sends what nobody asked for loses the connection, whether the end has receives for immediates only or can have none.
// What it had sent by then is all that this process keeps of it.
func TestUnaskedSends(t *testing.T) {
	eachProvider(t, func(t *testing.T, cfg Config) {
		for what, depth := range map[string]int{"receives without memory": 16, "no receives": 0} {
			t.Run(what, func(t *testing.T) {
				p := newPairing(t, cfg, 16, 4096)
				defer p.close()
				victim, peer := p.ep[0], p.ep[1]
				if depth == 0 {
					var more [2]*Endpoint
					for i := range more {
						e, err := p.pd[i].CreateEndpoint(fabric.EndpointAttr{CQ: p.cq[i], Tag: uint64(i), SendDepth: 16, RecvDepth: depth})
						p.must(err)
						more[i] = e.(*Endpoint)
						defer func() { p.must(e.Close()) }()
					}
					meet(t, more)
					victim, peer = more[0], more[1]
				} else {
					_, err := victim.PostRecv(make([]fabric.RecvWR, depth))
					p.must(err)
				}
				_, err := peer.PostSend([]fabric.SendWR{{Op: fabric.OpSend, Local: fabric.Local{Region: p.mr[1], Len: 1}}})
				p.must(err)
				ended := 0
				p.collect(func(end int, c fabric.Completion) bool {
					switch {
					case c.Op != fabric.OpDisconnect:
					case end == 0 && (c.Status != fabric.StatusLocalLength || c.Vendor != VendorUnasked):
						t.Fatalf("it ended with %+v", c)
					default:
						ended++
					}
					return ended == 2
				})
				if _, err := victim.PostRecv([]fabric.RecvWR{{}}); !errors.Is(err, fabric.ErrClosed) {
					t.Errorf("a receive is posted: %v", err)
				}
			})
		}
	})
}

// An end that has had receives for immediates only, and then gets some for sends, takes sends.
func TestSendsAreAskedForLater(t *testing.T) {
	eachProvider(t, func(t *testing.T, cfg Config) {
		p := newPairing(t, cfg, 16, 4096)
		defer p.close()
		const sends = 8
		_, err := p.ep[0].PostRecv(make([]fabric.RecvWR, 4))
		p.must(err)
		var c [4]fabric.Completion
		_, err = p.cq[0].Poll(c[:])
		p.must(err)
		for i := range sends {
			_, err = p.ep[0].PostRecv([]fabric.RecvWR{{ID: uint64(1 + i), Local: fabric.Local{Region: p.mr[0], Offset: uint64(i), Len: 1}}})
			p.must(err)
		}
		for range sends {
			_, err = p.ep[1].PostSend([]fabric.SendWR{{Op: fabric.OpSend, Local: fabric.Local{Region: p.mr[1], Len: 1}}})
			p.must(err)
		}
		next := uint64(1)
		p.collect(func(end int, c fabric.Completion) bool {
			if c.Status != fabric.StatusSuccess || end != 0 || c.ID != next {
				t.Fatalf("end %d: %+v", end, c)
			}
			next++
			return next > sends
		})
	})
}

// Tagged messages, of which a control endpoint takes none, are taken and dropped, and those behind them are heard.
func TestUnaskedTaggedMessages(t *testing.T) {
	eachProvider(t, func(t *testing.T, cfg Config) {
		if cfg.Provider == shmProvider {
			t.Skip("its devices hear of each other's ends by a call in one process: needs tcp;ofi_rxm")
		}
		const nonsense = 64
		p := newPairing(t, cfg, 16, 4096)
		defer p.close()
		// An endpoint that knows no better than to greet a device, of one that the device lets in.
		e, err := p.pd[1].CreateEndpoint(fabric.EndpointAttr{CQ: p.cq[1], SendDepth: 4, RecvDepth: 4})
		p.must(err)
		stranger := e.(*Endpoint)
		defer func() { p.must(stranger.Close()) }()
		c, err := openControl(p.dev[0].lib)
		p.must(err)
		defer func() { p.must(c.close()) }()
		name, err := c.name()
		p.must(err)
		_, err = c.peer(stranger.addr.name)
		p.must(err)
		at := stranger.addr
		at.name = name
		p.must(stranger.lib.join(at, message{}))
		var w [4]cWC
		sent, taken := 0, 0
		under := false
		for until := time.Now().Add(time.Minute); taken < nonsense && time.Now().Before(until); {
			if !under && sent < nonsense {
				under, err = stranger.lib.sayHello(message{kind: msgHello})
				p.must(err)
			}
			if n := stranger.lib.poll(w[:]); n > 0 {
				sent += n
				under = false
			}
			m, ok, err := c.receive()
			p.must(err)
			if ok && m != (message{}) {
				t.Fatalf("it is heard as %+v", m)
			}
			if ok {
				taken++
			}
		}
		if taken != nonsense {
			t.Errorf("%d messages were taken, want %d", taken, nonsense)
		}
	})
}
