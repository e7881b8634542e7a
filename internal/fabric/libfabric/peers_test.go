//go:build libfabric && cgo && linux

package libfabric

import (
	"errors"
	"testing"
	"time"

	"github.com/rdmad/rdmad/internal/fabric"
)

// The control endpoints of peers are forgotten when nobody needs them any more, and not while a farewell may be on its way to them.
func TestPeersAreForgotten(t *testing.T) {
	eachProvider(t, func(t *testing.T, cfg Config) {
		if cfg.Provider == shmProvider {
			t.Skip("its peers are known until they have gone: TestPeerClosedBefore has that")
		}
		p := newPairingOf(t, &provider{cfg: cfg, demands: likeEFA(cfg)}, nil, 16, 4096)
		defer p.close()
		d := p.dev[0]
		d.mu.Lock()
		if n := len(d.peers); n != 1 {
			t.Errorf("%d peers are known", n)
		}
		for _, known := range d.peers {
			d.release(known)
			if d.peers[known.name] != known {
				t.Error("it is forgotten at once")
			}
			known.refs++ // somebody has needed it again
		}
		d.mu.Unlock()
		d.bell.Ring()
		p.must(errors.Join(p.ep[0].Close(), p.ep[1].Close()))
		for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(time.Millisecond) {
			known := 0
			for _, d := range p.dev {
				d.mu.Lock()
				known += len(d.peers) + len(d.unused)
				d.mu.Unlock()
			}
			if known == 0 {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("%d are still known", known)
			}
		}
	})
}

// A peer that can be reached is told of an end, also where the device's goroutine had no processor for an hour meanwhile.
func TestFarewellOfOneWhoStoodStill(t *testing.T) {
	eachProvider(t, func(t *testing.T, cfg Config) {
		if cfg.Provider == shmProvider {
			t.Skip("its devices tell each other by a call, in one process")
		}
		p := newPairingOf(t, &provider{cfg: cfg, demands: likeEFA(cfg)}, nil, 16, 4096)
		d, e := p.dev[0], p.ep[0]
		d.mu.Lock()
		for _, to := range d.peers {
			to.refs++
			m := message{kind: msgGone, to: e.peer.token, from: e.addr.token}
			d.outbox = append(d.outbox, letter{to: to, m: m, until: time.Now().Add(-time.Hour)})
		}
		d.mu.Unlock()
		d.bell.Ring()
		p.collect(func(end int, c fabric.Completion) bool { return end == 1 && c.Op == fabric.OpDisconnect })
		p.close()
	})
}
