//go:build libfabric && cgo && linux

package libfabric

import "github.com/rdmad/rdmad/internal/fabric"

// Identity implements fabric.Identifier. libfabric tells no MTU.
func (e *Endpoint) Identity() fabric.Identity {
	d := e.dev
	address := d.source
	if address == "" {
		address = d.info.Address
	}
	return fabric.Identity{Device: d.info.Domain, Address: address, Transport: d.info.Provider + " " + d.info.Version}
}

var _ fabric.Identifier = (*Endpoint)(nil)
