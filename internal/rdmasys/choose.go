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

// Choose finds the port that verbs.device (empty: any) and verbs.port (0: any)
// ask for among the devices: the first that is active and has a GID. The error
// says, for people, why there is none, and names the devices or ports there are.
func Choose(devices []verbs.DeviceInfo, device string, port int) (verbs.DeviceInfo, verbs.PortInfo, error) {
	var problems []string
	for _, d := range devices {
		if device != "" && d.Name != device {
			continue
		}
		p, err := choosePort(d, port)
		if err == nil {
			return d, p, nil
		}
		problems = append(problems, err.Error())
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

func choosePort(d verbs.DeviceInfo, port int) (verbs.PortInfo, error) {
	if d.Err != "" {
		return verbs.PortInfo{}, fmt.Errorf("%s cannot be opened: %s", d.Name, d.Err)
	}
	var problems []string
	for _, p := range d.Ports {
		switch {
		case port != 0 && p.Number != port:
		case p.State != Active:
			problems = append(problems, fmt.Sprintf("port %d of %s is %s", p.Number, d.Name, stateWord(p.State)))
		case len(p.GIDs) == 0:
			problems = append(problems, fmt.Sprintf("port %d of %s has no GID, which a network interface with an address gives it", p.Number, d.Name))
		default:
			return p, nil
		}
	}
	switch {
	case len(problems) > 0:
		return verbs.PortInfo{}, errors.New(strings.Join(problems, ", "))
	case port != 0:
		return verbs.PortInfo{}, fmt.Errorf("%s has no port %d (verbs.port), but %d ports", d.Name, port, len(d.Ports))
	}
	return verbs.PortInfo{}, fmt.Errorf("%s has no port", d.Name)
}

func stateWord(s string) string {
	if s == "" {
		return "in an unknown state"
	}
	return s
}

// ChooseGID returns the index of the GID to use when none is configured, and what
// spoke for it: an address that can be routed before a link-local one, then RoCE
// v2 before v1, then IPv4 before IPv6, then the smaller index. It returns -1
// without any.
func ChooseGID(gids []verbs.GID) (index int, why string) {
	if len(gids) == 0 {
		return -1, "there is none"
	}
	best := slices.MaxFunc(gids, func(a, b verbs.GID) int {
		if s, t := score(a), score(b); s != t {
			return s - t
		}
		return b.Index - a.Index
	})
	var reasons []string
	if IsLinkLocal(best.Addr) {
		reasons = append(reasons, "link-local, nothing better")
	} else {
		reasons = append(reasons, "routable")
	}
	if best.Type != "" {
		reasons = append(reasons, best.Type)
	}
	if best.Addr.Is4In6() {
		reasons = append(reasons, "IPv4")
	}
	return best.Index, strings.Join(reasons, ", ")
}

func score(g verbs.GID) (s int) {
	if !IsLinkLocal(g.Addr) {
		s += 8
	}
	if g.Type == "RoCE v2" {
		s += 4
	}
	if g.Addr.Is4In6() {
		s += 2
	}
	return s
}

// IsLinkLocal reports whether a GID is good within one subnet only.
func IsLinkLocal(gid netip.Addr) bool { return gid.Unmap().IsLinkLocalUnicast() }
