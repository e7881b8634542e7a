package shm

import (
	"runtime"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// waitv is the kernel's struct futex_waitv; see futex_waitv(2).
type waitv struct {
	val, addr uint64
	flags, _  uint32
}

// eitherAlone bounds a sleep that one of two words cannot end.
const eitherAlone = 5 * time.Millisecond

// futex32 is FUTEX_32: a word of 32 bits, which other processes may share.
const futex32 = 2

// FutexWaitEither is FutexWait on two words: it sleeps while *a == oldA and *b == oldB,
// until somebody wakes one of them. Kernels before 5.16 cannot do that; there it sleeps on
// a alone, and for no more than eitherAlone.
func FutexWaitEither(a *atomic.Uint32, oldA uint32, b *atomic.Uint32, oldB uint32, timeout time.Duration) {
	if timeout <= 0 {
		return
	}
	words, end := waitvFor(a, oldA, b, oldB, timeout)
	_, _, errno := syscall.Syscall6(unix.SYS_FUTEX_WAITV, uintptr(unsafe.Pointer(&words)), 2, 0,
		uintptr(unsafe.Pointer(&end)), unix.CLOCK_MONOTONIC, 0)
	runtime.KeepAlive(a) // the kernel had their addresses only
	runtime.KeepAlive(b)
	if errno == unix.ENOSYS || errno == unix.EPERM {
		FutexWait(a, oldA, min(timeout, eitherAlone))
	}
}

// futexWaitEitherRaw is FutexWaitEither without telling the Go scheduler, as FutexWaitRaw.
func futexWaitEitherRaw(a *atomic.Uint32, oldA uint32, b *atomic.Uint32, oldB uint32, timeout time.Duration) {
	if timeout <= 0 {
		return
	}
	words, end := waitvFor(a, oldA, b, oldB, timeout)
	_, _, errno := syscall.RawSyscall6(unix.SYS_FUTEX_WAITV, uintptr(unsafe.Pointer(&words)), 2, 0,
		uintptr(unsafe.Pointer(&end)), unix.CLOCK_MONOTONIC, 0)
	runtime.KeepAlive(a)
	runtime.KeepAlive(b)
	if errno == unix.ENOSYS || errno == unix.EPERM {
		FutexWaitRaw(a, oldA, min(timeout, eitherAlone))
	}
}

// waitvFor is what the kernel wants for a sleep of timeout from now on.
func waitvFor(a *atomic.Uint32, oldA uint32, b *atomic.Uint32, oldB uint32, timeout time.Duration) (words [2]waitv, end unix.Timespec) {
	words = [2]waitv{
		{val: uint64(oldA), addr: uint64(uintptr(unsafe.Pointer(a))), flags: futex32},
		{val: uint64(oldB), addr: uint64(uintptr(unsafe.Pointer(b))), flags: futex32},
	}
	return words, unix.NsecToTimespec(Nanotime() + int64(timeout))
}
