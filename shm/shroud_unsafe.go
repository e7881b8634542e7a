package shm

import (
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Shroud is a Close for memory that somebody may still read or write by its addresses who cannot be stopped at once,
// such as a device: it puts memory of nobody's there, in which what is written is lost, and what is read is zero. No
// other process sees any of it. It takes no room but for what is written. When nobody can come any more, end unmaps it.
//
// After an error it is not known what is there: neither use nor Close the segment.
func (s *Segment) Shroud() (end func() error, err error) {
	const flags = unix.MAP_PRIVATE | unix.MAP_ANONYMOUS | unix.MAP_NORESERVE | unix.MAP_FIXED
	mem := s.mem
	// In the place of the segment's own mapping: in between there is no moment at which the addresses are free.
	if _, err := unix.MmapPtr(-1, 0, unsafe.Pointer(&mem[0]), uintptr(len(mem)), unix.PROT_READ|unix.PROT_WRITE, flags); err != nil {
		return nil, fmt.Errorf("shm: %d bytes in the place of a segment: %w", len(mem), err)
	}
	err = s.file.Close()
	return func() error { return errors.Join(err, mem.Unmap()) }, nil
}
