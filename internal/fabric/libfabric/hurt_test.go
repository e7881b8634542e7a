//go:build libfabric && cgo && linux && faultpoints

package libfabric

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/rdmad/rdmad/internal/fabric"
	"github.com/rdmad/rdmad/internal/poller"
)

// What the library says of an endpoint, and of no operation of it, ends the connection at both ends, and does not
// pass unseen by one that sleeps. What is no error does not matter.
func TestTroubleOfNoOperation(t *testing.T) {
	eachProvider(t, func(t *testing.T, cfg Config) {
		for _, sleeps := range []bool{false, true} {
			var w *poller.Poller
			if sleeps {
				var err error
				if w, err = poller.New(); err != nil {
					t.Fatal(err)
				}
			}
			p := newPairingOf(t, &provider{cfg: cfg, demands: &demands{data: 8, hears: true}}, w, 16, 4096)
			p.must(p.ep[0].lib.notify())
			if sleeps && p.dev[0].waits {
				p.quiet(0)
			}
			p.must(p.ep[0].lib.hurt(42))
			if sleeps && p.dev[0].waits {
				if sleep, err := p.cq[0].Arm(); sleep || err != nil {
					t.Fatalf("it would sleep: %v", err)
				}
			}
			ended := 0
			p.collect(func(_ int, c fabric.Completion) bool {
				if c.Op != fabric.OpDisconnect || c.Status != fabric.StatusFlushed {
					t.Fatalf("%+v", c)
				}
				ended++
				return ended == 2
			})
			p.close()
			if w != nil {
				p.must(w.Close())
			}
		}
	})
}

// quiet polls a queue until it may be slept on.
func (p *pairing) quiet(end int) {
	p.Helper()
	var c [16]fabric.Completion
	for deadline := time.Now().Add(2 * time.Minute); time.Now().Before(deadline); {
		if n, err := p.cq[end].Poll(c[:]); n != 0 || err != nil {
			p.Fatalf("%+v, %v", c[:n], err)
		}
		sleep, err := p.cq[end].Arm()
		p.must(err)
		if sleep {
			return
		}
	}
	p.Fatal("it is never quiet")
}

// What ends a connection ends one that is being made, too: Connect says what it was, and does not wait for its context.
func TestTroubleWhileConnecting(t *testing.T) {
	eachProvider(t, func(t *testing.T, cfg Config) {
		a, peer := newAlone(t, cfg), newAlone(t, cfg)
		defer peer.close()
		defer a.close()
		if err := a.ep.lib.hurt(42); err != nil {
			t.Fatal(err)
		}
		a.fails(peer.ep.Address())
		// One of shm is closed for good with the other one: see neighbours.go.
		if err := errors.Join(a.ep.Close(), peer.ep.Close()); err != nil {
			t.Error(err)
		}
	})
}

// So does a message in place of an immediate that is none.
func TestTroubleWithNoticesWhileConnecting(t *testing.T) {
	eachProvider(t, func(t *testing.T, cfg Config) {
		if cfg.Provider == shmProvider {
			t.Skip("an end whose peer's is not connected cannot be reached: needs tcp;ofi_rxm")
		}
		a, peer := newAloneOf(t, cfg, withNotices()), newAloneOf(t, cfg, withNotices())
		defer peer.close()
		defer a.close()
		if err := peer.ep.lib.join(a.ep.addr, message{}); err != nil {
			t.Fatal(err)
		}
		if err := a.ep.Expect(peer.ep.Address()); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		sent := make(chan error, 1)
		go func() {
			var wcs [4]cWC
			for ctx.Err() == nil {
				err := peer.ep.lib.stray(7)
				var ce *CallError
				if !errors.As(err, &ce) || ce.Code != errAgain {
					sent <- err
					return
				}
				peer.ep.lib.poll(wcs[:])
			}
			sent <- ctx.Err()
		}()
		a.fails(peer.ep.Address())
		if err := <-sent; err != nil {
			t.Error(err)
		}
	})
}

// fails connects an end, which fails because of what the library says.
func (a *alone) fails(peer []byte) {
	a.Helper()
	ctx, cancel := context.WithTimeout(a.Context(), time.Minute)
	defer cancel()
	err := a.ep.Connect(ctx, peer, fabric.Passive)
	var ce *CallError
	if !errors.As(err, &ce) || ctx.Err() != nil {
		a.Errorf("connect: %v", err)
	}
}

// What has not the size of a notice ends the connection at both ends, by its name.
func TestTroubleWithNotices(t *testing.T) {
	eachProvider(t, func(t *testing.T, cfg Config) {
		for _, size := range []int{0, 7, 9, 17, 64} {
			t.Run(fmt.Sprint(size, " bytes"), func(t *testing.T) {
				if cfg.Provider == shmProvider && size > 16 {
					t.Skip("it says nothing at all of a tagged message that does not fit its receive")
				}
				badNotice(t, cfg, size)
			})
		}
	})
}

