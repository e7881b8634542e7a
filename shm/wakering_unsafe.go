package shm

import (
	"errors"
	"runtime"
	"sync/atomic"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// What io_uring_setup(2) and io_uring_enter(2) call IORING_SETUP_NO_SQARRAY (Linux 6.6), IORING_FEAT_SINGLE_MMAP,
// IORING_OFF_SQES, IORING_OP_FUTEX_WAKE (Linux 6.7) and IOSQE_CQE_SKIP_SUCCESS.
const (
	uringNoArray     = 1 << 16
	uringSingleMap   = 1 << 0
	uringEntriesAt   = 0x10000000
	uringFutexWake   = 52
	uringSkipSuccess = 1 << 6
)

// wakeRingSize is how many entries a wakeRing has: the most words of one system call.
const wakeRingSize = 64

// anyBit is FUTEX_BITSET_MATCH_ANY: sleepers are not told apart.
const anyBit = 1<<32 - 1

// uringParams is struct io_uring_params.
type uringParams struct {
	sqEntries, cqEntries, flags, threadCPU, threadIdle, features, wq uint32
	_                                                                [3]uint32
	sq                                                               struct {
		head, tail, mask, entries, flags, dropped, array, _ uint32
		_                                                   uint64
	}
	cq struct {
		head, tail, mask, entries, overflow, cqes, flags, _ uint32
		_                                                   uint64
	}
}

// uringEntry is struct io_uring_sqe with the names of its fields for IORING_OP_FUTEX_WAKE.
type uringEntry struct {
	op, flags  uint8
	_          uint16
	futexFlags int32
	most       uint64 // how many sleepers to wake
	word       uint64 // its address
	_, _       uint32
	_          uint64
	_          uint64
	bits       uint64
	_          uint64
}

// uringCompletionSize is the size of struct io_uring_cqe.
const uringCompletionSize = 16

// wakeRing is an io_uring that only wakes: everything it is given is done when the system call returns, and
// it says nothing unless something fails.
type wakeRing struct {
	fd               int
	ring, entriesMap []byte
	entries          []uringEntry
	// The kernel reads entries up to tail, and appends what failed at said.
	tail, said *atomic.Uint32
	next       uint32
}

// nobodys is a word that nobody sleeps on.
var nobodys atomic.Uint32

// newWakeRing returns nil where that cannot be had: no io_uring, one that cannot wake, or none allowed.
func newWakeRing() *wakeRing {
	p := uringParams{flags: uringNoArray}
	fd, _, errno := syscall.Syscall(unix.SYS_IO_URING_SETUP, wakeRingSize, uintptr(unsafe.Pointer(&p)), 0)
	if errno != 0 {
		return nil
	}
	r := &wakeRing{fd: int(fd)}
	if p.features&uringSingleMap == 0 || p.sqEntries != wakeRingSize || r.mapped(&p) != nil || !r.wake([]*atomic.Uint32{&nobodys}) {
		_ = r.close()
		return nil
	}
	return r
}

func (r *wakeRing) mapped(p *uringParams) (err error) {
	const prot, flags = unix.PROT_READ | unix.PROT_WRITE, unix.MAP_SHARED | unix.MAP_POPULATE
	if r.ring, err = unix.Mmap(r.fd, 0, int(p.cq.cqes+p.cqEntries*uringCompletionSize), prot, flags); err != nil {
		return err
	}
	if r.entriesMap, err = unix.Mmap(r.fd, uringEntriesAt, wakeRingSize*int(unsafe.Sizeof(uringEntry{})), prot, flags); err != nil {
		return err
	}
	r.tail = (*atomic.Uint32)(unsafe.Pointer(&r.ring[p.sq.tail]))
	r.said = (*atomic.Uint32)(unsafe.Pointer(&r.ring[p.cq.tail]))
	r.entries = unsafe.Slice((*uringEntry)(unsafe.Pointer(&r.entriesMap[0])), wakeRingSize)
	return nil
}

// wake wakes the sleepers on up to wakeRingSize words, none of which is on a stack, which could move. If it reports false some may not have been woken, and the ring is
// of no more use.
func (r *wakeRing) wake(words []*atomic.Uint32) bool {
	for _, word := range words {
		r.entries[r.next%wakeRingSize] = uringEntry{
			op: uringFutexWake, flags: uringSkipSuccess, futexFlags: futex32,
			word: uint64(uintptr(unsafe.Pointer(word))), most: WakeAll, bits: anyBit,
		}
		r.next++
	}
	// The kernel looks at entries and tail within the call that follows, on this thread: all before is visible to it.
	r.tail.Store(r.next)
	n, _, errno := syscall.RawSyscall6(unix.SYS_IO_URING_ENTER, uintptr(r.fd), uintptr(len(words)), 0, 0, 0, 0)
	runtime.KeepAlive(words) // the kernel had their addresses only
	return errno == 0 && int(n) == len(words) && r.said.Load() == 0
}

func (r *wakeRing) close() (err error) {
	for _, m := range [][]byte{r.ring, r.entriesMap} {
		if m != nil {
			err = errors.Join(err, unix.Munmap(m))
		}
	}
	return errors.Join(err, unix.Close(r.fd))
}
