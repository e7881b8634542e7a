package shm

import (
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A process whose threads sleep on its word many times over does not keep the one that wakes it: it wakes so many of
// those sleeps, and no more.
func TestWakesAreBounded(t *testing.T) {
	mem, err := unix.Mmap(-1, 0, unix.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_ANONYMOUS)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Munmap(mem) }()
	word := (*atomic.Uint32)(unsafe.Pointer(&mem[0]))
	const threads, each = 16, 128
	var sleepers sync.WaitGroup
	var awake atomic.Int32
	var unknown atomic.Bool
	for range threads {
		awake.Add(1)
		sleepers.Go(func() {
			defer awake.Add(-1)
			var words [each]waitv
			for i := range words {
				words[i] = waitv{addr: uint64(uintptr(unsafe.Pointer(word))), flags: futex32}
			}
			for word.Load() == 0 && !unknown.Load() {
				_, _, e := syscall.Syscall6(unix.SYS_FUTEX_WAITV, uintptr(unsafe.Pointer(&words)), each, 0, 0, 0, 0)
				unknown.CompareAndSwap(false, e == unix.ENOSYS)
			}
		})
	}
	most := 0
	for end := time.Now().Add(time.Minute); most < WakeMany && !unknown.Load() && time.Now().Before(end); runtime.Gosched() {
		most = max(most, FutexWake(word, WakeMany)) // all there are as soon as all of them sleep
	}
	word.Store(1)
	for awake.Load() > 0 {
		FutexWake(word, threads*each)
		runtime.Gosched()
	}
	sleepers.Wait()
	if unknown.Load() {
		t.Skip("the kernel has no futex_waitv: it takes Linux 5.16")
	}
	if most != WakeMany {
		t.Errorf("one call has ended %d of %d sleeps, want %d", most, threads*each, WakeMany)
	}
}
