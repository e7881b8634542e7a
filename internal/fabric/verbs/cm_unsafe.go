//go:build verbs && cgo && linux

package verbs

/*
#cgo LDFLAGS: -lrdmacm
#include "verbs_cm.h"
*/
import "C"

import (
	"net/netip"
	"sync"
	"syscall"
	"time"
	"unsafe"
)

// cmID is a connection identifier of librdmacm.
type cmID = *C.struct_rdma_cm_id

// cmEventKind is what an event of the connection manager says.
type cmEventKind uint8

const (
	cmOther cmEventKind = iota
	cmAddressResolved
	cmRouteResolved
	cmRequest
	cmResponse
	cmEstablished
	cmRejected
	cmUnreachable
	cmDisconnected
	cmFailed
	cmDeviceRemoved
)

// cmEvent is an event of the connection manager.
type cmEvent struct {
	id     cmID
	kind   cmEventKind
	status int32
	// private is what the peer sent along, zero if that was too short.
	private [messageSize]byte
}

// The control message is the private data: this does not compile otherwise.
var _ = [1]struct{}{}[C.VS_CM_PRIVATE-messageSize]

// cmChannel is an event channel of librdmacm.
type cmChannel struct {
	ch *C.struct_rdma_event_channel
	fd int
}

func openChannel() (*cmChannel, error) {
	c := &cmChannel{}
	var fd C.int
	if err := made(call("rdma_create_event_channel", C.vs_cm_open(&c.ch, &fd))); err != nil {
		return nil, err
	}
	c.fd = int(fd)
	return c, nil
}

func (c *cmChannel) close() {
	C.rdma_destroy_event_channel(c.ch)
	live.Add(-1)
}

// next takes an event; ok is false if there is none.
func (c *cmChannel) next() (e cmEvent, ok bool, err error) {
	var raw C.struct_vs_cm_event
	n := C.vs_cm_next(c.ch, &raw)
	if n <= 0 {
		return e, false, call("rdma_get_cm_event", n)
	}
	e = cmEvent{id: raw.id, status: int32(raw.status), private: *(*[messageSize]byte)(unsafe.Pointer(&raw.private_data))}
	switch raw._type {
	case C.RDMA_CM_EVENT_ADDR_RESOLVED:
		e.kind = cmAddressResolved
	case C.RDMA_CM_EVENT_ROUTE_RESOLVED:
		e.kind = cmRouteResolved
	case C.RDMA_CM_EVENT_CONNECT_REQUEST:
		e.kind = cmRequest
		live.Add(1)
	case C.RDMA_CM_EVENT_CONNECT_RESPONSE:
		e.kind = cmResponse
	case C.RDMA_CM_EVENT_ESTABLISHED:
		e.kind = cmEstablished
	case C.RDMA_CM_EVENT_REJECTED:
		e.kind = cmRejected
	case C.RDMA_CM_EVENT_UNREACHABLE:
		e.kind = cmUnreachable
	case C.RDMA_CM_EVENT_DISCONNECTED:
		e.kind = cmDisconnected
	case C.RDMA_CM_EVENT_ADDR_ERROR, C.RDMA_CM_EVENT_ROUTE_ERROR, C.RDMA_CM_EVENT_CONNECT_ERROR:
		e.kind = cmFailed
	case C.RDMA_CM_EVENT_DEVICE_REMOVAL:
		e.kind = cmDeviceRemoved
	}
	return e, true, nil
}

// conn is an identifier that can be destroyed while others use it. Its methods may
// be called from any goroutine; none of them waits for the peer.
type conn struct {
	mu   sync.Mutex
	id   cmID
	dead bool // guarded by mu
}

// newConn makes an identifier.
func (c *cmChannel) newConn(trafficClass int) (*conn, error) {
	n := &conn{}
	return n, made(call("rdma_create_id", C.vs_cm_create(c.ch, C.int(trafficClass), &n.id)))
}

// do calls f unless the identifier is destroyed.
func (n *conn) do(name string, f func() C.int) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.dead {
		return &CallError{Call: name, Errno: syscall.ECONNABORTED}
	}
	return call(name, f())
}

func cmAddress(a netip.AddrPort) C.struct_vs_cm_address {
	c := C.struct_vs_cm_address{port: C.uint16_t(a.Port())}
	for i, b := range a.Addr().As16() {
		c.ip[i] = C.uint8_t(b)
	}
	return c
}

func (n *conn) bind(a netip.AddrPort) error {
	c := cmAddress(a)
	return n.do("rdma_bind_addr "+a.String(), func() C.int { return C.vs_cm_bind(n.id, &c) })
}

func (n *conn) listen(backlog int) (port uint16, err error) {
	var p C.uint16_t
	err = n.do("rdma_listen", func() C.int { return C.vs_cm_listen(n.id, C.int(backlog), &p) })
	return uint16(p), err
}

// device returns the device and port that the identifier is bound to.
func (n *conn) device() (name string, port int, err error) {
	var buf [C.VS_NAME]C.char
	var p C.int
	err = n.do("rdma_cm_id device", func() C.int { return C.vs_cm_device(n.id, &buf[0], &p) })
	return C.GoString(&buf[0]), int(p), err
}

func (n *conn) resolveAddress(from, to netip.AddrPort, timeout time.Duration) error {
	f, t := cmAddress(from), cmAddress(to)
	return n.do("rdma_resolve_addr", func() C.int { return C.vs_cm_resolve(n.id, &f, &t, C.int(timeout.Milliseconds())) })
}

func (n *conn) resolveRoute(timeout time.Duration) error {
	return n.do("rdma_resolve_route", func() C.int { return C.vs_cm_route(n.id, C.int(timeout.Milliseconds())) })
}

// offer is what one side proposes to the other.
type offer struct {
	private              [messageSize]byte
	qpn                  uint32
	responder, initiator int
	retry, rnrRetry      int
}

func (o offer) c() C.struct_vs_cm_offer {
	c := C.struct_vs_cm_offer{
		qpn: C.uint32_t(o.qpn), responder: C.uint8_t(o.responder), initiator: C.uint8_t(o.initiator),
		retry: C.uint8_t(o.retry), rnr_retry: C.uint8_t(o.rnrRetry),
	}
	for i, b := range o.private {
		c.private_data[i] = C.uint8_t(b)
	}
	return c
}

func (n *conn) connect(o offer) error {
	c := o.c()
	return n.do("rdma_connect", func() C.int { return C.vs_cm_connect(n.id, &c) })
}

func (n *conn) accept(o offer) error {
	c := o.c()
	return n.do("rdma_accept", func() C.int { return C.vs_cm_accept(n.id, &c) })
}

// ready takes the queue pair to RTS.
func (n *conn) ready(p pair, l *cLink) error {
	return n.do("rdma_init_qp_attr, ibv_modify_qp", func() C.int { return C.vs_cm_ready(n.id, p.p, l) })
}

func (n *conn) establish() error {
	return n.do("rdma_establish", func() C.int { return C.vs_cm_establish(n.id) })
}

func (n *conn) disconnect() error {
	return n.do("rdma_disconnect", func() C.int { return C.vs_cm_disconnect(n.id) })
}

func (n *conn) reject() error {
	return n.do("rdma_reject", func() C.int { return C.vs_cm_reject(n.id) })
}

// destroy waits until the events that were taken are acknowledged, which next does
// at once.
func (n *conn) destroy() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.dead {
		return nil
	}
	n.dead = true
	return gone(call("rdma_destroy_id", C.vs_cm_destroy(n.id)))
}
