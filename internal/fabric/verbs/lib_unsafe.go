//go:build verbs && cgo && linux

package verbs

/*
#cgo CFLAGS: -O2 -Wall -Wextra
#cgo LDFLAGS: -libverbs
#include <stdlib.h>
#include "verbs_shim.h"
*/
import "C"

import (
	"fmt"
	"net/netip"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"unsafe"

	"github.com/rdmad/rdmad/internal/fabric"
)

// The objects of libibverbs, for the files that cannot say C.
type (
	cContext = *C.struct_ibv_context
	cPD      = *C.struct_ibv_pd
	cMR      = *C.struct_ibv_mr
	cPath    = C.struct_vs_path
)

// live counts the objects of the libraries that are not destroyed yet.
var live atomic.Int64

// made counts a new object if its creation went well.
func made(err error) error {
	if err == nil {
		live.Add(1)
	}
	return err
}

// gone discounts a destroyed object.
func gone(err error) error {
	if err == nil {
		live.Add(-1)
	}
	return err
}

// call turns the result of a shim function into an error.
func call(name string, rc C.int) error {
	if rc >= 0 {
		return nil
	}
	return &CallError{Call: name, Errno: syscall.Errno(-rc)}
}

// callErrno is call for functions that return an errno.
func callErrno(name string, rc C.int) error {
	if rc < 0 {
		rc = -rc
	}
	return call(name, -rc)
}

// forkInit makes registered memory safe in a process that starts others. It must
// come before every other call of the library.
var forkInit = sync.OnceValue(func() error { return call("ibv_fork_init", C.vs_fork_init()) })

// listDevices returns the names and character devices of the RDMA devices.
func listDevices() (names, nodes []string, err error) {
	if err := forkInit(); err != nil {
		return nil, nil, err
	}
	list := make([]C.struct_vs_name, C.VS_MAX_DEVICES)
	n := C.vs_list(&list[0], C.int(len(list)))
	if err := call("ibv_get_device_list", n); err != nil {
		return nil, nil, err
	}
	for i := range list[:n] {
		names = append(names, C.GoString(&list[i].name[0]))
		nodes = append(nodes, C.GoString(&list[i].node[0]))
	}
	return names, nodes, nil
}

func openContext(name string) (cContext, error) {
	s := C.CString(name)
	defer C.free(unsafe.Pointer(s))
	var ctx cContext
	return ctx, made(call("ibv_open_device "+name, C.vs_open(s, &ctx)))
}

func closeContext(ctx cContext) error {
	return gone(callErrno("ibv_close_device", C.ibv_close_device(ctx)))
}

func queryDevice(ctx cContext) (info DeviceInfo, initReads, ports int, err error) {
	var a C.struct_vs_limits
	if err := call("ibv_query_device", C.vs_query_device(ctx, &a)); err != nil {
		return info, 0, 0, err
	}
	g := uint64(a.guid)
	info.GUID = fmt.Sprintf("%04x:%04x:%04x:%04x", g>>48, g>>32&0xffff, g>>16&0xffff, g&0xffff)
	info.Firmware = C.GoString(&a.firmware[0])
	info.Limits = Limits{
		MaxQP: int(a.max_qp), MaxQPWR: int(a.max_qp_wr), MaxSGE: int(a.max_sge), MaxCQ: int(a.max_cq), MaxCQE: int(a.max_cqe),
		MaxMR: int(a.max_mr), MaxMRSize: uint64(a.max_mr_size), MaxPD: int(a.max_pd), MaxRdAtomic: int(a.max_rd_atom),
		Atomic: a.atomic != 0, AtomicGlobal: a.atomic_global != 0,
	}
	return info, int(a.max_init_rd_atom), int(a.ports), nil
}

var portStates = [...]string{"NOP", "DOWN", "INIT", "ARMED", "ACTIVE", "ACTIVE_DEFER"}

// queryPort describes a port, without its GIDs, and says how long its GID and
// partition key tables are and how large a message may be.
func queryPort(ctx cContext, port int) (p PortInfo, gids, pkeys int, maxMsg uint32, err error) {
	var a C.struct_vs_port
	if err := call(fmt.Sprintf("ibv_query_port %d", port), C.vs_query_port(ctx, C.int(port), &a)); err != nil {
		return p, 0, 0, 0, err
	}
	p = PortInfo{Number: port, MaxMTU: int(a.max_mtu), ActiveMTU: int(a.active_mtu), LID: int(a.lid), GRHRequired: a.grh_required != 0}
	p.State = fmt.Sprintf("STATE_%d", a.state)
	if int(a.state) < len(portStates) {
		p.State = portStates[a.state]
	}
	p.LinkLayer = linkInfiniBand
	if a.link_layer == C.IBV_LINK_LAYER_ETHERNET {
		p.LinkLayer = linkEthernet
	}
	return p, int(a.gids), int(a.pkeys), uint32(a.max_msg), nil
}

