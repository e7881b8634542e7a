//go:build libfabric && cgo && linux

package libfabric

import (
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdmad/rdmad/internal/fabric"
)

const (
	// controlRest is how long the device's goroutine sleeps where no descriptor wakes it, as
	// long as there are endpoints, and while the library takes no message.
	controlRest = 2 * time.Millisecond
	// deafRest is how long it sleeps at most after the library could not say whether there are messages: a descriptor may tell nothing
	// then, and what was in the way may have gone.
	deafRest = 100 * time.Millisecond
	// letterTime is how long a message to a peer is tried: the peer may be gone, too.
	letterTime = 2 * time.Second
	// lastTime is the same for all of a device that is closed.
	lastTime = 100 * time.Millisecond
	// leastTries is how often it is tried at least, controlRest apart unless somebody rings: the device's goroutine may stand still for
	// longer than both, while the library does nothing for it either.
	leastTries = 50
	// heardAtOnce is how many messages are taken before others are sent: peers that never stop
	// keep nobody from hearing of an end.
	heardAtOnce = 256
)

// controlPeer is the control endpoint of a peer's device; guarded by Device.mu.
type controlPeer struct {
	name string
	addr uint64
	refs int     // endpoints that are connected to it, and letters; 0 only with shm: see files.go
	near *Device // of this process
}

// letter is a message that waits to be sent.
type letter struct {
	to    *controlPeer
	m     message
	until time.Time
	tries int // in vain
}

// controlOf returns the control endpoint of a peer's device, to be released.
func (d *Device) controlOf(name []byte) (*controlPeer, error) {
	near := neighbour(string(name)) // before d.mu is held: who closes an endpoint beside others takes them the other way round
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, fabric.ErrClosed
	}
	if near != nil {
		return &controlPeer{near: near}, nil
	}
	p := d.peers[string(name)]
	if p == nil {
		files := d.info.Provider == shmProvider
		if files && !present(string(name)) {
			return nil, errPeerGone
		}
		addr, err := d.ctl.peer(name)
		if err != nil {
			return nil, err
		}
		if files && !present(string(name)) {
			d.unmapped = true
			return nil, errPeerGone
		}
		p = &controlPeer{name: string(name), addr: addr}
		d.peers[p.name] = p
	}
	p.refs++
	return p, nil
}

// release gives a control endpoint back; d.mu is held.
func (d *Device) release(p *controlPeer) {
	if p.refs--; p.refs > 0 || d.info.Provider == shmProvider {
		return // with shm until it has gone: see files.go
	}
	d.unused = append(d.unused, p)
}

// forgetUnused has the library forget control endpoints that nobody needs; d.mu is held, and nothing is being sent. Of what is on its way to an
// address that is forgotten some providers say nothing any more (efa), and the place that it is sent from would never be free again.
func (d *Device) forgetUnused() {
	for i, p := range d.unused {
		if p.refs == 0 && d.peers[p.name] == p { // not needed again since
			delete(d.peers, p.name)
			d.ctl.forget(p.addr)
		}
		d.unused[i] = nil
	}
	d.unused = d.unused[:0]
}

// leave tells the peer of an endpoint that it has ended, once. why is the status that it has
// failed with, or StatusSuccess.
func (d *Device) leave(e *Endpoint, why fabric.Status) {
	e.mu.Lock()
	to := e.control
	e.control = nil
	m := message{kind: msgGone, why: why, to: e.peer.token, from: e.addr.token}
	// With shm the peer's device must know this one before it gets a message: see files.go.
	unheard := e.isLost || e.dev.info.Provider == shmProvider && !e.greeted.heard
	e.mu.Unlock()
	if to == nil {
		return
	}
	if to.near != nil {
		to.near.heard(m)
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if unheard || d.closed {
		d.release(to)
		d.bell.Ring()
		return
	}
	d.outbox = append(d.outbox, letter{to: to, m: m, until: time.Now().Add(letterTime)})
	d.bell.Ring()
}

// serve takes and sends control messages until the device is closed.
func (d *Device) serve() {
	defer d.wg.Done()
	fds := []unix.PollFd{{Fd: int32(d.bell.FD()), Events: unix.POLLIN}, {Events: unix.POLLIN}}
	for {
		departed := d.departed()
		working, more := d.receive()
		d.forget(departed)
		timeout, open := d.deliver(time.Now())
		if !open {
			return
		}
		fds[1].Fd = int32(d.ctl.fd)
		switch {
		case !working:
			fds[1].Fd = -1 // it may be ready all the time
			if timeout < 0 {
				timeout = int(deafRest.Milliseconds())
			}
		case more || d.waits && !d.ctl.arm():
			timeout = 0
		}
		// An interrupted wait is one without events.
		if n, err := unix.Poll(fds, timeout); n > 0 && err == nil && fds[0].Revents != 0 {
			d.bell.Silence()
		}
	}
}

// receive handles messages that have come. working is false if the library cannot say whether there
// are others, and more true if there may be some now.
func (d *Device) receive() (working, more bool) {
	for range heardAtOnce {
		m, ok, err := d.ctl.receive()
		if err != nil || !ok {
			return err == nil, false
		}
		d.heard(m)
	}
	return true, true
}

// heard handles a message, which may come from anybody who knows the token.
func (d *Device) heard(m message) {
	d.mu.Lock()
	e := d.endpoints[m.to]
	d.mu.Unlock()
	if e == nil || m.kind != msgGone {
		return
	}
	e.mu.Lock()
	ok := e.peer.token == m.from && e.phase() != phaseNew
	e.mu.Unlock()
	if ok {
		e.peerGone(m.why)
	}
}

// deliver sends what the library takes, and returns for how many milliseconds nothing is to
// be done, -1: until somebody rings. open is false when the device was closed and nothing
// more can be said.
func (d *Device) deliver(now time.Time) (timeout int, open bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	left := d.outbox[:0]
	for _, l := range d.outbox {
		if d.closed && l.until.After(d.last) {
			l.until = d.last
		}
		// An error is as good as a peer that is gone.
		sent, _ := d.ctl.send(l.to.addr, l.m)
		if l.tries++; sent || l.tries >= leastTries && now.After(l.until) {
			d.release(l.to)
			continue
		}
		left = append(left, l)
	}
	clear(d.outbox[len(left):])
	d.outbox = left
	if d.closed {
		d.partings++
	}
	sending := d.ctl.sending()
	if !sending {
		d.forgetUnused()
	}
	switch {
	case d.closed && len(left) == 0 && (!sending || d.partings >= leastTries && now.After(d.last)):
		return 0, false
	case len(left) > 0 || sending || !d.waits && len(d.endpoints) > 0:
		return int(controlRest.Milliseconds()), true
	}
	return -1, true
}
