package shm

import (
	"math"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The calls below bypass the Go scheduler (RawSyscall): they are for
// descriptors in non-blocking mode, on the data path, where they return at once.

// ReadFD reads from a non-blocking descriptor into p. It returns 0, nil at the
// end of the stream and unix.EAGAIN when there is nothing to read. An empty p
// reads nothing.
func ReadFD(fd int, p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	n, _, errno := syscall.RawSyscall(unix.SYS_READ, uintptr(fd), uintptr(unsafe.Pointer(&p[0])), uintptr(len(p)))
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}

// WriteFD writes p to a non-blocking descriptor and returns how much it took.
func WriteFD(fd int, p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	n, _, errno := syscall.RawSyscall(unix.SYS_WRITE, uintptr(fd), uintptr(unsafe.Pointer(&p[0])), uintptr(len(p)))
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}

// SendNow sends p on a socket, or nothing if that would wait, whatever the mode of fd. A peer
// that is gone is no error and no signal.
func SendNow(fd int, p []byte) {
	if len(p) > 0 {
		_, _, _ = syscall.RawSyscall6(unix.SYS_SENDTO, uintptr(fd), uintptr(unsafe.Pointer(&p[0])), uintptr(len(p)), unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, 0, 0)
	}
}

// MaxVecs is how many parts one Readv or Writev call takes (IOV_MAX).
const MaxVecs = 1024

// Vec is a list of byte ranges for one vectored read or write. It holds
// addresses: the memory must stay valid until the list is consumed or reset,
// and must be mapped memory or be kept alive and unmoved by its owner (Go does
// not move heap objects; a Vec does not keep them alive). Not safe for
// concurrent use. The zero Vec is empty and ready.
type Vec struct {
	iov  []unix.Iovec
	head int
	size int
}

// Append adds p to the list. Empty ranges are skipped.
func (v *Vec) Append(p []byte) {
	if len(p) == 0 {
		return
	}
	if v.head > 0 && v.head >= len(v.iov)/2 {
		// A list that never runs empty must not grow for ever.
		v.iov, v.head = v.iov[:copy(v.iov, v.iov[v.head:])], 0
	}
	e := unix.Iovec{Base: &p[0]}
	e.SetLen(len(p))
	v.iov = append(v.iov, e)
	v.size += len(p)
}

// Len returns how many bytes are left in the list.
func (v *Vec) Len() int { return v.size }

// Parts returns how many ranges are left in the list.
func (v *Vec) Parts() int { return len(v.iov) - v.head }

// Reset empties the list and keeps its memory.
func (v *Vec) Reset() { v.iov, v.head, v.size = v.iov[:0], 0, 0 }

// Writev writes from the front of the list to a non-blocking descriptor with
// one system call, removes what was written from the list and returns its size.
func (v *Vec) Writev(fd int) (int, error) { return v.call(unix.SYS_WRITEV, fd) }

// Readv is Writev in the other direction: it fills the ranges from the front.
// It returns 0, nil at the end of the stream.
func (v *Vec) Readv(fd int) (int, error) { return v.call(unix.SYS_READV, fd) }

func (v *Vec) call(nr uintptr, fd int) (int, error) {
	parts := min(v.Parts(), MaxVecs)
	if parts == 0 {
		return 0, nil
	}
	n, _, errno := syscall.RawSyscall(nr, uintptr(fd), uintptr(unsafe.Pointer(&v.iov[v.head])), uintptr(parts))
	if errno != 0 {
		return 0, errno
	}
	v.consume(int(n))
	return int(n), nil
}

// consume drops n bytes from the front.
func (v *Vec) consume(n int) {
	v.size -= n
	for n > 0 {
		e := &v.iov[v.head]
		if uint64(n) < uint64(e.Len) {
			e.Base = (*byte)(unsafe.Add(unsafe.Pointer(e.Base), n))
			e.SetLen(int(e.Len) - n)
			return
		}
		n -= int(e.Len)
		v.head++
	}
	if v.head == len(v.iov) {
		v.Reset()
	}
}

// noPwait2: the kernel does not have epoll_pwait2 (Linux before 5.11), or a filter of system calls (seccomp) refuses it. It
// stays so, and epoll_pwait does the same in milliseconds.
var noPwait2 atomic.Bool

// noSuchCall reports whether errno says that epoll_pwait2 cannot be called here at all, and notes it: the call itself
// never fails with either.
func noSuchCall(errno syscall.Errno) bool {
	if errno != unix.ENOSYS && errno != unix.EPERM {
		return false
	}
	noPwait2.Store(true)
	return true
}

// epollMillis is a timeout as epoll_pwait takes it: -1 for none, and rounded up, so that no short wait is one that only looks.
func epollMillis(timeout time.Duration) int32 {
	if timeout < 0 {
		return -1
	}
	ms := timeout / time.Millisecond
	if timeout%time.Millisecond > 0 {
		ms++
	}
	return int32(min(ms, math.MaxInt32))
}

// EpollWaitRaw waits on an epoll descriptor without telling the Go scheduler,
// for at most timeout, or the next millisecond where the kernel counts in those; see FutexWaitRaw for what that means.
func EpollWaitRaw(epfd int, events []unix.EpollEvent, timeout time.Duration) (int, error) {
	timeout = max(0, timeout)
	if !noPwait2.Load() {
		ts := unix.NsecToTimespec(int64(timeout))
		n, _, errno := syscall.RawSyscall6(unix.SYS_EPOLL_PWAIT2, uintptr(epfd), uintptr(unsafe.Pointer(&events[0])), uintptr(len(events)), uintptr(unsafe.Pointer(&ts)), 0, 0)
		if !noSuchCall(errno) {
			return epollResult(n, errno)
		}
	}
	n, _, errno := syscall.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(epfd), uintptr(unsafe.Pointer(&events[0])), uintptr(len(events)), uintptr(epollMillis(timeout)), 0, 0)
	return epollResult(n, errno)
}