func badNotice(t *testing.T, cfg Config, size int) {
	p := newPairingOf(t, &provider{cfg: cfg, demands: withNotices()}, nil, 16, 4096)
	defer p.close()
	_, err := p.ep[0].PostRecv(make([]fabric.RecvWR, 1))
	p.must(err)
	p.must(p.ep[1].lib.stray(size))
	ended, flushed := 0, 0
	p.collect(func(end int, c fabric.Completion) bool {
		switch {
		case c.Op == fabric.OpRecv && end == 0 && c.Status == fabric.StatusFlushed:
			flushed++
		case c.Op != fabric.OpDisconnect:
			t.Fatalf("end %d: %+v", end, c)
		case end == 0 && (c.Status != fabric.StatusLocalLength || c.Vendor != VendorBadNotice):
			t.Fatalf("it ended with %+v", c)
		case end == 1 && (c.Status != fabric.StatusRemoteInvalid || c.Vendor != VendorPeerFailed):
			t.Fatalf("the peer's end ended with %+v", c)
		default:
			ended++
		}
		return ended == 2 && flushed == 1
	})
}

// What a stranger sends where a greeting is waited for is dropped, whatever it is, and the greeting comes behind it.
func TestTroubleWithStrangers(t *testing.T) {
	eachProvider(t, func(t *testing.T, cfg Config) {
		if cfg.Provider == shmProvider {
			t.Skip("its endpoints are for processes of this machine and user only, and it says nothing of what does not fit")
		}
		for _, c := range []struct {
			size int
			data bool
		}{{messageSize, false}, {messageSize, true}, {messageSize + 1, false}, {0, true}} {
			t.Run(fmt.Sprint(c.size, " bytes, with data ", c.data), func(t *testing.T) {
				ends := [3]*alone{newAlone(t, cfg), newAlone(t, cfg), newAlone(t, cfg)}
				victim, peer, stranger := ends[0].ep, ends[1].ep, ends[2].ep
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				passive := make(chan error, 1)
				go func() { passive <- victim.Connect(ctx, peer.Address(), fabric.Passive) }()
				if err := stranger.lib.join(victim.addr, message{}); err != nil {
					t.Fatal(err)
				}
				var wcs [4]cWC
				for sent, done := false, false; !done; {
					if ctx.Err() != nil {
						t.Fatal("it cannot send")
					}
					var err error
					if !sent {
						if sent, err = stranger.lib.strange(c.size, c.data); err != nil {
							t.Fatal(err)
						}
					}
					done = stranger.lib.poll(wcs[:]) > 0
				}
				if err := errors.Join(peer.Connect(ctx, victim.Address(), fabric.Active), <-passive); err != nil {
					t.Error(err)
				}
				for _, e := range ends {
					e.close()
				}
			})
		}
	})
}

// What an endpoint's connections are is found out when it is connected, or has failed to, and not when an agent closes it.
func TestTroubleOfManyDescriptors(t *testing.T) {
	closes := func(what string, e *Endpoint) {
		t.Helper()
		before := scans()
		if err := e.Close(); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		if n := scans() - before; n != 0 {
			t.Errorf("%s: to close it all descriptors are looked at, %d times", what, n)
		}
	}
	e := ends(t, "127.0.0.1", "127.0.0.2")
	meet(t, e)
	closes("connected", e[0])
	closes("connected, and the peer gone", e[1])
	e = ends(t, "127.0.0.1", "127.0.0.2")
	closes("not connected", e[0])
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if err := e[1].Connect(ctx, e[0].Address(), fabric.Passive); err == nil {
		t.Error("connected with nobody")
	}
	closes("not connected in time", e[1])
}

// An endpoint that has failed, and that the library refused to close then, is not closed, and Close says so each time: whoever believes
// it to be would give memory away that the library uses.
func TestTroubleToClose(t *testing.T) {
	eachProvider(t, func(t *testing.T, cfg Config) {
		if cfg.Provider == shmProvider {
			t.Skip("the second of two ends in one process closes both: needs tcp;ofi_rxm")
		}
		p := newPairing(t, cfg, 16, 4096)
		letGo := p.ep[0].lib.cling()
		p.ep[0].fail(fabric.StatusFatal, VendorUnexpected, true)
		for range 2 {
			if err := p.ep[0].Close(); err == nil {
				t.Error("it is closed")
			}
		}
		p.must(letGo())
		p.ep[0].pd.open.Add(-1)
		p.must(p.ep[1].Close())
		for i := range p.ep {
			p.must(errors.Join(p.mr[i].Close(), p.pd[i].Close(), p.cq[i].Close(), p.dev[i].Close()))
		}
	})
}

// alone is an endpoint with all that it needs.
type alone struct {
	*testing.T
	dev fabric.Device
	pd  fabric.ProtectionDomain
	cq  fabric.CQ
	ep  *Endpoint
}

func newAlone(t *testing.T, cfg Config) *alone {
	t.Helper()
	return newAloneOf(t, cfg, &demands{data: 8, hears: true})
}

func newAloneOf(t *testing.T, cfg Config, d *demands) *alone {
	t.Helper()
	a := &alone{T: t}
	var err error
	must := func() {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	a.dev, err = (&provider{cfg: cfg, demands: d}).Open(fabric.Options{Listen: "127.0.0.1:0"})
	must()
	a.pd, err = a.dev.AllocPD()
	must()
	a.cq, err = a.dev.CreateCQ(16, nil)
	must()
	ep, err := a.pd.CreateEndpoint(fabric.EndpointAttr{CQ: a.cq, SendDepth: 8, RecvDepth: 8})
	if err != nil {
		t.Fatal(err)
	}
	a.ep = ep.(*Endpoint)
	return a
}

func (a *alone) close() {
	a.Helper()
	if err := errors.Join(a.ep.Close(), a.pd.Close(), a.cq.Close(), a.dev.Close()); err != nil {
		a.Error(err)
	}
}
