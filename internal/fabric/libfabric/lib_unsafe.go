//go:build libfabric && cgo && linux

package libfabric

/*
#cgo CFLAGS: -O2 -Wall -Wextra
#cgo LDFLAGS: -lfabric
#include <stdlib.h>
#include "lf_shim.h"
*/
import "C"

import (
	"strings"
	"sync/atomic"
	"unsafe"
)

// The objects of the shim, for the files that cannot say C.
type (
	cDevice = *C.struct_lf_dev
	cPD     = *C.struct_lf_pd
)

// live counts the objects of the library that are not closed yet.
var live atomic.Int64

// made counts a new object if its creation went well.
func made(err error) error {
	if err == nil {
		live.Add(1)
	}
	return err
}

// gone discounts a closed object.
func gone(err error) error {
	if err == nil {
		live.Add(-1)
	}
	return err
}

// Errors of the library that matter here.
const (
	errNoAddress = C.FI_EADDRNOTAVAIL
	errAgain     = C.FI_EAGAIN
	errNoData    = C.FI_ENODATA
	errKeyInUse  = C.FI_ENOKEY
	errBusy      = C.FI_EBUSY
)

// call turns the result of a shim function into an error.
func call(name string, rc C.int) error {
	if rc >= 0 {
		return nil
	}
	return callError(name, int(-rc))
}

// callError is the error of a library's error number.
func callError(name string, code int) *CallError {
	return &CallError{Call: name, Code: code, Text: C.GoString(C.fi_strerror(C.int(code)))}
}

// query says what to look for; empty: anything.
type query struct {
	provider, domain, node string
	// need leaves out what cannot be used.
	need, atomics, delivery bool
	// notices has immediates go as messages.
	notices bool
}

func (q query) c() *C.struct_lf_query {
	c := new(C.struct_lf_query)
	for _, f := range []struct {
		to   *[C.LF_NAME]C.char
		from string
	}{{&c.provider, q.provider}, {&c.domain, q.domain}, {&c.node, q.node}} {
		for i := 0; i < len(f.from) && i < len(f.to)-1; i++ {
			f.to[i] = C.char(f.from[i])
		}
	}
	c.need, c.atomics, c.delivery, c.notices = cBool(q.need), cBool(q.atomics), cBool(q.delivery), cBool(q.notices)
	return c
}

func cBool(b bool) C.int32_t {
	if b {
		return 1
	}
	return 0
}

// maxListed bounds what listInfo returns: libfabric has an entry for each combination of
// provider, address, domain and kind of endpoint.
const maxListed = 4096

// rawInfo is an entry with what only the library's own bits say.
type rawInfo struct {
	DeviceInfo
	caps, mode, order uint64
	mrMode            uint64
	version           uint32
	ip                bool
}

// listInfo returns what the query finds.
func listInfo(q query) ([]rawInfo, error) {
	list := make([]C.struct_lf_info, maxListed)
	n := C.lf_list(q.c(), &list[0], C.int(len(list)))
	if err := call("fi_getinfo", n); err != nil {
		return nil, err
	}
	all := make([]rawInfo, n)
	for i := range all {
		all[i] = readInfo(&list[i])
	}
	return all, nil
}

func readInfo(c *C.struct_lf_info) rawInfo {
	r := rawInfo{
		caps: uint64(c.caps), mode: uint64(c.mode), order: uint64(c.order), mrMode: uint64(c.mr_mode), version: uint32(c.version),
		ip: c.format == C.FI_SOCKADDR_IN || c.format == C.FI_SOCKADDR_IN6,
	}
	r.DeviceInfo = DeviceInfo{
		Provider: C.GoString(&c.provider[0]), Fabric: C.GoString(&c.fabric[0]), Domain: C.GoString(&c.domain[0]),
		Address: C.GoString(&c.source[0]), Version: versionText(r.version),
		Format:   strings.TrimPrefix(enumText(uint64(c.format), C.FI_TYPE_ADDR_FORMAT), "FI_"),
		Endpoint: strings.TrimPrefix(enumText(uint64(c.endpoint), C.FI_TYPE_EP_TYPE), "FI_EP_"),
		Caps:     namesOf(r.caps, C.FI_TYPE_CAPS, "FI_"), Modes: namesOf(r.mode, C.FI_TYPE_MODE, "FI_"),
		MRModes:  namesOf(r.mrMode, C.FI_TYPE_MR_MODE, "FI_MR_"),
		Progress: strings.ToLower(strings.TrimPrefix(enumText(uint64(c.progress), C.FI_TYPE_PROGRESS), "FI_PROGRESS_")),
		Limits: Limits{
			Inject: uint64(c.inject), MaxMessage: uint64(c.max_msg), Data: uint64(c.cq_data), Key: uint64(c.key_size),
			Sends: uint64(c.sends), Recvs: uint64(c.recvs),
		},
	}
	return r
}

