package shm_test

import (
	"errors"
	"fmt"
	"runtime"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/rdmad/rdmad/internal/poller"
	"github.com/rdmad/rdmad/shm"
)

// Where the kernel does not know epoll_pwait2, or a filter forbids it, waits are as long as they are elsewhere, to a millisecond.
func TestPollWithoutPwait2(t *testing.T) {
	for _, role := range []string{"poll-unknown", "poll-forbidden"} {
		child(t, role, testSegment(t))()
	}
}

// refuse makes epoll_pwait2 fail with errno on the calling thread, as a kernel or a filter of system calls would have it. The
// goroutine must stay locked to the thread.
func refuse(errno syscall.Errno) error {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 0}, // the number of the call
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.SYS_EPOLL_PWAIT2, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(errno)},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	if _, _, e := syscall.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, uintptr(unsafe.Pointer(&program))); e != 0 {
		return fmt.Errorf("seccomp: %w", e)
	}
	if _, _, e := syscall.Syscall6(unix.SYS_EPOLL_PWAIT2, 0, 0, 0, 0, 0, 0); e != errno {
		return fmt.Errorf("behind the filter epoll_pwait2 returns %w", e)
	}
	return nil
}

// pollRefused polls without epoll_pwait2, in a process of its own.
func pollRefused(errno syscall.Errno) (err error) {
	runtime.LockOSThread()
	p, err := poller.New()
	if err != nil {
		return err
	}
	b, err := shm.NewBell()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.Close(), b.Close()) }()
	if err := errors.Join(p.Add(b.FD(), unix.EPOLLIN, silent{}), refuse(errno)); err != nil {
		return err
	}
	for _, timeout := range []time.Duration{1, poller.RawLimit - 1, poller.RawLimit + 1} {
		// A signal of the runtime may end some early.
		looks, end := 0, time.Now().Add(2*poller.RawLimit)
		for ; time.Now().Before(end); looks++ {
			if n, err := p.Wait(timeout); n != 0 || err != nil {
				return fmt.Errorf("wait of %v: %d ready, %v", timeout, n, err)
			}
		}
		if most := 10 * int(2*poller.RawLimit/time.Millisecond); looks > most {
			return fmt.Errorf("%d waits of %v each in %v", looks, timeout, 2*poller.RawLimit)
		}
	}
	if n, err := p.Wait(0); n != 0 || err != nil {
		return fmt.Errorf("a look: %d ready, %v", n, err)
	}
	b.Ring()
	for _, timeout := range []time.Duration{0, 1, poller.RawLimit, hang, -1} {
		if n, err := p.Wait(timeout); n != 1 || err != nil {
			return fmt.Errorf("wait of %v for a bell that rings: %d ready, %v", timeout, n, err)
		}
	}
	return nil
}

// silent is a poller.Handler.
type silent struct{}

func (silent) Ready(int, uint32) {}