// EpollWait waits on an epoll descriptor for at most timeout (negative: without
// limit), or the next millisecond as EpollWaitRaw, and lets the Go scheduler use the processor meanwhile.
func EpollWait(epfd int, events []unix.EpollEvent, timeout time.Duration) (int, error) {
	if !noPwait2.Load() {
		var limit *unix.Timespec
		if timeout >= 0 {
			ts := unix.NsecToTimespec(int64(timeout))
			limit = &ts
		}
		n, _, errno := syscall.Syscall6(unix.SYS_EPOLL_PWAIT2, uintptr(epfd), uintptr(unsafe.Pointer(&events[0])), uintptr(len(events)), uintptr(unsafe.Pointer(limit)), 0, 0)
		if !noSuchCall(errno) {
			return epollResult(n, errno)
		}
	}
	n, _, errno := syscall.Syscall6(unix.SYS_EPOLL_PWAIT, uintptr(epfd), uintptr(unsafe.Pointer(&events[0])), uintptr(len(events)), uintptr(epollMillis(timeout)), 0, 0)
	return epollResult(n, errno)
}

func epollResult(n uintptr, errno syscall.Errno) (int, error) {
	switch errno {
	case 0:
		return int(n), nil
	case unix.EINTR:
		return 0, nil
	}
	return 0, errno
}

// SetThreadName names the calling OS thread, for people who look at threads. At
// most 15 bytes count. Call runtime.LockOSThread before.
func SetThreadName(name string) {
	b := append([]byte(name), 0)
	// Cannot fail with a valid pointer, and nothing depends on it.
	_ = unix.Prctl(unix.PR_SET_NAME, uintptr(unsafe.Pointer(&b[0])), 0, 0, 0)
}

// Yield lets other runnable threads have the processor first, without the Go
// scheduler. It returns at once when there are none.
func Yield() { _, _, _ = syscall.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0) }
