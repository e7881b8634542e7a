package shm

import (
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	futexWait   = 0
	futexWake   = 1
	futexWakeOp = 5
	// Of the encoded operation of FUTEX_WAKE_OP.
	futexOpOr  = 2 << 28
	futexCmpNE = 1 << 24
)

// FutexWait sleeps while *word == old, until another thread of any process
// calls FutexWake on the same word, or for at most timeout (0 or less returns
// at once). It may return early for no reason: check the condition again.
//
// It hands the processor over to the Go scheduler for the time of the sleep,
// which costs some microseconds. See FutexWaitRaw.
func FutexWait(word *atomic.Uint32, old uint32, timeout time.Duration) {
	if timeout <= 0 {
		return
	}
	ts := unix.NsecToTimespec(int64(timeout))
	// Every result means "look again": woken, value changed, timed out, signal.
	_, _, _ = syscall.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(word)), futexWait, uintptr(old), uintptr(unsafe.Pointer(&ts)), 0, 0)
}

// FutexWaitRaw is FutexWait without telling the Go scheduler: the fastest way
// to sleep for a short time. The thread keeps its processor (P), which keeps
// other goroutines from it for up to timeout; a garbage collection's signal
// ends the sleep. See Nap.
func FutexWaitRaw(word *atomic.Uint32, old uint32, timeout time.Duration) {
	if timeout <= 0 {
		return
	}
	ts := unix.NsecToTimespec(int64(timeout))
	_, _, _ = syscall.RawSyscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(word)), futexWait, uintptr(old), uintptr(unsafe.Pointer(&ts)), 0, 0)
}

// FutexWake wakes up to n threads, of any process, that sleep on word, and
// returns how many it woke.
func FutexWake(word *atomic.Uint32, n int) int {
	woken, _, errno := syscall.RawSyscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(word)), futexWake, uintptr(n), 0, 0, 0)
	if errno != 0 {
		return 0
	}
	return int(woken)
}

// FutexWakeTwo wakes up to WakeMany threads, of any process, that sleep on either word, in one system
// call, and returns how many it woke. Whoever else changes second must wake its sleepers, too.
func FutexWakeTwo(first, second *atomic.Uint32) int {
	// FUTEX_WAKE_OP changes the second word, and wakes its sleepers where a comparison
	// with what it was holds; see futex(2). Nothing is changed by an OR with 0, and the
	// word is unlike one that differs in its low 11 bits, unless it is changed meanwhile.
	other := uintptr(second.Load()+1024) & 0x7ff
	woken, _, errno := syscall.RawSyscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(first)), futexWakeOp, WakeMany, WakeMany,
		uintptr(unsafe.Pointer(second)), futexOpOr|futexCmpNE|other)
	if errno != 0 {
		return FutexWake(first, WakeMany) + FutexWake(second, WakeMany)
	}
	return int(woken)
}

// WakeMany is the count for FutexWake that wakes every sleeper there is reason for, so that a hostile one
// cannot swallow the wake-up of an honest one: a domain has 1024 processes by default. It is a bound because a thread
// can sleep on one word 128 times over (futex_waitv), and a process that has its threads do so would keep whoever wakes it
// for half a microsecond for each.
const WakeMany = 1024
