//go:build verbs && cgo && linux

package verbs

/*
#include "verbs_shim.h"
*/
import "C"

import (
	"sync"
	"unsafe"
)

// datagrams sends and receives control messages over an unreliable datagram queue
// pair. Its methods may be called from any goroutine.
type datagrams struct {
	qpn, secret uint32
	fd          int

	// deaf is closed when nothing is received any more, after why was set.
	deaf chan struct{}
	why  error

	mu     sync.Mutex
	c      *C.struct_vs_ctl
	closed bool // guarded by mu
}

// handle is where control messages can be sent to.
type handle = *C.struct_ibv_ah

// ctlObjects is what vs_ctl_open makes: PD, MR, channel, CQ and queue pair.
const ctlObjects = 5

func openDatagrams(ctx cContext, port, pkeyIndex int, secret uint32) (*datagrams, error) {
	d := &datagrams{secret: secret, deaf: make(chan struct{})}
	var qpn C.uint32_t
	var fd C.int
	err := call("ibv_create_qp (datagrams)", C.vs_ctl_open(ctx, C.int(port), C.int(pkeyIndex), C.uint32_t(secret), &d.c, &qpn, &fd))
	if err != nil {
		return nil, err
	}
	live.Add(ctlObjects)
	d.qpn, d.fd = uint32(qpn), int(fd)
	return d, nil
}

func (d *datagrams) close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = true
	err := call("ibv_destroy_qp (datagrams)", C.vs_ctl_close(d.c))
	if err == nil {
		live.Add(-ctlObjects)
	}
	return err
}

// handleFor makes what send needs; the caller must release it before close.
func (d *datagrams) handleFor(p *cPath) (handle, error) {
	var ah handle
	return ah, made(call("ibv_create_ah", C.vs_ctl_ah(d.c, p, &ah)))
}

func (d *datagrams) release(ah handle) error {
	return gone(callErrno("ibv_destroy_ah", C.ibv_destroy_ah(ah)))
}

// send sends m, or loses it.
func (d *datagrams) send(ah handle, qpn, secret uint32, m message) error {
	b := m.encode()
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil
	}
	return call("ibv_post_send (datagram)", C.vs_ctl_send(d.c, ah, C.uint32_t(qpn), C.uint32_t(secret), unsafe.Pointer(&b[0]), messageSize))
}

// receive returns the next message; ok is false when there is none. What is not a
// message is one of kind 0, which is for nobody: strangers may send it without end.
func (d *datagrams) receive() (m message, ok bool, err error) {
	var b [messageSize]byte
	d.mu.Lock()
	n := C.vs_ctl_recv(d.c, unsafe.Pointer(&b[0]), messageSize)
	d.mu.Unlock()
	if n <= 0 {
		return m, false, call("ibv_poll_cq (datagrams)", n)
	}
	m, _ = decodeMessage(b[:n])
	return m, true, nil
}

// goDeaf notes that nothing is received any more, and why. It is called once.
func (d *datagrams) goDeaf(why error) {
	d.why = why
	close(d.deaf)
}

// rearm silences the descriptor and makes the next message ring it; messages may
// have come meanwhile.
func (d *datagrams) rearm() error {
	return call("ibv_req_notify_cq (datagrams)", C.vs_ctl_rearm(d.c))
}
