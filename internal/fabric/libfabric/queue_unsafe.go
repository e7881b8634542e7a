//go:build libfabric && cgo && linux

package libfabric

/*
#cgo noescape lf_post
#cgo nocallback lf_post
#cgo noescape lf_recv
#cgo nocallback lf_recv
#cgo noescape lf_poll
#cgo nocallback lf_poll
#cgo noescape lf_poll_one
#cgo nocallback lf_poll_one
#cgo nocallback lf_arm
#include "lf_shim.h"
*/
import "C"

import (
	"errors"

	"github.com/rdmad/rdmad/internal/fabric"
)

// Structures that are filled here and read in C, or the other way round.
type (
	cUint8  = C.uint8_t
	cUint32 = C.uint32_t
	cUint64 = C.uint64_t

	cSend = C.struct_lf_send
	cRecv = C.struct_lf_recv
	cWC   = C.struct_lf_wc
)

// The ops of the shim are those of package fabric: these do not compile otherwise.
var (
	_ = [1]struct{}{}[C.LF_WRITE-fabric.OpWrite]
	_ = [1]struct{}{}[C.LF_WRITE_IMM-fabric.OpWriteImm]
	_ = [1]struct{}{}[C.LF_READ-fabric.OpRead]
	_ = [1]struct{}{}[C.LF_SEND-fabric.OpSend]
	_ = [1]struct{}{}[C.LF_CAS-fabric.OpCompareSwap]
	_ = [1]struct{}{}[C.LF_ADD-fabric.OpFetchAdd]
)

const (
	sendInline = C.LF_INLINE
	// arrived is the index of a completion for data that has come with a write.
	arrived = uint32(C.LF_ARRIVED)
	// unasked is that of one for a message that nobody asked for.
	unasked = uint32(C.LF_UNASKED)
)

// wire is an endpoint of the library with its queue.
type wire struct{ e *C.struct_lf_ep }

// openWire makes an endpoint for sends and recvs operations. wait: its queue shall have a
// descriptor, if the device has them.
func openWire(pd cPD, sends, recvs int, serial uint32, wait bool, keySize uint64) (wire, error) {
	var w wire
	var err error
	for range keyTries {
		err = made(call("fi_endpoint", C.lf_ep_open(pd, C.uint32_t(sends), C.uint32_t(recvs), C.uint32_t(serial), C.int(cBool(wait)),
			C.uint64_t(newKey(keySize)), &w.e)))
		var ce *CallError
		if !errors.As(err, &ce) || ce.Code != errKeyInUse {
			break
		}
	}
	return w, err
}

// close ends every access of the library to the memory of operations before it returns.
func (w wire) close() error { return gone(call("fi_close of an endpoint", C.lf_ep_close(w.e))) }

func (w wire) fd() int { return int(w.e.fd) }

func (w wire) name() ([]byte, error) {
	var buf [C.LF_ADDR]byte
	n := C.lf_ep_name(w.e, (*C.uint8_t)(&buf[0]), C.uint32_t(len(buf)))
	if err := call("fi_getname", n); err != nil {
		return nil, err
	}
	return append([]byte(nil), buf[:n]...), nil
}

func (w wire) anchor() (addr, key uint64) {
	var a, k C.uint64_t
	C.lf_ep_anchor(w.e, &a, &k)
	return uint64(a), uint64(k)
}

// join makes the peer known, and the greeting that it will send.
func (w wire) join(a address, hello message) error {
	b := hello.encode()
	return call("fi_av_insert", C.lf_ep_join(w.e, (*C.uint8_t)(&a.name[0]), C.uint32_t(len(a.name)), C.uint64_t(a.anchorAddr), C.uint64_t(a.anchorKey),
		(*C.uint8_t)(&b[0])))
}

// expect lets the peer in that join will name.
func (w wire) expect(a address) error {
	return call("filter of strangers", C.lf_ep_expect(w.e, (*C.uint8_t)(&a.name[0]), C.uint32_t(len(a.name))))
}

