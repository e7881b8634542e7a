// Package shm is the operating-system floor of rdmad: sealed shared-memory
// segments, atomic views of them, futex and eventfd wake-ups, descriptor
// passing, and the few system calls of the data path that must not allocate or
// go through the Go scheduler.
//
// It knows nothing about slots, messages or peers. Every use of package unsafe
// outside the cgo providers is in this package's *_unsafe.go files; the rest of
// the program sees byte slices and slices of sync/atomic types.
//
// Bytes of a segment are shared with other processes, which may be hostile.
// Read a value once into a local variable, check the local, use the local.
package shm
