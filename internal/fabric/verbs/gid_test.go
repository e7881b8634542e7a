package verbs

import (
	"net/netip"
	"strings"
	"testing"
)

func gid(index int, addr, kind string) GID {
	return GID{Index: index, Addr: netip.MustParseAddr(addr), Type: kind}
}

func TestBestGID(t *testing.T) {
	const local, v4, v6 = "fe80::1", "::ffff:10.9.9.1", "2001:db8::1"
	for _, c := range []struct {
		name  string
		link  string
		gids  []GID
		index int
		why   string
	}{
		{"a full table", linkEthernet, []GID{
			gid(0, local, gidRoCEv1), gid(1, local, gidRoCEv2), gid(2, v6, gidRoCEv1), gid(3, v6, gidRoCEv2),
			gid(4, v4, gidRoCEv1), gid(5, v4, gidRoCEv2),
		}, 5, "RoCE v2 with IPv4 address 10.9.9.1 is the best of 6"},
		{"no IPv4", linkEthernet, []GID{gid(0, local, gidRoCEv2), gid(7, v6, gidRoCEv2), gid(3, v4, gidRoCEv1)}, 7, "IPv6 address 2001:db8::1"},
		{"v2 link-local before v1 routable", linkEthernet, []GID{gid(0, v4, gidRoCEv1), gid(1, local, gidRoCEv2)}, 1, "link-local address fe80::1"},
		{"only v1", linkEthernet, []GID{gid(0, local, gidRoCEv1), gid(2, v4, gidRoCEv1)}, 2, "RoCE v1"},
		{"the lower index of equals", linkEthernet, []GID{gid(9, v4, gidRoCEv2), gid(3, "::ffff:10.9.9.2", gidRoCEv2)}, 3, "10.9.9.2"},
		{"empty", linkEthernet, nil, -1, "none of the port's 0 GIDs"},
		{"useless", linkEthernet, []GID{gid(0, "::", gidRoCEv2), gid(1, "::ffff:0.0.0.0", gidRoCEv2), gid(2, v4, "other")}, -1, "none of the port's 3"},
		{"iWARP", linkEthernet, []GID{gid(0, local, gidIB)}, -1, "none of the port's 1"},
		{"too high an index", linkEthernet, []GID{gid(256, v4, gidRoCEv2), gid(255, v6, gidRoCEv2)}, 255, "2001:db8::1"},
		{"only too high an index", linkEthernet, []GID{gid(256, v4, gidRoCEv2)}, -1, "none of the port's 1"},
		{"InfiniBand", linkInfiniBand, []GID{gid(0, local, gidIB), gid(1, v6, gidIB)}, 0, "index 0"},
		{"InfiniBand without index 0", linkInfiniBand, []GID{gid(1, v6, gidIB)}, -1, "no GID at index 0"},
	} {
		index, why := bestGID(c.link, c.gids)
		if index != c.index || !strings.Contains(why, c.why) {
			t.Errorf("%s: index %d (%s), want %d (%s)", c.name, index, why, c.index, c.why)
		}
	}
}

// The GID of before counts, not what has its place now.
func TestFindGID(t *testing.T) {
	const ours, other = "::ffff:10.9.9.1", "::ffff:10.9.9.2"
	had := gid(1, ours, gidRoCEv2)
	for name, c := range map[string]struct {
		gids  []GID
		index int
		ok    bool
	}{
		"as it was":            {[]GID{gid(0, ours, gidRoCEv2), had}, 1, true},
		"elsewhere":            {[]GID{gid(1, other, gidRoCEv2), gid(2, ours, gidRoCEv1), gid(3, ours, gidRoCEv2), gid(4, ours, gidRoCEv2)}, 3, true},
		"too high up":          {[]GID{gid(256, ours, gidRoCEv2)}, 0, false},
		"another in its place": {[]GID{gid(1, other, gidRoCEv2)}, 0, false},
		"another version":      {[]GID{gid(1, ours, gidRoCEv1)}, 0, false},
	} {
		if index, ok := findGID(c.gids, had); index != c.index || ok != c.ok {
			t.Errorf("%s: %d, %v", name, index, ok)
		}
	}
}