// settle lets nobody in any more, and notes what connections there are.
func (w wire) settle() error { return call("connections of an endpoint", C.lf_ep_settle(w.e)) }

// sayHello sends the greeting. False: not now.
func (w wire) sayHello(m message) (bool, error) {
	b := m.encode()
	rc := C.lf_hello_send(w.e, (*C.uint8_t)(&b[0]))
	if rc == -errAgain {
		return false, nil
	}
	return true, call("fi_tsend", rc)
}

// trap has sends caught that nobody asked for, or not any more. It returns 0 or the number of an error.
func (w wire) trap(on bool) int { return -int(C.lf_trap(w.e, C.int(cBool(on)))) }

// post posts n of the work requests in ring, from position from on, with one call into C
// and returns how many were taken, and the library's error for the next one.
func (w wire) post(ring []cSend, from uint32, n int) (int, int) {
	var rc C.int
	taken := C.lf_post(w.e, &ring[0], C.uint32_t(len(ring)-1), C.uint32_t(from), C.uint32_t(n), &rc)
	return int(taken), int(-rc)
}

// recv is post for receives.
func (w wire) recv(wrs []cRecv) (int, int) {
	var rc C.int
	taken := C.lf_recv(w.e, &wrs[0], C.int(len(wrs)), &rc)
	return int(taken), int(-rc)
}

// poll returns completions of this endpoint alone.
func (w wire) poll(out []cWC) int { return int(C.lf_poll_one(w.e, &out[0], C.int(len(out)))) }

// wireSet is the endpoints that are polled together. It belongs to the owner of the CQ.
type wireSet struct{ s *C.struct_lf_set }

func newWireSet() (wireSet, error) {
	s := wireSet{C.lf_set_new()}
	if s.s == nil {
		return s, callError("set of endpoints", C.FI_ENOMEM)
	}
	live.Add(1)
	return s, nil
}

func (s wireSet) add(w wire) error { return call("set of endpoints", C.lf_set_add(s.s, w.e)) }
func (s wireSet) remove(w wire)    { C.lf_set_remove(s.s, w.e) }

func (s wireSet) free() {
	C.lf_set_free(s.s)
	live.Add(-1)
}

// poll returns completions of all endpoints, those of each in turn.
func (s wireSet) poll(out []cWC) int { return int(C.lf_poll(s.s, &out[0], C.int(len(out)))) }

// arm reports whether the descriptors of all endpoints may be slept on.
func (s wireSet) arm() bool { return C.lf_arm(s.s) == 1 }

// wcStatus maps an error number of the library.
func wcStatus(code uint32) fabric.Status {
	switch code {
	case 0:
		return fabric.StatusSuccess
	case C.FI_ETRUNC, C.FI_EMSGSIZE, C.FI_ETOOSMALL:
		return fabric.StatusLocalLength
	case C.FI_EACCES, C.FI_EPERM, C.FI_EKEYREJECTED, C.FI_EFAULT:
		return fabric.StatusRemoteAccess
	case C.FI_EINVAL, C.FI_EOPNOTSUPP, C.FI_ENOSYS:
		return fabric.StatusRemoteInvalid
	case C.FI_EREMOTEIO:
		return fabric.StatusRemoteOperation
	case C.FI_ETIMEDOUT, C.FI_EHOSTUNREACH, C.FI_EHOSTDOWN, C.FI_ENETUNREACH, C.FI_ENETDOWN, C.FI_ECONNREFUSED:
		return fabric.StatusRetryExceeded
	case C.FI_ENORX, C.FI_EOVERRUN:
		return fabric.StatusRNRExceeded
	case C.FI_EIO, C.FI_ECANCELED, C.FI_ECONNRESET, C.FI_ECONNABORTED, C.FI_ENOTCONN, C.FI_ESHUTDOWN:
		return fabric.StatusFlushed
	default:
		return fabric.StatusFatal
	}
}
