//go:build !amd64 || race

package shm

import "sync/atomic"

// StoreRelease stores v like p.Store, but only as a release: whoever loads v sees
// what was written before it, while later loads of this thread may come before
// the store. It is no part of a protocol in which a thread stores one word and
// then looks at another.
//
// Elsewhere than on amd64 it is p.Store, which is cheap on arm64; so it is for the
// race detector, which must see it.
func StoreRelease(p *atomic.Uint64, v uint64) { p.Store(v) }
