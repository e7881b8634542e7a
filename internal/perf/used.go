package perf

import (
	"fmt"
	"strings"

	"github.com/rdmad/rdmad/internal/fabric"
)

const kindUsed = "used"

// Used is what a side really uses, for reports.
type Used struct {
	// Provider is as in the greeting: "tcp", "verbs", "libfabric shm".
	Provider string `json:"provider"`
	fabric.Identity
	// Detail is what the device says of itself, and of the connection.
	Detail string `json:"detail,omitempty"`
}

// describer is implemented by devices and endpoints that say in one line what they use.
type describer interface{ Describe() string }

// used asks the first endpoint and the device.
func (s *Session) used(n *Node) Used {
	u := Used{Provider: n.source.Name}
	if i, ok := s.Endpoints[0].(fabric.Identifier); ok {
		u.Identity = i.Identity()
	}
	for _, v := range []any{n.device, s.Endpoints[0]} {
		if d, ok := v.(describer); ok {
			if text := d.Describe(); text != "" {
				u.Detail = text
			}
		}
	}
	return u
}

// String says it for people.
func (u Used) String() string {
	parts := []string{"provider " + u.Provider}
	add := func(format string, v any, there bool) {
		if there {
			parts = append(parts, fmt.Sprintf(format, v))
		}
	}
	add("device %v", u.Device, u.Device != "")
	add("port %v", u.Port, u.Port != 0)
	add("GID index %v", u.GIDIndex, u.RDMA)
	add("address %v", u.Address, u.Address != "")
	if u.MTU != 0 {
		parts = append(parts, fmt.Sprintf("MTU %d", u.MTU))
	} else {
		parts = append(parts, "MTU not known")
	}
	add("transport %v", u.Transport, u.Transport != "")
	return strings.Join(parts, ", ")
}
