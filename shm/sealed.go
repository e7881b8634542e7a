package shm

import (
	"errors"
	"fmt"
	"io"

	"golang.org/x/sys/unix"
)

// finalSeals are those of a memfd whose bytes nobody can change any more, not even its
// creator, which can only take them all back.
const finalSeals = unix.F_SEAL_WRITE | unix.F_SEAL_GROW | unix.F_SEAL_SEAL

// CreateSealed makes a memfd that holds data, and seals it so that its bytes cannot
// change. It can only be cut: truncating it gives its memory back, whoever still has a
// descriptor. The descriptor is the caller's to close. It fails when there is no memory
// for it: with ENOMEM if available, which is that of CreateOptions, says so; nil for no bound.
func CreateSealed(name string, data []byte, available func() (uint64, string)) (fd int, err error) {
	owed, err := promiseMemory(len(data), available)
	if err != nil {
		return -1, fmt.Errorf("shm: memfd %q of %d bytes: %w", name, len(data), err)
	}
	defer owed.end()
	if fd, err = unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING); err != nil {
		return -1, fmt.Errorf("shm: memfd_create %q: %w", name, err)
	}
	for at := 0; at < len(data) && err == nil; {
		var n int
		if n, err = unix.Pwrite(fd, data[at:], int64(at)); err == nil {
			owed.less(n)
			at += n
		} else if errors.Is(err, unix.EINTR) {
			err = nil
		}
	}
	if err == nil {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, finalSeals)
	}
	if err != nil {
		_ = unix.Close(fd)
		return -1, fmt.Errorf("shm: memfd %q of %d bytes: %w", name, len(data), err)
	}
	return fd, nil
}

// CopySealed returns what CreateSealed in another process has put into the memfd fd,
// in memory of the caller's own; nothing if its creator has taken it back. The descriptor stays the caller's. It fails
// with ErrNotSealed if the bytes could still change, with ErrBadSegment if they are more
// than most or the descriptor is no memfd.
func CopySealed(fd, most int) ([]byte, error) {
	got, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	if err != nil {
		return nil, fmt.Errorf("%w: not a memfd: %w", ErrBadSegment, err)
	}
	if got&finalSeals != finalSeals {
		return nil, fmt.Errorf("%w: seals %#x, want %#x", ErrNotSealed, got, finalSeals)
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, fmt.Errorf("shm: stat memfd: %w", err)
	}
	if st.Size > int64(most) {
		return nil, fmt.Errorf("%w: %d bytes, want at most %d", ErrBadSegment, st.Size, most)
	}
	data := make([]byte, st.Size)
	for at := 0; at < len(data); {
		n, err := unix.Pread(fd, data[at:], int64(at))
		if err == nil && n == 0 {
			err = io.ErrUnexpectedEOF // it was cut meanwhile
		}
		if err != nil && !errors.Is(err, unix.EINTR) {
			return nil, fmt.Errorf("shm: read memfd: %w", err)
		}
		at += max(n, 0)
	}
	return data, nil
}
