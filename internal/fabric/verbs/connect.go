//go:build verbs && cgo && linux

package verbs

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdmad/rdmad/internal/fabric"
)

const (
	// readyFirst and readyMost are the waits before a msgReady is repeated; each
	// is twice the one before.
	readyFirst = 2 * time.Millisecond
	readyMost  = 100 * time.Millisecond
)

// farewellWaits are the waits before a msgGone is repeated, and before the way to the peer is given up.
var farewellWaits = [...]time.Duration{20 * time.Millisecond, 100 * time.Millisecond, 100 * time.Millisecond}

const (
	// repetitions is how often a msgGone is repeated.
	repetitions = len(farewellWaits) - 1
	// farewellRest is the wait while there is no room for one, farewellTries how often that is tried: about two seconds. They are counted
	// since the device's goroutine may stand still for as long, while nobody makes room.
	farewellRest  = time.Millisecond
	farewellTries = 1000
)

var errPeerGone = fmt.Errorf("%w while it was being connected", fabric.ErrPeerClosed)

// route is where control messages for the peer of an endpoint go.
type route struct {
	ah          handle // nil: nowhere yet
	qpn, secret uint32
}

// farewell is a msgGone that is still to be repeated, or is on its way. It owns its route: what is sent by a handle that is released may
// not be sent at all.
type farewell struct {
	to          route
	m           message
	next        time.Time
	sent, tries int // repetitions, and how often there was no room for the next
}

// Connect implements fabric.Endpoint. It may be called once. Both roles do the same
// with ConnectOOB: the queue pair is made ready and the peer told so, until the peer
// has said the same of its own; what is sent after that is not lost.
func (e *Endpoint) Connect(ctx context.Context, peer []byte, role fabric.Role) error {
	a, err := decodeAddress(peer)
	if err != nil {
		return &fabric.ConnectError{Peer: "?", Err: err}
	}
	if err := e.connect(ctx, a, role); err != nil {
		return &fabric.ConnectError{Peer: a.String(), Err: err}
	}
	return nil
}

func (e *Endpoint) connect(ctx context.Context, a address, role fabric.Role) error {
	if err := mismatch(e.addr, a); err != nil {
		return err
	}
	e.mu.Lock()
	if e.phase() != phaseNew {
		e.mu.Unlock()
		return fabric.ErrClosed
	}
	e.state.Store(uint32(phaseConnecting))
	e.peer = a
	if e.met == a.token {
		e.hear()
	}
	e.mu.Unlock()

	var err error
	if e.dev.cm != nil {
		err = e.connectCM(ctx, a, role)
	} else {
		err = e.connectOOB(ctx, a)
	}
	if err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.phase() != phaseConnecting:
		return fabric.ErrClosed
	case e.isLost:
		return errPeerGone
	}
	e.state.Store(uint32(phaseConnected))
	return nil
}

// link returns the attributes of a connection of an end whose path MTU is at most mtu with the end at a.
func (d *Device) link(a address, mtu int) cLink {
	return cLink{
		path: d.path(a), mtu: cUint32(min(mtu, a.mtu)), dest_qpn: cUint32(a.qpn), rq_psn: cUint32(a.psn),
		max_dest_rd: cUint8(d.reads()), max_rd: cUint8(d.readsAt(a)),
		min_rnr_timer: cUint8(d.cfg.MinRNRTimer), timeout: cUint8(d.cfg.Timeout),
		retry: cUint8(d.cfg.RetryCount), rnr_retry: cUint8(d.cfg.RNRRetry),
	}
}

func (e *Endpoint) connectOOB(ctx context.Context, a address) error {
	if err := e.makeReady(ctx, a); err != nil {
		return err
	}
	for wait := readyFirst; ; wait = min(2*wait, readyMost) {
		// A message that cannot be sent is as good as a lost one.
		_ = e.sayReady()
		timer := time.NewTimer(wait)
		select {
		case <-e.heard:
			timer.Stop()
			return nil
		case <-timer.C:
			continue
		case <-e.lost:
			timer.Stop()
			return errPeerGone
		case <-e.ended:
			timer.Stop()
			return fabric.ErrClosed
		case <-e.dev.ctl.deaf:
			timer.Stop()
			return fmt.Errorf("%s receives no control messages any more (rdmad upgrade starts a core that opens it anew): %w", e.dev.name, e.dev.ctl.why)
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		}
	}
}

// makeReady connects the queue pair with the peer's and opens the way for control messages. The kernel looks for where the peer
// is, for a second if it is nowhere, which Connect need not wait for.
func (e *Endpoint) makeReady(ctx context.Context, a address) error {
	if !e.dev.beginMaking() {
		return fabric.ErrClosed
	}
	made := make(chan error, 1)
	go func() {
		defer e.dev.making.Done()
		made <- e.make(ctx, a)
	}()
	select {
	case err := <-made:
		return err
	case <-e.lost:
		return errPeerGone
	case <-e.ended:
		return fabric.ErrClosed
	case <-ctx.Done():
		return ctx.Err()
	}
}

