//go:build verbs && cgo && linux

package verbs

import (
	"net"
	"runtime"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/rdmad/rdmad/internal/fabric"
)

// The path MTU of a new endpoint is what the port has now, at most what the configuration says.
func TestPathMTU(t *testing.T) {
	for name, c := range map[string]struct{ opened, configured, active, want int }{
		"as it was":                {4096, 0, 4096, 4096},
		"smaller now":              {4096, 0, 1024, 1024},
		"larger now":               {1024, 0, 4096, 4096},
		"as configured":            {2048, 2048, 4096, 2048},
		"smaller than configured":  {2048, 2048, 1024, 1024},
		"no interface for a while": {2048, 2048, 0, 2048},
	} {
		d := &Device{cfg: Config{MTU: c.configured}, mtu: c.opened}
		if got := d.pathMTU(c.active); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}

// waitForMTU waits until a device's port has an active MTU.
func waitForMTU(t *testing.T, d *Device, want int) {
	t.Helper()
	for start := time.Now(); ; runtime.Gosched() {
		_, mtu, err := d.portNow()
		if err != nil {
			t.Fatal(err)
		}
		if mtu == want {
			return
		}
		if time.Since(start) > patience {
			t.Fatalf("the port's MTU is %d, want %d", mtu, want)
		}
	}
}

// A network interface whose frames become smaller while the device is open makes packets of new connections smaller, too: larger ones
// would not arrive. A connection that there is keeps its own.
func TestMTUOfNow(t *testing.T) {
	eachMode(t, func(t *testing.T, cfg Config) {
		inLab(t)
		r := newRig(t, cfg, 512, true)
		d := r.dev[0]
		netdev, err := net.InterfaceByName(d.gid.Netdev)
		r.must(err)
		_, whole, err := d.portNow()
		r.must(err)
		old, _ := r.pair(16, 16)
		set := func(frame, path int) {
			ip(t, "link", "set", netdev.Name, "mtu", strconv.Itoa(frame))
			waitForMTU(t, d, path)
		}
		t.Cleanup(func() { set(netdev.MTU, whole) })
		set(1500, 1024)

		a, b := r.pair(16, 16)
		for e, want := range map[*end]int{a: 1024, b: 1024, old: whole} {
			all, err := e.ep.Attributes()
			r.must(err)
			if !slices.Contains(all, fabric.Attribute{Stage: "RTR", Name: "path_mtu", Value: strconv.Itoa(want)}) {
				t.Errorf("the path MTU is not %d: %+v", want, all)
			}
			if got := e.ep.Identity().MTU; got != want {
				t.Errorf("the connection says that its MTU is %d, want %d", got, want)
			}
		}
		if n, err := b.ep.PostRecv(make([]fabric.RecvWR, 1)); n != 1 || err != nil {
			t.Fatal(n, err)
		}
		if n, err := a.ep.PostSend([]fabric.SendWR{writeImm(a, b, 16<<10, 1)}); n != 1 || err != nil {
			t.Fatal(n, err)
		}
		r.until("a write of many packets arrives", func() bool { return r.count(1, fabric.OpRecvImm) == 1 })
	})
}
