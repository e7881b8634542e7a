//go:build libfabric && cgo && linux

package libfabric

/*
#include "lf_shim.h"
*/
import "C"

import (
	"errors"
	"runtime"
	"sync"
	"unsafe"

	"github.com/rdmad/rdmad/internal/fabric"
)

func openPD(d cDevice) (pd cPD, err error) {
	return pd, made(call("fi_domain", C.lf_pd_open(d, &pd)))
}

func closePD(pd cPD) error { return gone(call("fi_close of a domain", C.lf_pd_close(pd))) }

// pinned is registered memory: the library knows its address, so that it must not move or
// be freed before unregister.
type pinned struct {
	mr   C.struct_lf_mr
	pin  runtime.Pinner
	addr uint64
}

// keyTries is how many keys are tried while those that were drawn are in use.
const keyTries = 8

// register registers mem under a key that nobody can guess, unless the provider chooses it.
func register(pd cPD, mem []byte, access fabric.Access, keySize uint64) (*pinned, error) {
	flags := C.uint64_t(C.FI_SEND | C.FI_RECV | C.FI_READ | C.FI_WRITE)
	if access&fabric.AccessRemoteWrite != 0 {
		flags |= C.FI_REMOTE_WRITE
	}
	if access&fabric.AccessRemoteRead != 0 {
		flags |= C.FI_REMOTE_READ
	}
	p := &pinned{}
	first := &mem[0]
	p.pin.Pin(first)
	p.addr = uint64(uintptr(unsafe.Pointer(first)))
	var err error
	for range keyTries {
		err = made(call("fi_mr_reg", C.lf_register(pd, unsafe.Pointer(first), C.uint64_t(len(mem)), flags, C.uint64_t(newKey(keySize)), &p.mr)))
		var ce *CallError
		if !errors.As(err, &ce) || ce.Code != errKeyInUse {
			break
		}
	}
	if err != nil {
		p.pin.Unpin()
		return nil, err
	}
	return p, nil
}

func (p *pinned) key() uint64  { return uint64(p.mr.key) }
func (p *pinned) desc() uint64 { return uint64(p.mr.desc) }

func (p *pinned) unregister() error {
	err := gone(call("fi_close of a region", C.lf_unregister(&p.mr)))
	if err == nil {
		p.pin.Unpin()
	}
	return err
}

// pinnedBytes is memory that C may read until unpin.
type pinnedBytes struct {
	mem  []byte
	addr uint64
	pin  runtime.Pinner
}

func newPinnedBytes(size int) *pinnedBytes {
	p := &pinnedBytes{mem: make([]byte, size)}
	p.pin.Pin(&p.mem[0])
	p.addr = uint64(uintptr(unsafe.Pointer(&p.mem[0])))
	return p
}

func (p *pinnedBytes) unpin() { p.pin.Unpin() }

// control is a device's endpoint for control messages. It belongs to the device's goroutine, but for
// peer and forget, which any may call.
type control struct {
	// mu keeps the library's calls apart: not all of its versions can have a peer made known while
	// messages move.
	mu sync.Mutex
	c  *C.struct_lf_ctl
	fd int // -1: none
}

func openControl(d cDevice) (*control, error) {
	ctl := &control{}
	var fd C.int
	if err := made(call("control endpoint", C.lf_ctl_open(d, &ctl.c, &fd))); err != nil {
		return nil, err
	}
	ctl.fd = int(fd)
	return ctl, nil
}

func (c *control) close() error {
	return gone(call("fi_close of the control endpoint", C.lf_ctl_close(c.c)))
}

func (c *control) name() ([]byte, error) {
	var buf [C.LF_ADDR]byte
	n := C.lf_ctl_name(c.c, (*C.uint8_t)(&buf[0]), C.uint32_t(len(buf)))
	if err := call("fi_getname", n); err != nil {
		return nil, err
	}
	return append([]byte(nil), buf[:n]...), nil
}

// peer makes a peer's control endpoint known.
func (c *control) peer(name []byte) (addr uint64, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var a C.uint64_t
	err = call("fi_av_insert", C.lf_ctl_peer(c.c, (*C.uint8_t)(&name[0]), C.uint32_t(len(name)), &a))
	return uint64(a), err
}

func (c *control) forget(addr uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	C.lf_ctl_forget(c.c, C.uint64_t(addr))
}

// send sends m. False: not now.
func (c *control) send(addr uint64, m message) (bool, error) {
	b := m.encode()
	c.mu.Lock()
	defer c.mu.Unlock()
	rc := C.lf_ctl_send(c.c, C.uint64_t(addr), (*C.uint8_t)(&b[0]), C.uint32_t(len(b)))
	if rc == -errAgain {
		return false, nil
	}
	return true, call("fi_send", rc)
}

// sending reports whether messages are on their way that need receive to be moved on.
func (c *control) sending() bool { return C.lf_ctl_sending(c.c) > 0 }

// receive returns the next message; ok is false if there is none. What is no message is one of kind 0, which is for
// nobody: strangers may send it without end, and others want mu.
func (c *control) receive() (m message, ok bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var b [messageSize]byte
	n := C.lf_ctl_recv(c.c, (*C.uint8_t)(&b[0]), C.uint32_t(len(b)))
	if n <= 0 {
		return m, false, call("fi_cq_read", n)
	}
	m, _ = decodeMessage(b[:n])
	return m, true, nil
}

// arm reports whether the descriptor may be slept on.
func (c *control) arm() bool { return c.fd >= 0 && C.lf_ctl_arm(c.c) == 1 }
