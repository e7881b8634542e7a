package verbs

import (
	"fmt"
	"net/netip"
)

// Values of GID.Type.
const (
	gidIB     = "IB"
	gidRoCEv1 = "RoCE v1"
	gidRoCEv2 = "RoCE v2"
)

// Values of PortInfo.LinkLayer.
const (
	linkInfiniBand = "InfiniBand"
	linkEthernet   = "Ethernet"
)

// bestGID chooses the GID of a port when the configuration leaves it open, and
// says why in one sentence. On InfiniBand that is index 0. On Ethernet RoCE v2
// goes before v1, because it can be routed and is what peers expect; then an
// address made from an IPv4 address before a routable IPv6 address before a
// link-local one, which other subnets cannot reach; then the lower index. It
// returns -1 if no entry will do.
func bestGID(linkLayer string, gids []GID) (index int, why string) {
	if linkLayer == linkInfiniBand {
		for _, g := range gids {
			if g.Index == 0 {
				return 0, "index 0 is the port's own GID on InfiniBand"
			}
		}
		return -1, "the port has no GID at index 0"
	}
	best, score := -1, 0
	for i, g := range gids {
		s := scoreGID(g)
		if s > score || s == score && s > 0 && g.Index < gids[best].Index {
			best, score = i, s
		}
	}
	if best < 0 {
		return -1, fmt.Sprintf("none of the port's %d GIDs is a RoCE address at an index of up to %d", len(gids), MaxGIDIndex)
	}
	g := gids[best]
	return g.Index, fmt.Sprintf("%s with %s is the best of %d", g.Type, describeGID(g.Addr), len(gids))
}

// findGID returns the index of a GID that was in the table before: the same one if it is still there, else that of another entry with
// the same address and type.
func findGID(gids []GID, had GID) (index int, ok bool) {
	for _, g := range gids {
		if g.Addr != had.Addr || g.Type != had.Type || g.Index > MaxGIDIndex {
			continue
		}
		if g.Index == had.Index {
			return g.Index, true
		}
		if !ok {
			index, ok = g.Index, true
		}
	}
	return index, ok
}

// scoreGID is higher for a better GID of an Ethernet port, 0 for a useless one.
func scoreGID(g GID) int {
	if g.Index > MaxGIDIndex {
		return 0
	}
	score := 0
	switch g.Type {
	case gidRoCEv2:
		score = 10
	case gidRoCEv1:
		score = 1
	default:
		return 0
	}
	switch {
	case !g.Addr.Is6() || g.Addr.IsUnspecified() || g.Addr.Unmap().IsUnspecified():
		return 0
	case g.Addr.Is4In6():
		score += 3
	case !g.Addr.IsLinkLocalUnicast():
		score += 2
	}
	return score
}

func describeGID(a netip.Addr) string {
	switch {
	case a.Is4In6():
		return "IPv4 address " + a.Unmap().String()
	case a.IsLinkLocalUnicast():
		return "link-local address " + a.String()
	default:
		return "IPv6 address " + a.String()
	}
}
