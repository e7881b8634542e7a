//go:build libfabric && cgo && linux

package libfabric

import (
	"net"

	"github.com/rdmad/rdmad/internal/fabric"
)

// Identity implements fabric.Identifier. libfabric tells no MTU, but the domains of providers over
// sockets are network interfaces, which have one.
func (e *Endpoint) Identity() fabric.Identity {
	d := e.dev
	address := d.source
	if address == "" {
		address = d.info.Address
	}
	mtu := 0
	if i, err := net.InterfaceByName(d.info.Domain); err == nil {
		mtu = i.MTU
	}
	return fabric.Identity{Device: d.info.Domain, Address: address, MTU: mtu, Transport: d.info.Provider + " " + d.info.Version}
}

var _ fabric.Identifier = (*Endpoint)(nil)
