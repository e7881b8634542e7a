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
	if e.own.IsValid() {
		id.Address = e.own.String()
		id.Device, id.MTU = interfaceOf(e.own)
	}
	return id
}

// ownAddress returns the address of a socket's own end, the zero one if it cannot be found out.
func ownAddress(fd int) netip.Addr {
	sa, err := unix.Getsockname(fd)
	if err != nil {
		return netip.Addr{}
	}
	switch a := sa.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrFrom4(a.Addr)
	case *unix.SockaddrInet6:
		return netip.AddrFrom16(a.Addr).Unmap()
	}
	return netip.Addr{}
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
