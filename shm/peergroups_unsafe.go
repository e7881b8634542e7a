package shm

import (
	"errors"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// maxGroups is how many supplementary groups a process may have (NGROUPS_MAX).
const maxGroups = 65536

// PeerGroups returns the supplementary groups that the process at the other end of a
// connected Unix socket had when it connected, as the kernel kept them; none where the
// kernel does not keep them.
func PeerGroups(fd int) ([]uint32, error) {
	for room := 64; ; {
		groups := make([]uint32, room)
		size := uint32(4 * room)
		_, _, errno := syscall.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.SOL_SOCKET, unix.SO_PEERGROUPS,
			uintptr(unsafe.Pointer(&groups[0])), uintptr(unsafe.Pointer(&size)), 0)
		switch {
		case errno == 0:
			return groups[:size/4], nil
		case errno == unix.ENOPROTOOPT:
			return nil, nil
		case errno != unix.ERANGE:
			return nil, errno
		case int(size/4) <= room || size/4 > maxGroups:
			return nil, errors.New("the kernel does not say how many groups a peer has")
		}
		room = int(size / 4)
	}
}
