//go:build libfabric && cgo && linux

package libfabric

import (
	"errors"
	"sync"
)

// Endpoints of the provider shm in one process use each other's memory directly, and the
// library does not notice when one of them goes: the other would then use memory that is
// gone. So of two such neighbours neither is closed before both have ended, and what their
// devices have to say to each other goes by a call. Between processes, which is what the
// provider is for, none of this happens.
var neighbours = struct {
	mu      sync.Mutex
	ends    map[token]*Endpoint
	devices map[string]*Device
}{ends: map[token]*Endpoint{}, devices: map[string]*Device{}}

// settleIn makes an endpoint known to its neighbours.
func (e *Endpoint) settleIn() {
	if e.dev.info.Provider != shmProvider {
		return
	}
	neighbours.mu.Lock()
	defer neighbours.mu.Unlock()
	neighbours.ends[e.addr.token] = e
}

// bury closes the library's endpoint, or leaves that to the neighbour that it is connected
// to; e.mu is held.
func (e *Endpoint) bury() error {
	if e.dev.info.Provider != shmProvider {
		err := e.lib.close()
		if err == nil {
			e.pd.open.Add(-1)
		}
		return err
	}
	neighbours.mu.Lock()
	defer neighbours.mu.Unlock()
	delete(neighbours.ends, e.addr.token)
	if e.unmapped {
		e.pd.keep() // for good
		return nil
	}
	if other := neighbours.ends[e.peer.token]; other != nil && other.late == nil {
		other.late = e
		e.pd.keep()
		return nil
	}
	err := e.lib.close()
	if late := e.late; late != nil {
		e.late = nil
		err = errors.Join(err, late.lib.close(), late.pd.letGo())
	}
	return err
}

// moveIn makes a device known to its neighbours, moveOut is the opposite.
func (d *Device) moveIn() {
	neighbours.mu.Lock()
	defer neighbours.mu.Unlock()
	if d.info.Provider == shmProvider {
		neighbours.devices[string(d.ctlName)] = d
	}
}

func (d *Device) moveOut() {
	neighbours.mu.Lock()
	defer neighbours.mu.Unlock()
	delete(neighbours.devices, string(d.ctlName))
}

// neighbour returns the device of this process that takes control messages under a name.
func neighbour(name string) *Device {
	neighbours.mu.Lock()
	defer neighbours.mu.Unlock()
	return neighbours.devices[name]
}
