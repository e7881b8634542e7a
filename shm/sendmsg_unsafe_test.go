package shm_test

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// sendRaw sends what SendFDs would not, and an empty message with descriptors
// as it is: the wrappers of package unix put a byte into it.
func sendRaw(fd int, msg []byte, fds []int) error {
	oob := unix.UnixRights(fds...)
	h := unix.Msghdr{Control: &oob[0]}
	h.SetControllen(len(oob))
	if len(msg) > 0 {
		iov := unix.Iovec{Base: &msg[0]}
		iov.SetLen(len(msg))
		h.Iov = &iov
		h.SetIovlen(1)
	}
	if _, _, errno := syscall.Syscall(unix.SYS_SENDMSG, uintptr(fd), uintptr(unsafe.Pointer(&h)), 0); errno != 0 {
		return errno
	}
	return nil
}
