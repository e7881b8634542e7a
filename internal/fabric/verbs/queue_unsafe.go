//go:build verbs && cgo && linux

package verbs

/*
#cgo noescape vs_poll
#cgo nocallback vs_poll
#cgo noescape vs_arm
#cgo nocallback vs_arm
#cgo noescape vs_cq_event
#cgo nocallback vs_cq_event
#cgo noescape vs_post_send
#cgo nocallback vs_post_send
#cgo noescape vs_post_recv
#cgo nocallback vs_post_recv
#include "verbs_shim.h"
*/
import "C"

import (
	"errors"
	"syscall"
	"unsafe"

	"github.com/rdmad/rdmad/internal/fabric"
)

// Structures that are filled here and read in C, or the other way round.
type (
	cUint8  = C.uint8_t
	cUint16 = C.uint16_t
	cUint32 = C.uint32_t
	cUint64 = C.uint64_t

	cSend = C.struct_vs_send
	cRecv = C.struct_vs_recv
	cWC   = C.struct_vs_wc
	cLink = C.struct_vs_link
	cAttr = C.struct_vs_attr
)

// The ops of the shim are those of package fabric: these do not compile otherwise.
var (
	_ = [1]struct{}{}[C.VS_WRITE-fabric.OpWrite]
	_ = [1]struct{}{}[C.VS_WRITE_IMM-fabric.OpWriteImm]
	_ = [1]struct{}{}[C.VS_READ-fabric.OpRead]
	_ = [1]struct{}{}[C.VS_SEND-fabric.OpSend]
	_ = [1]struct{}{}[C.VS_CAS-fabric.OpCompareSwap]
	_ = [1]struct{}{}[C.VS_ADD-fabric.OpFetchAdd]
)

const (
	sendSignaled = C.VS_SIGNALED
	sendInline   = C.VS_INLINE
)

// queue is a completion queue of the library with its channel. Its methods belong
// to the owner of the CQ, except resize.
type queue struct {
	cq *C.struct_ibv_cq
	ch *C.struct_ibv_comp_channel // nil: cannot be slept on
	// unacked are events that were taken from the channel. Acknowledging them
	// takes a lock, destroying the queue waits for it: so many at a time.
	unacked C.uint
	vector  int // by which events come
}

// ackBatch is how many events are acknowledged at once.
const ackBatch = 128

// vectors is how many completion vectors a device has: each interrupts a processor of its own.
func vectors(ctx cContext) int { return int(ctx.num_comp_vectors) }

// createQueue makes a queue; vector, from 0, is the completion vector of its events.
func createQueue(ctx cContext, depth int, events bool, vector int) (*queue, error) {
	q := &queue{vector: vector}
	if events {
		if err := made(call("ibv_create_comp_channel", C.vs_create_channel(ctx, &q.ch))); err != nil {
			return nil, err
		}
	}
	if err := made(call("ibv_create_cq", C.vs_create_cq(ctx, C.int(depth), q.ch, C.int(vector), &q.cq))); err != nil {
		return nil, errors.Join(err, q.destroy())
	}
	return q, nil
}

// fd is the descriptor of the channel.
func (q *queue) fd() int { return int(q.ch.fd) }

// capacity is how many completions the queue holds, which may be more than what
// was asked for.
func (q *queue) capacity() int { return int(q.cq.cqe) }

// id identifies the queue in asynchronous events.
func (q *queue) id() uint64 { return uint64(uintptr(unsafe.Pointer(q.cq))) }

func (q *queue) resize(depth int) error {
	return call("ibv_resize_cq", C.vs_resize_cq(q.cq, C.int(depth)))
}

func (q *queue) poll(out []cWC) (int, error) {
	n := C.vs_poll(q.cq, &out[0], C.int(len(out)))
	return int(n), call("ibv_poll_cq", n)
}

// arm asks for an event if notify is set, and polls after that, so that nothing
// falls into the gap.
func (q *queue) arm(notify bool, out []cWC) (int, error) {
	flag := C.int(0)
	if notify {
		flag = 1
	}
	n := C.vs_arm(q.cq, flag, &out[0], C.int(len(out)))
	return int(n), call("ibv_req_notify_cq", n)
}

// takeEvent takes an event off the channel, if there is one.
func (q *queue) takeEvent() (bool, error) {
	n := C.vs_cq_event(q.ch)
	if n <= 0 {
		return false, call("ibv_get_cq_event", n)
	}
	if q.unacked++; q.unacked == ackBatch {
		q.ack()
	}
	return true, nil
}

func (q *queue) ack() {
	C.ibv_ack_cq_events(q.cq, q.unacked)
	q.unacked = 0
}

func (q *queue) destroy() error {
	if q.cq != nil {
		q.ack()
		if err := gone(callErrno("ibv_destroy_cq", C.ibv_destroy_cq(q.cq))); err != nil {
			return err
		}
	}
	if q.ch != nil {
		return gone(callErrno("ibv_destroy_comp_channel", C.ibv_destroy_comp_channel(q.ch)))
	}
	return nil
}