// enumText is what the library calls a value of 32 bits.
func enumText(v uint64, kind C.enum_fi_type) string {
	var buf [1024]C.char
	small := C.uint32_t(v)
	return C.GoString(C.fi_tostr_r(&buf[0], C.size_t(len(buf)), unsafe.Pointer(&small), kind))
}

// namesOf lists the library's names of the bits of v.
func namesOf(v uint64, kind C.enum_fi_type, prefix string) []string {
	var buf [2048]C.char
	all := C.GoString(C.fi_tostr_r(&buf[0], C.size_t(len(buf)), unsafe.Pointer(&v), kind))
	names := []string{}
	for _, s := range strings.Split(all, ",") {
		if s = strings.TrimPrefix(strings.TrimSpace(s), prefix); s != "" {
			names = append(names, s)
		}
	}
	return names
}

// Bits that a usable provider has.
var needed = []struct {
	bit  uint64
	name string
}{{C.FI_MSG, "FI_MSG"}, {C.FI_TAGGED, "FI_TAGGED"}, {C.FI_RMA, "FI_RMA"}}

const (
	bitOrder    = uint64(C.FI_ORDER_SAS)
	bitFollows  = uint64(C.FI_ORDER_SAW)
	modesOK     = uint64(C.FI_CONTEXT | C.FI_CONTEXT2)
	mrLocal     = uint64(C.FI_MR_LOCAL)
	mrVirtual   = uint64(C.FI_MR_VIRT_ADDR)
	mrAllocated = uint64(C.FI_MR_ALLOCATED)
	mrModesOK   = mrLocal | mrVirtual | mrAllocated | uint64(C.FI_MR_PROV_KEY)
)

func openDevice(q query) (d cDevice, info rawInfo, err error) {
	var c C.struct_lf_info
	if err := made(call("fi_fabric", C.lf_open(q.c(), &d, &c))); err != nil {
		return nil, info, err
	}
	return d, readInfo(&c), nil
}

func closeDevice(d cDevice) error { return gone(call("fi_close of a fabric", C.lf_close(d))) }

// waits reports whether completion queues have descriptors to wait for.
func waits(d cDevice) bool { return d.waits != 0 }

// atomics reports whether the atomics of package fabric are there.
func atomics(d cDevice) bool { return d.atomics != 0 }

// injects reports whether the library can take small data with an operation.
func injects(d cDevice) bool { return d.injects != 0 }

// sharesReceives reports whether the environment lets rxm have receives that all queue pairs of an endpoint share.
func sharesReceives() bool { return C.lf_shared() != 0 }

// cachesRegions reports whether the library was first used with a cache of registrations.
func cachesRegions() bool { return C.lf_cached() != 0 }

// demands are what a device is made to ask for beyond what its provider does, so that tests see what
// becomes of providers that nobody has here. Nothing else has any.
type demands struct {
	mrMode uint64 // of registered memory
	data   uint64 // a write brings at most so many bytes with it
	// nothing is taken with an operation, and each is announced alone; endpoints have queues for what
	// concerns none; queues have no descriptors
	plain, hears, blind bool
	// immediates go as messages
	notices bool
}

// impose makes a device that has nothing open yet demand that.
func impose(d cDevice, info *rawInfo, m demands) {
	C.lf_impose(d, C.uint64_t(m.mrMode), C.uint64_t(m.data), C.int(cBool(!m.plain)), C.int(cBool(!m.plain)), C.int(cBool(m.hears)), C.int(cBool(!m.blind)))
	info.mrMode |= m.mrMode
	info.Limits.Data = min(info.Limits.Data, m.data)
}
