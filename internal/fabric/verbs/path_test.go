//go:build verbs && cgo && linux

package verbs

import (
	"net/netip"
	"testing"
)

// Packets have a global route header on Ethernet, to another subnet, and where a port takes no others.
func TestGlobalRoute(t *testing.T) {
	for name, c := range map[string]struct {
		link, gid   string
		here, there bool
		global      cUint8
	}{
		"Ethernet":              {linkEthernet, "fe80::2", false, false, 1},
		"InfiniBand":            {linkInfiniBand, "fe80::2", false, false, 0},
		"another subnet":        {linkInfiniBand, "fec0::2", false, false, 1},
		"this port wants it":    {linkInfiniBand, "fe80::2", true, false, 1},
		"the peer's port wants": {linkInfiniBand, "fe80::2", false, true, 1},
	} {
		d := &Device{found: &found{port: PortInfo{Number: 1, LinkLayer: c.link, GRHRequired: c.here}, gid: GID{Addr: netip.MustParseAddr("fe80::1")}}}
		if p := d.path(address{gid: netip.MustParseAddr(c.gid), grh: c.there}); p.is_global != c.global {
			t.Errorf("%s: is_global %d, want %d", name, p.is_global, c.global)
		}
	}
}
