package perf

import (
	"net"

	"github.com/rdmad/rdmad/internal/fabric"
	"github.com/rdmad/rdmad/internal/perf/link"
)

// Source is what a Node is opened from.
type Source struct {
	Provider fabric.Provider
	// Name is what both sides must have in common, such as "tcp" or "libfabric shm".
	Name string
	// Version is rdmad's, for the other side's errors.
	Version string
	// Host is the address of this machine by which the other side reaches its device; empty:
	// the one of the link.
	Host string
	// NoHost: the provider has addresses of its own.
	NoHost bool
}

// Node is a device that was opened for measurements.
type Node struct {
	device fabric.Device
	source Source
	// held: a session was left as it is, and so the device is.
	held bool
}

// Open opens the device. Host is the address of the link on this side, used where the Source
// says nothing else. The caller must Close the Node.
func (s Source) Open(host string) (*Node, error) {
	var o fabric.Options
	if s.Host != "" {
		host = s.Host
	}
	if !s.NoHost {
		o = fabric.Options{Listen: net.JoinHostPort(host, "0"), Advertise: host}
	}
	d, err := s.Provider.Open(o)
	if err != nil {
		return nil, err
	}
	return &Node{device: d, source: s}, nil
}

// Caps returns what the device can do.
func (n *Node) Caps() fabric.Caps { return n.device.Caps() }

// Close closes the device, after its sessions.
func (n *Node) Close() error {
	if n.held {
		return nil
	}
	return n.device.Close()
}

func (s Source) greeting(tool Tool) link.Greeting {
	return link.Greeting{Version: s.Version, Protocol: link.Protocol, Provider: s.Name, Tool: tool.Name()}
}

// hostOf returns the host of an address of the network.
func hostOf(a net.Addr) string {
	host, _, err := net.SplitHostPort(a.String())
	if err != nil {
		return ""
	}
	return host
}