// queryGIDs returns the filled entries of a port's GID table, in order.
func queryGIDs(ctx cContext, port int) ([]GID, error) {
	list := make([]C.struct_vs_gid, C.VS_MAX_GIDS)
	n := C.vs_query_gids(ctx, &list[0], C.int(len(list)))
	if err := call("ibv_query_gid_table", n); err != nil {
		return nil, err
	}
	var gids []GID
	for i := range list[:n] {
		g := &list[i]
		if int(g.port) != port {
			continue
		}
		kind := gidIB
		switch g._type {
		case C.IBV_GID_TYPE_ROCE_V1:
			kind = gidRoCEv1
		case C.IBV_GID_TYPE_ROCE_V2:
			kind = gidRoCEv2
		}
		gids = append(gids, GID{Index: int(g.index), Addr: netip.AddrFrom16(*(*[16]byte)(unsafe.Pointer(&g.gid))), Type: kind, Netdev: C.GoString(&g.netdev[0])})
	}
	return gids, nil
}

func queryPKey(ctx cContext, port, index int) (uint16, error) {
	var key C.uint16_t
	err := call("ibv_query_pkey", C.vs_query_pkey(ctx, C.int(port), C.int(index), &key))
	return uint16(key), err
}

// asyncFD makes the descriptor of asynchronous events non-blocking and returns it.
func asyncFD(ctx cContext) (int, error) {
	return int(ctx.async_fd), call("async_fd", C.vs_nonblocking(ctx.async_fd))
}

// rawEvent is an asynchronous event: see vs_event.
type rawEvent struct {
	kind    EventKind
	element uint64
}

// nextAsync takes and acknowledges one asynchronous event; ok is false when there
// is none.
func nextAsync(ctx cContext) (e rawEvent, ok bool, err error) {
	var raw C.struct_vs_event
	n := C.vs_async(ctx, &raw)
	if n <= 0 {
		return e, false, call("ibv_get_async_event", n)
	}
	e.element = uint64(raw.element)
	switch raw._type {
	case C.IBV_EVENT_QP_FATAL, C.IBV_EVENT_QP_REQ_ERR, C.IBV_EVENT_QP_ACCESS_ERR:
		e.kind = EventQPFatal
	case C.IBV_EVENT_CQ_ERR:
		e.kind = EventCQError
	case C.IBV_EVENT_DEVICE_FATAL:
		e.kind = EventDeviceFatal
	case C.IBV_EVENT_PORT_ACTIVE:
		e.kind = EventPortActive
	case C.IBV_EVENT_PORT_ERR:
		e.kind = EventPortError
	case C.IBV_EVENT_GID_CHANGE:
		e.kind = EventGIDChange
	case C.IBV_EVENT_LID_CHANGE:
		e.kind = EventLIDChange
	case C.IBV_EVENT_PKEY_CHANGE:
		e.kind = EventPKeyChange
	default:
		e.kind = EventOther
	}
	return e, true, nil
}

func allocPD(ctx cContext) (cPD, error) {
	var pd cPD
	return pd, made(call("ibv_alloc_pd", C.vs_alloc_pd(ctx, &pd)))
}

func deallocPD(pd cPD) error { return gone(callErrno("ibv_dealloc_pd", C.ibv_dealloc_pd(pd))) }

// pinned is registered memory: the device knows its address, so that it must not
// move or be freed before unregister.
type pinned struct {
	mr         cMR
	pin        runtime.Pinner
	addr       uint64
	lkey, rkey uint32
}

func register(pd cPD, mem []byte, access fabric.Access) (*pinned, error) {
	flag := func(a fabric.Access) C.int {
		if access&a != 0 {
			return 1
		}
		return 0
	}
	p := &pinned{}
	first := &mem[0]
	p.pin.Pin(first)
	err := made(call("ibv_reg_mr", C.vs_reg_mr(pd, unsafe.Pointer(first), C.uint64_t(len(mem)),
		flag(fabric.AccessRemoteWrite), flag(fabric.AccessRemoteRead), flag(fabric.AccessRemoteAtomic), &p.mr)))
	if err != nil {
		p.pin.Unpin()
		return nil, err
	}
	p.addr = uint64(uintptr(unsafe.Pointer(first)))
	p.lkey, p.rkey = uint32(p.mr.lkey), uint32(p.mr.rkey)
	return p, nil
}

func (p *pinned) unregister() error {
	err := gone(callErrno("ibv_dereg_mr", C.ibv_dereg_mr(p.mr)))
	if err == nil {
		p.pin.Unpin()
	}
	return err
}
