//go:build amd64 && !race

package shm

import (
	"sync/atomic"
	"unsafe"
)

// StoreRelease stores v like p.Store, but only as a release: whoever loads v sees
// what was written before it, while later loads of this thread may come before
// the store. It is no part of a protocol in which a thread stores one word and
// then looks at another.
//
// On amd64 every store is a release, and the compiler keeps the order of stores.
// p.Store is an exchange instead, a locked instruction, which costs as much as
// a good part of a message's bookkeeping.
func StoreRelease(p *atomic.Uint64, v uint64) { *(*uint64)(unsafe.Pointer(p)) = v }
