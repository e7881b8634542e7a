//go:build verbs && cgo && linux

package verbs

import "github.com/rdmad/rdmad/internal/fabric"

// Identity implements fabric.Identifier. The MTU is that of the connection.
func (e *Endpoint) Identity() fabric.Identity {
	e.mu.Lock()
	defer e.mu.Unlock()
	d := e.dev
	id := fabric.Identity{
		Device: d.name, Port: d.port.Number, Address: d.gid.Addr.String(), RDMA: true, GIDIndex: e.gidIndex, MTU: e.addr.mtu,
		Transport: d.gid.Type + ", reliable connection by " + d.cfg.Connect,
	}
	if e.peer.mtu != 0 {
		id.MTU = min(id.MTU, e.peer.mtu)
	}
	return id
}

var _ fabric.Identifier = (*Endpoint)(nil)
