//go:build libfabric && cgo && linux

package libfabric

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rdmad/rdmad/internal/fabric"
)

// Bounds of the sleeps of a Connect, which moves its endpoint's messages on itself.
const (
	helloFirst = 50 * time.Microsecond
	helloMost  = 2 * time.Millisecond
)

var (
	errPeerGone = errors.New("the peer has closed its end")
	errUnasked  = errors.New("there is a message that nobody asked for: the peer is another program, or a stranger is where it is")
)

// greeting is what is known of the two greetings of a connection; guarded by Endpoint.mu.
type greeting struct {
	heard bool // the peer's has come
	said  bool // this end's is under way
	taken bool // and has arrived
}

// Connect implements fabric.Endpoint. The active end greets, and the passive one answers:
// so only one of them opens a connection, where the provider has them. A peer with
// another provider is a *PeerError.
func (e *Endpoint) Connect(ctx context.Context, peer []byte, role fabric.Role) error {
	a, err := decodeAddress(peer)
	if err != nil {
		return &fabric.ConnectError{Peer: "unknown", Err: err}
	}
	if err = e.begin(a); err == nil {
		err = e.connected(e.greet(ctx, role))
	}
	if err != nil {
		return &fabric.ConnectError{Peer: fmt.Sprintf("%s %s", a.provider, versionText(a.version)), Err: err}
	}
	return nil
}

// Expect implements fabric.Expecter.
func (e *Endpoint) Expect(peer []byte) error {
	a, err := decodeAddress(peer)
	if err != nil {
		return err
	}
	if err := e.addr.fits(a); err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.phase() != phaseNew || e.destroyed {
		return fabric.ErrInvalid
	}
	return e.lib.expect(a)
}

// begin makes the peer known to the library.
func (e *Endpoint) begin(a address) error {
	if err := e.addr.fits(a); err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.phase() == phaseClosed || e.destroyed: // it has failed with its device
		return fabric.ErrClosed
	case e.phase() != phaseNew:
		return fabric.ErrInvalid
	}
	if a.token == e.addr.token {
		return fmt.Errorf("%w: it is this end's own", errAddress)
	}
	if e.dev.info.Provider == shmProvider && !present(string(a.name)) {
		return errPeerGone
	}
	if err := e.takeName(a.name); err != nil {
		return err
	}
	if err := e.lib.join(a, message{kind: msgHello, to: e.addr.token, from: a.token}); err != nil {
		return err
	}
	if e.dev.info.Provider == shmProvider && !present(string(a.name)) {
		e.unmapped = true
		return errPeerGone
	}
	control, err := e.dev.controlOf(a.control)
	if err != nil {
		return err
	}
	e.peer, e.control = a, control
	e.state.Store(uint32(phaseConnecting))
	return nil
}

// greet exchanges greetings with the peer.
func (e *Endpoint) greet(ctx context.Context, role fabric.Role) error {
	for wait := helloFirst; ; wait = min(2*wait, helloMost) {
		done, err := e.converse(role)
		if done || err != nil {
			return err
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
			continue
		case <-e.lost:
			err = errPeerGone
		case <-e.ended:
			err = fabric.ErrClosed
		case <-ctx.Done():
			err = ctx.Err()
		}
		timer.Stop()
		return err
	}
}

// converse moves the greetings on. Whatever else comes is held for Activate.
func (e *Endpoint) converse(role fabric.Role) (done bool, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.destroyed {
		return false, fabric.ErrClosed
	}
	if g := &e.greeted; !g.said && (role == fabric.Active || g.heard) {
		if g.said, err = e.lib.sayHello(message{kind: msgHello, to: e.peer.token, from: e.addr.token}); err != nil {
			return false, err
		}
	}
	var wcs [16]cWC
	for _, w := range wcs[:e.lib.poll(wcs[:])] {
		if err := e.greetingOf(&w); err != nil {
			return false, err
		}
	}
	return e.greeted.heard && e.greeted.taken, nil
}

// greetingOf handles a completion before the connection is made; e.mu is held.
func (e *Endpoint) greetingOf(w *cWC) error {
	first := uint32(e.sq.Cap() + e.loud.Cap())
	switch i := uint32(w.index); {
	case i == first:
		e.greeted.heard = true
	case i == unasked:
		return errUnasked
	case i == first+1:
		if w.status != 0 {
			return callError("greeting", int(w.status))
		}
		e.greeted.taken = true
	case i < first || i == arrived && w.status == 0:
		if len(e.held) > maxEarly {
			return fabric.ErrInvalid
		}
		e.held = append(e.held, *w)
	case w.status == 0:
		return fmt.Errorf("%w: the library tells of work %d, which is none of a connection", fabric.ErrInvalid, i)
	default: // what ends a connection ends one that is not made yet
		return callError("connection", int(w.status))
	}
	return nil
}

// connected ends a Connect whose greetings have ended with err. What is looked for when an endpoint is closed is noted here, also of
// one that is not connected: that takes long in a process with many descriptors, and an agent closes it.
func (e *Endpoint) connected(err error) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.destroyed {
		err = cmp.Or(err, e.lib.settle())
	}
	switch {
	case err != nil:
		return err
	case e.phase() == phaseClosed:
		return fabric.ErrClosed
	case e.isLost:
		return errPeerGone
	}
	e.state.Store(uint32(phaseConnected))
	return nil
}

// peerGone handles the news that the peer has closed its end, or that it has failed.
func (e *Endpoint) peerGone(why fabric.Status) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.isLost || e.phase() == phaseClosed {
		return
	}
	e.isLost = true
	close(e.lost)
	if e.phase() < phaseConnected {
		return
	}
	n := notice{e: e, why: fabric.StatusFlushed, vendor: VendorPeerClosed}
	if why != fabric.StatusSuccess {
		n.why, n.vendor = mirrored(why), VendorPeerFailed
	}
	e.cq.notify(n)
}

// mirrored is what a failure of the peer means at this end.
func mirrored(why fabric.Status) fabric.Status {
	switch why {
	case fabric.StatusLocalLength, fabric.StatusLocalProtection:
		return fabric.StatusRemoteInvalid
	case fabric.StatusFatal:
		return fabric.StatusRemoteOperation
	case fabric.StatusFlushed, fabric.StatusRetryExceeded:
		return fabric.StatusFlushed
	default: // this side has refused a request of the peer
		return fabric.StatusFatal
	}
}