// pair is a queue pair of the library.
type pair struct{ p *C.struct_vs_qp }

func createPair(pd cPD, q *queue, sends, recvs, inline int) (pair, error) {
	var p pair
	return p, made(call("ibv_create_qp", C.vs_create_qp(pd, q.cq, C.uint32_t(sends), C.uint32_t(recvs), C.uint32_t(inline), &p.p)))
}

func (p pair) number() uint32 { return uint32(p.p.qp.qp_num) }

// inline is how many bytes a work request can carry.
func (p pair) inline() int { return int(p.p.max_inline) }

func (p pair) toInit(port, pkeyIndex int, atomics bool) error {
	flag := C.int(0)
	if atomics {
		flag = 1
	}
	return call("ibv_modify_qp to INIT", C.vs_to_init(p.p, C.int(port), C.int(pkeyIndex), flag))
}

func (p pair) toReady(l *cLink) error {
	if err := call("ibv_modify_qp to RTR", C.vs_to_rtr(p.p, l)); err != nil {
		return err
	}
	return call("ibv_modify_qp to RTS", C.vs_to_rts(p.p, l))
}

// query asks the device what the queue pair is made of.
func (p pair) query() (a cAttr, err error) {
	return a, call("ibv_query_qp", C.vs_query_qp(p.p, &a))
}

// pairStates are the names of ibv_qp_state.
var pairStates = [...]string{
	C.IBV_QPS_RESET: "RESET", C.IBV_QPS_INIT: "INIT", C.IBV_QPS_RTR: "RTR", C.IBV_QPS_RTS: "RTS",
	C.IBV_QPS_SQD: "SQD", C.IBV_QPS_SQE: "SQE", C.IBV_QPS_ERR: "ERR",
}

// accessNames are the names of the bits of ibv_access_flags that a queue pair can have.
var accessNames = []struct {
	bit  cUint32
	name string
}{
	{C.IBV_ACCESS_LOCAL_WRITE, "LOCAL_WRITE"}, {C.IBV_ACCESS_REMOTE_WRITE, "REMOTE_WRITE"},
	{C.IBV_ACCESS_REMOTE_READ, "REMOTE_READ"}, {C.IBV_ACCESS_REMOTE_ATOMIC, "REMOTE_ATOMIC"},
}

func (p pair) toError() error { return call("ibv_modify_qp to ERR", C.vs_to_err(p.p)) }

// destroy ends every access of the device to the memory of outstanding work
// requests before it returns.
func (p pair) destroy() error { return gone(call("ibv_destroy_qp", C.vs_destroy_qp(p.p))) }

// postSend posts wrs with one call into C and returns how many were taken.
func (p pair) postSend(wrs []cSend) (int, syscall.Errno) {
	var posted C.int
	rc := C.vs_post_send(p.p, &wrs[0], C.int(len(wrs)), &posted)
	return int(posted), syscall.Errno(-rc)
}

// postRecv is postSend for receives.
func (p pair) postRecv(wrs []cRecv) (int, syscall.Errno) {
	var posted C.int
	rc := C.vs_post_recv(p.p, &wrs[0], C.int(len(wrs)), &posted)
	return int(posted), syscall.Errno(-rc)
}

// wcStatus maps ibv_wc_status.
func wcStatus(s cUint32) fabric.Status {
	switch s {
	case C.IBV_WC_SUCCESS:
		return fabric.StatusSuccess
	case C.IBV_WC_LOC_LEN_ERR:
		return fabric.StatusLocalLength
	case C.IBV_WC_LOC_PROT_ERR, C.IBV_WC_LOC_ACCESS_ERR, C.IBV_WC_MW_BIND_ERR:
		return fabric.StatusLocalProtection
	case C.IBV_WC_WR_FLUSH_ERR:
		return fabric.StatusFlushed
	case C.IBV_WC_REM_INV_REQ_ERR:
		return fabric.StatusRemoteInvalid
	case C.IBV_WC_REM_ACCESS_ERR:
		return fabric.StatusRemoteAccess
	case C.IBV_WC_REM_OP_ERR, C.IBV_WC_REM_ABORT_ERR:
		return fabric.StatusRemoteOperation
	case C.IBV_WC_RETRY_EXC_ERR, C.IBV_WC_RESP_TIMEOUT_ERR:
		return fabric.StatusRetryExceeded
	case C.IBV_WC_RNR_RETRY_EXC_ERR:
		return fabric.StatusRNRExceeded
	default:
		return fabric.StatusFatal
	}
}

// opRecvImmediate is the opcode of an arrived write with an immediate.
const opRecvImmediate = C.IBV_WC_RECV_RDMA_WITH_IMM
