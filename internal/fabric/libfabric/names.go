//go:build libfabric && cgo && linux

package libfabric

import (
	"encoding/binary"
	"fmt"
	"sync"

	"golang.org/x/sys/unix"
)

// taken are the names of the peers of this process's endpoints. Each endpoint has a name of its own, so no two of ours have
// peers of the same name, unless one of them lies. Then closing the one that believes it would end the connections of
// the other; see lf_sever.c.
var taken = struct {
	mu    sync.Mutex
	names map[string]bool
}{names: map[string]bool{}}

// takeName takes the name of e's peer until leaveName; e.mu is held. One that is just being closed has it for a
// moment only: who is refused asks again.
func (e *Endpoint) takeName(sockaddr []byte) error {
	if e.dev.info.Provider != rxmProvider {
		return nil
	}
	name, err := placeOf(sockaddr)
	if err != nil {
		return err
	}
	taken.mu.Lock()
	defer taken.mu.Unlock()
	if taken.names[name] && e.name != name {
		return fmt.Errorf("%w: another connection of this process leads there", errAddress)
	}
	taken.names[name] = true
	e.name = name
	return nil
}

// placeOf returns what of a socket's address lf_sever.c goes by, so that one place has one name: the library takes no notice of
// what else may be in the bytes, or behind them.
func placeOf(sockaddr []byte) (string, error) {
	if len(sockaddr) < 2 {
		return "", fmt.Errorf("%w: the name of an endpoint of %d bytes", errAddress, len(sockaddr))
	}
	family := binary.NativeEndian.Uint16(sockaddr)
	var port, addr, rest []byte
	switch {
	case family == unix.AF_INET && len(sockaddr) == unix.SizeofSockaddrInet4:
		port, addr, rest = sockaddr[2:4], sockaddr[4:8], sockaddr[8:]
	case family == unix.AF_INET6 && len(sockaddr) == unix.SizeofSockaddrInet6:
		// Of the rest the scope is part of where it is, on a link of this node.
		port, addr, rest = sockaddr[2:4], sockaddr[8:24], sockaddr[4:8]
	default:
		return "", fmt.Errorf("%w: the name of an endpoint of family %d with %d bytes", errAddress, family, len(sockaddr))
	}
	for _, b := range rest {
		if b != 0 {
			return "", fmt.Errorf("%w: the name of an endpoint with more than a place", errAddress)
		}
	}
	return string(addr) + string(port), nil
}

func (e *Endpoint) leaveName() {
	taken.mu.Lock()
	defer taken.mu.Unlock()
	delete(taken.names, e.name)
	e.name = ""
}