// make does what makeReady waits for. It holds e.mu neither while the kernel looks for the peer nor while it changes the
// queue pair, which nobody destroys meanwhile: see destroy.
func (e *Endpoint) make(ctx context.Context, a address) error {
	d := e.dev
	index, err := d.gidIndex(d.gid)
	if err != nil {
		return err
	}
	link := d.link(a, e.addr.mtu)
	link.sq_psn, link.path.sgid_index = cUint32(e.addr.psn), cUint8(index)
	ah, err := d.ctl.handleFor(&link.path)
	if err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.destroyed || e.phase() == phaseClosed:
		return errors.Join(fabric.ErrClosed, d.ctl.release(ah))
	case ctx.Err() != nil: // makeReady may hear of this before it looks at ctx
		return errors.Join(ctx.Err(), d.ctl.release(ah))
	}
	if err := e.turn(func() error { return e.lib.toReady(&link) }); err != nil {
		return errors.Join(fmt.Errorf("path MTU %d, GID index %d: %w", link.mtu, index, err), d.ctl.release(ah))
	}
	e.to = route{ah: ah, qpn: a.ctlQPN, secret: a.ctlSecret}
	e.ready, e.gidIndex = true, index
	return nil
}

// turn has the kernel change the queue pair by f, which may take it a second. e.mu is held, but not meanwhile: nobody destroys the
// queue pair then, see destroy.
func (e *Endpoint) turn(f func() error) error {
	e.turning = true
	e.mu.Unlock()
	err := f()
	e.mu.Lock()
	e.turning = false
	e.turned.Broadcast()
	return err
}

// beginMaking counts a goroutine that makes an end ready, which ends before the device is closed.
func (d *Device) beginMaking() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return false
	}
	d.making.Add(1)
	return true
}

// sayReady tells the peer that the queue pair takes messages.
func (e *Endpoint) sayReady() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.ready || e.destroyed {
		return nil
	}
	kind := msgReady
	if e.isHeard {
		kind = msgReadyBoth
	}
	return e.say(kind)
}

// say sends a control message; e.mu is held.
func (e *Endpoint) say(kind messageKind) error {
	return e.dev.ctl.send(e.to.ah, e.to.qpn, e.to.secret, message{kind: kind, to: e.peer.token, from: e.addr.token})
}

// heard handles a control message, which may come from anybody who knows the token.
func (d *Device) heard(m message) {
	d.mu.Lock()
	e := d.endpoints[m.to]
	d.mu.Unlock()
	if e == nil || m.kind == 0 {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.phase() == phaseNew {
		if m.kind != msgGone {
			e.met = m.from // Connect will say whether it is the right one
		}
		return
	}
	if m.from != e.peer.token {
		return
	}
	if m.kind == msgGone {
		e.peerGone()
		return
	}
	e.hear()
	if m.kind == msgReady && e.ready && !e.destroyed {
		// A lost answer is asked for again.
		_ = e.say(msgReadyBoth)
	}
}

// hear notes that the peer is there; e.mu is held.
func (e *Endpoint) hear() {
	if !e.isHeard {
		e.isHeard = true
		close(e.heard)
	}
}

// peerGone handles the news that the peer has closed its end; e.mu is held.
func (e *Endpoint) peerGone() {
	if e.isLost || e.phase() == phaseClosed {
		return
	}
	e.isLost = true
	close(e.lost)
	if e.phase() >= phaseConnected {
		e.cq.notify(notice{e: e, why: fabric.StatusFlushed, vendor: VendorPeerClosed, end: endPeer})
	}
}

// depart tells the peer of an endpoint that has failed. A peer that is not told
// learns of it from its retries.
func (d *Device) depart(e *Endpoint) {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.isLost:
	case e.cm != nil:
		_ = e.cm.disconnect()
	case d.ctl != nil && e.ready:
		_ = e.say(msgGone)
	}
}

// leave forgets an endpoint that has been closed and tells its peer.
func (d *Device) leave(e *Endpoint) error {
	d.mu.Lock()
	delete(d.endpoints, e.addr.token)
	d.mu.Unlock()
	if d.cm != nil {
		return e.leaveCM()
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.ready {
		return nil
	}
	e.ready = false
	now := time.Now()
	f := farewell{
		to: e.to, m: message{kind: msgGone, to: e.peer.token, from: e.addr.token}, next: now.Add(farewellWaits[0]),
	}
	if e.isLost {
		f.sent = repetitions // it need not be told
	} else {
		_ = e.say(msgGone)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return d.ctl.release(e.to.ah)
	}
	d.farewells = append(d.farewells, f)
	d.bell.Ring()
	return nil
}

// repeatFarewells sends those that are due and returns the wait in milliseconds for
// the next one, -1: none. open is false when the device was closed.
func (d *Device) repeatFarewells(now time.Time) (timeout int, open bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return 0, false
	}
	left := d.farewells[:0]
	timeout = -1
	for _, f := range d.farewells {
		if !now.Before(f.next) && !f.repeat(d.ctl, now) {
			// What a release of a handle may fail with is nothing that
			// anybody could do something about.
			_ = d.ctl.release(f.to.ah)
			continue
		}
		if ms := int(f.next.Sub(now).Milliseconds()) + 1; timeout < 0 || ms < timeout {
			timeout = ms
		}
		left = append(left, f)
	}
	d.farewells = left
	return timeout, true
}

// repeat repeats a farewell that is due. False: it is over. Many at once find no room, until the device's goroutine has taken in that
// others were sent.
func (f *farewell) repeat(c *datagrams, now time.Time) bool {
	if f.sent == repetitions || f.tries == farewellTries {
		return false
	}
	if err := c.send(f.to.ah, f.to.qpn, f.to.secret, f.m); errors.Is(err, unix.EAGAIN) {
		f.next = now.Add(farewellRest)
		f.tries++
		return true
	}
	f.sent++
	f.next = now.Add(farewellWaits[f.sent])
	return true
}
