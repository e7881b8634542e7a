package rdmasys

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/rdmad/rdmad/internal/fabric/verbs"
)

// Active is the state of a port that carries data.
const Active = "ACTIVE"

// ErrNoDevice is wrapped by Choose's error on a machine without RDMA devices.
var ErrNoDevice = errors.New("this machine has no RDMA device")

// Choose finds the port that verbs.device (empty: any), verbs.port (0: any) and
// verbs.gid_index ask for among the devices: the first that is active and has such
// a GID or, if none has, the first that is active and has any. The error says, for
// people, why there is none, and names the devices or ports there are.
func Choose(devices []verbs.DeviceInfo, device string, port, gidIndex int) (verbs.DeviceInfo, verbs.PortInfo, error) {
	var problems []string
	var second *verbs.DeviceInfo
	var secondPort verbs.PortInfo
	for _, d := range devices {
		if device != "" && d.Name != device {
			continue
		}
		p, err := choosePort(d, port, gidIndex)
		switch {
		case err != nil:
			problems = append(problems, err.Error())
		case suits(p, gidIndex):
			return d, p, nil
		case second == nil:
			second, secondPort = &d, p
		}
	}
	if second != nil {
		return *second, secondPort, nil
	}
	var none verbs.DeviceInfo
	switch {
	case len(devices) == 0 && device != "":
		return none, verbs.PortInfo{}, fmt.Errorf("%w, so not %q (verbs.device)", ErrNoDevice, device)
	case len(devices) == 0:
		return none, verbs.PortInfo{}, ErrNoDevice
	case len(problems) == 0:
		names := make([]string, len(devices))
		for i, d := range devices {
			names[i] = d.Name
		}
		return none, verbs.PortInfo{}, fmt.Errorf("there is no device %q (verbs.device), but %s", device, strings.Join(names, ", "))
	}
	return none, verbs.PortInfo{}, errors.New(strings.Join(problems, "; "))
}

// suits reports whether a port has the GID that is configured, or one that can be chosen.
func suits(p verbs.PortInfo, gidIndex int) bool {
	if gidIndex == verbs.AutoGID {
		return p.Chosen >= 0
	}
	return slices.ContainsFunc(p.GIDs, func(g verbs.GID) bool { return g.Index == gidIndex })
}

func choosePort(d verbs.DeviceInfo, port, gidIndex int) (verbs.PortInfo, error) {
	if d.Err != "" {
		return verbs.PortInfo{}, fmt.Errorf("%s cannot be opened: %s", d.Name, d.Err)
	}
	var problems []string
	var second *verbs.PortInfo
	for _, p := range d.Ports {
		switch {
		case port != 0 && p.Number != port:
		case p.State != Active:
			problems = append(problems, fmt.Sprintf("port %d of %s is %s", p.Number, d.Name, stateWord(p.State)))
		case len(p.GIDs) == 0:
			problems = append(problems, fmt.Sprintf("port %d of %s has no GID, which a network interface with an address gives it", p.Number, d.Name))
		case suits(p, gidIndex):
			return p, nil
		case second == nil:
			second = &p
		}
	}
	switch {
	case second != nil:
		return *second, nil
	case len(problems) > 0:
		return verbs.PortInfo{}, errors.New(strings.Join(problems, ", "))
	case port != 0:
		return verbs.PortInfo{}, fmt.Errorf("%s has no port %d (verbs.port); its ports: %d", d.Name, port, len(d.Ports))
	}
	return verbs.PortInfo{}, fmt.Errorf("%s has no port", d.Name)
}

func stateWord(s string) string {
	if s == "" {
		return "in an unknown state"
	}
	return s
}

// linkInfiniBand is the link layer on which GIDs are not addresses of network
// interfaces.
const linkInfiniBand = "InfiniBand"

// ChooseGID returns the index of the GID that a port uses when none is configured,
// and what spoke for it. On InfiniBand that is 0, the port's own. On Ethernet RoCE
// v2 goes before v1; then an address made of an IPv4 address before a routable IPv6
// address before a link-local one; then the smaller index. It returns -1 if none
// will do. The verbs provider has the same rules.
func ChooseGID(linkLayer string, gids []verbs.GID) (index int, why string) {
	if linkLayer == linkInfiniBand {
		if slices.ContainsFunc(gids, func(g verbs.GID) bool { return g.Index == 0 }) {
			return 0, "the port's own"
		}
		return -1, "the port has no GID 0"
	}
	var best verbs.GID
	most := 0
	for _, g := range gids {
		if s := score(g); s > most || s > 0 && s == most && g.Index < best.Index {
			best, most = g, s
		}
	}
	switch {
	case most == 0:
		return -1, fmt.Sprintf("none of %d is of RoCE", len(gids))
	case best.Addr.Is4In6():
		return best.Index, best.Type + ", IPv4"
	case IsLinkLocal(best.Addr):
		return best.Index, best.Type + ", link-local, nothing better"
	}
	return best.Index, best.Type + ", IPv6"
}

// score is more for a better GID of an Ethernet port, 0 for one of no use.
func score(g verbs.GID) (s int) {
	if g.Index > verbs.MaxGIDIndex {
		return 0
	}
	switch g.Type {
	case "RoCE v2":
		s = 10
	case "RoCE v1":
		s = 1
	default:
		return 0
	}
	switch {
	case g.Addr.Is4In6():
		s += 3
	case !IsLinkLocal(g.Addr):
		s += 2
	}
	return s
}

// IsLinkLocal reports whether a GID is good within one subnet only.
func IsLinkLocal(gid netip.Addr) bool { return gid.Unmap().IsLinkLocalUnicast() }
