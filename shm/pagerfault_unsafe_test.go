package shm_test

import (
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Requests of a userfaultfd and what they take; see ioctl_userfaultfd(2).
const (
	uffdAPI         = 0xc018aa3f
	uffdRegister    = 0xc020aa00
	uffdMissingMode = 1
)

type uffdAPIArgs struct{ api, features, ioctls uint64 }

type uffdRegisterArgs struct{ start, length, mode, ioctls uint64 }

// missing returns a page of memory that is not there, and the descriptor that tells who wants
// it: he waits until it is closed.
func missing(t *testing.T) (mem []byte, uffd int) {
	t.Helper()
	fd, _, errno := unix.Syscall(unix.SYS_USERFAULTFD, unix.O_CLOEXEC|unix.O_NONBLOCK, 0, 0)
	if errno != 0 {
		t.Skipf("skipped: userfaultfd: %v (it takes root, or vm.unprivileged_userfaultfd = 1)", errno)
	}
	uffd = int(fd)
	mem, err := unix.Mmap(-1, 0, unix.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Munmap(mem) })
	api := uffdAPIArgs{api: 0xaa}
	reg := uffdRegisterArgs{start: uint64(uintptr(unsafe.Pointer(&mem[0]))), length: uint64(len(mem)), mode: uffdMissingMode}
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, fd, uffdAPI, uintptr(unsafe.Pointer(&api))); errno != 0 {
		_ = unix.Close(uffd)
		t.Skipf("skipped: UFFDIO_API: %v (the kernel needs CONFIG_USERFAULTFD)", errno)
	}
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, fd, uffdRegister, uintptr(unsafe.Pointer(&reg))); errno != 0 {
		t.Fatalf("UFFDIO_REGISTER: %v", errno)
	}
	return mem, uffd
}

// A reader that hangs in the middle of a read, because the memory that it reads into is not
// there, holds up neither a page nor the end of the pager.
func TestPagerDoesNotWaitForItsReader(t *testing.T) {
	mem, uffd := missing(t)
	p, reader := newPager(t)
	p.Page()
	hangs := make(chan struct{})
	go func() {
		defer close(hangs)
		_, _, _ = unix.Syscall(unix.SYS_READ, uintptr(reader), uintptr(unsafe.Pointer(&mem[0])), uintptr(len(mem)))
	}()
	if n, err := unix.Poll([]unix.PollFd{{Fd: int32(uffd), Events: unix.POLLIN}}, 60_000); n != 1 || err != nil {
		t.Fatalf("the reader does not hang: %d, %v", n, err)
	}
	paged := make(chan struct{})
	go func() {
		defer close(paged)
		p.Page()
		_ = p.Close()
	}()
	select {
	case <-paged:
	case <-time.After(20 * time.Second):
		t.Error("a page waits for its reader")
	}
	_ = unix.Close(uffd)
	<-hangs
	<-paged
	_ = unix.Close(reader)
}
