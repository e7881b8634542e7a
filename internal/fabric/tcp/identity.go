package tcp

import (
	"net"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/rdmad/rdmad/internal/fabric"
)

// Identity implements fabric.Identifier.
func (e *Endpoint) Identity() fabric.Identity {
	e.mu.Lock()
	defer e.mu.Unlock()
	id := fabric.Identity{Transport: "TCP"}
	if e.sec != nil {
		id.Transport = "TCP with TLS"
	}
	if e.phase != phaseConnected && e.phase != phaseActive {
		return id
	}
	sa, err := unix.Getsockname(e.fd)
	if err != nil {
		return id
	}
	var own netip.Addr
	switch a := sa.(type) {
	case *unix.SockaddrInet4:
		own = netip.AddrFrom4(a.Addr)
	case *unix.SockaddrInet6:
		own = netip.AddrFrom16(a.Addr).Unmap()
	}
	id.Address = own.String()
	id.Device, id.MTU = interfaceOf(own)
	return id
}

// interfaceOf returns the name and the MTU of the network interface with an address, or
// nothing if they cannot be found out.
func interfaceOf(own netip.Addr) (name string, mtu int) {
	all, err := net.Interfaces()
	if err != nil {
		return "", 0
	}
	for _, i := range all {
		addresses, err := i.Addrs()
		if err != nil {
			continue
		}
		for _, a := range addresses {
			if p, err := netip.ParsePrefix(a.String()); err == nil && (p.Addr() == own || i.Flags&net.FlagLoopback != 0 && p.Contains(own)) {
				return i.Name, i.MTU
			}
		}
	}
	return "", 0
}

var _ fabric.Identifier = (*Endpoint)(nil)
