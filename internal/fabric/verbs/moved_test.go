//go:build verbs && cgo && linux

package verbs

import (
	"context"
	"errors"
	"net/netip"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/rdmad/rdmad/internal/fabric"
)

// gidPlace returns where a device's port has the GID of an address, -1 if nowhere.
func gidPlace(t *testing.T, d *Device, a netip.Addr) int {
	t.Helper()
	gids, err := queryGIDs(d.ctx, d.port.Number)
	if err != nil {
		t.Fatal(err)
	}
	at := slices.IndexFunc(gids, func(g GID) bool { return g.Addr.Unmap() == a && g.Type == gidRoCEv2 })
	if at < 0 {
		return -1
	}
	return gids[at].Index
}

// An address that goes and comes back, as of a network that is configured anew, may have another place in the table of GIDs, as
// connections still hold the old one. New connections are made all the same; without the address they say what is missing.
func TestGIDComesBackElsewhere(t *testing.T) {
	eachMode(t, func(t *testing.T, cfg Config) {
		inLab(t)
		// The second address, so that those who want the first one find it where it was.
		address := netip.MustParseAddr("10.9.9.2")
		probe := openDevice(t, cfg)
		netdev := probe.gid.Netdev
		cfg.GIDIndex = gidPlace(t, probe, address)
		if err := probe.Close(); err != nil {
			t.Fatal(err)
		}
		r := newRig(t, cfg, 512, true)
		r.pair(16, 16)
		place := func(want func(int) bool) {
			t.Helper()
			for start := time.Now(); !want(gidPlace(t, r.dev[0], address)); runtime.Gosched() {
				if time.Since(start) > patience {
					t.Fatal("the table of GIDs does not change")
				}
			}
		}
		back := func() { ip(t, "addr", "replace", address.String()+"/24", "dev", netdev) }
		t.Cleanup(back) // however the test ends
		ip(t, "addr", "del", address.String()+"/24", "dev", netdev)
		place(func(at int) bool { return at < 0 })
		if cfg.Connect == ConnectOOB {
			a, b := r.newEnd(0, 16, 16), r.newEnd(1, 16, 16)
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			if err := a.ep.Connect(ctx, b.ep.Address(), fabric.Active); !errors.Is(err, ErrNoGID) {
				t.Errorf("without the address: %v", err)
			}
		}
		back()
		place(func(at int) bool { return at >= 0 })
		a, b := r.pair(16, 16)
		if n, err := b.ep.PostRecv(make([]fabric.RecvWR, 1)); n != 1 || err != nil {
			t.Fatal(n, err)
		}
		if n, err := a.ep.PostSend([]fabric.SendWR{writeImm(a, b, 8, 1)}); n != 1 || err != nil {
			t.Fatal(n, err)
		}
		r.until("a write arrives", func() bool { return r.count(1, fabric.OpRecvImm) == 1 })
		if got := a.ep.Identity().GIDIndex; cfg.Connect == ConnectOOB && got != gidPlace(t, r.dev[0], address) {
			t.Errorf("the connection says that it uses GID %d", got)
		}
	})
}
