package shm_test

import (
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// See futex(2).
const (
	futexLockPI   = 6
	futexUnlockPI = 7
)

// lockPI makes word one that the kernel refuses to wake: a thread waits for it with FUTEX_LOCK_PI, and another
// owns it, until the test ends.
func lockPI(t *testing.T, word *atomic.Uint32) {
	t.Helper()
	over, owner, waiter := make(chan struct{}), make(chan int), make(chan int)
	waited := make(chan struct{})
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		owner <- unix.Gettid()
		<-over
		_, _, _ = syscall.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(word)), futexUnlockPI, 0, 0, 0, 0)
	}()
	word.Store(uint32(<-owner))
	go func() {
		defer close(waited)
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		waiter <- unix.Gettid()
		end := unix.NsecToTimespec(time.Now().Add(hang).UnixNano())
		_, _, _ = syscall.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(word)), futexLockPI, 0, uintptr(unsafe.Pointer(&end)), 0, 0)
	}()
	status := "/proc/self/task/" + strconv.Itoa(<-waiter) + "/syscall"
	eventually(t, "wait for a lock", func() bool {
		call, _ := os.ReadFile(status)
		return strings.HasPrefix(string(call), strconv.Itoa(unix.SYS_FUTEX)+" ")
	})
	t.Cleanup(func() {
		close(over)
		<-waited
	})
}
