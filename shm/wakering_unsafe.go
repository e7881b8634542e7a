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
// IORING_OFF_SQES, IORING_OP_SEND, IORING_OP_FUTEX_WAKE (Linux 6.7) and IOSQE_CQE_SKIP_SUCCESS.
const (
	uringNoArray     = 1 << 16
	uringSingleMap   = 1 << 0
	uringEntriesAt   = 0x10000000
	uringSend        = 26
	uringFutexWake   = 52
	uringSkipSuccess = 1 << 6
)

// wakeRingSize is how many entries a wakeRing has: the most sleepers of one system call.
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

// uringEntry is struct io_uring_sqe.
type uringEntry struct {
	op, flags uint8
	_         uint16
	// fd is the socket of a send; of a wake, the flags of the futex.
	fd int32
	// most is how many sleepers a wake wakes.
	most uint64
	// address is that of the word of a wake, or of what is sent; size is that of the latter.
	address   uint64
	size      uint32
	sendFlags uint32
	tag       uint64 // comes back if it fails: which of the sleepers it is about, or mayFail
	_         uint64
	bits      uint64
	_         uint64
}

// uringCompletion is struct io_uring_cqe.
type uringCompletion struct {
	tag    uint64
	result int32
	_      uint32
}

// mayFail is the tag of entries that need not succeed.
const mayFail = 1 << 63

// wakeRing is an io_uring that only wakes: everything it is given is done when the system call returns, and
// it says nothing unless something fails.
type wakeRing struct {
	fd               int
	ring, entriesMap []byte
	entries          []uringEntry
	failures         []uringCompletion
	// The kernel reads entries up to tail, and appends failures up to failed, of which those before seen are done with.
	tail, failed, seen *atomic.Uint32
	next               uint32
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
	if p.features&uringSingleMap == 0 || p.sqEntries != wakeRingSize || r.mapped(&p) != nil || !r.wakes() {
		_ = r.close()
		return nil
	}
	return r
}

// wakes reports whether the kernel knows how to wake.
func (r *wakeRing) wakes() bool {
	alone, ok := r.wake([]sleeper{{word: &nobodys}})
	return ok && alone == 0
}

func (r *wakeRing) mapped(p *uringParams) (err error) {
	const prot, flags = unix.PROT_READ | unix.PROT_WRITE, unix.MAP_SHARED | unix.MAP_POPULATE
	if r.ring, err = unix.Mmap(r.fd, 0, int(p.cq.cqes)+int(p.cqEntries)*int(unsafe.Sizeof(uringCompletion{})), prot, flags); err != nil {
		return err
	}
	if r.entriesMap, err = unix.Mmap(r.fd, uringEntriesAt, wakeRingSize*int(unsafe.Sizeof(uringEntry{})), prot, flags); err != nil {
		return err
	}
	r.tail = (*atomic.Uint32)(unsafe.Pointer(&r.ring[p.sq.tail]))
	r.failed = (*atomic.Uint32)(unsafe.Pointer(&r.ring[p.cq.tail]))
	r.seen = (*atomic.Uint32)(unsafe.Pointer(&r.ring[p.cq.head]))
	r.failures = unsafe.Slice((*uringCompletion)(unsafe.Pointer(&r.ring[p.cq.cqes])), p.cqEntries)
	r.entries = unsafe.Slice((*uringEntry)(unsafe.Pointer(&r.entriesMap[0])), wakeRingSize)
	return nil
}

// wake wakes up to wakeRingSize sleepers, whose words are not on a stack, which could move. If it reports false some may
// not have been woken, and the ring is of no more use. It returns how many had to be woken one by one, because the
// kernel refused them: whoever shares a word can see to that (with FUTEX_LOCK_PI, for one), and is not to take the ring from others.
func (r *wakeRing) wake(sleepers []sleeper) (alone int, ok bool) {
	for i, s := range sleepers {
		e := &r.entries[r.next%wakeRingSize]
		if s.pager != nil {
			// MSG_DONTWAIT: it fails rather than go on after the call.
			*e = uringEntry{
				op: uringSend, flags: uringSkipSuccess, fd: int32(s.pager.fd), address: uint64(uintptr(unsafe.Pointer(&page[0]))), size: 1,
				sendFlags: unix.MSG_DONTWAIT | unix.MSG_NOSIGNAL, tag: mayFail,
			}
		} else {
			*e = uringEntry{
				op: uringFutexWake, flags: uringSkipSuccess, fd: futex32, address: uint64(uintptr(unsafe.Pointer(s.word))), most: WakeMany, tag: uint64(i), bits: anyBit,
			}
		}
		r.next++
	}
	// The kernel looks at entries and tail within the call that follows, on this thread: all before is visible to it.
	r.tail.Store(r.next)
	n, _, errno := syscall.RawSyscall6(unix.SYS_IO_URING_ENTER, uintptr(r.fd), uintptr(len(sleepers)), 0, 0, 0, 0)
	runtime.KeepAlive(sleepers) // the kernel had their addresses only
	return r.wakeRefused(sleepers), errno == 0 && int(n) == len(sleepers)
}

// wakeRefused wakes those for which that has failed, but for pages, which need not succeed: see Pager.Page. It returns how many.
func (r *wakeRing) wakeRefused(sleepers []sleeper) (alone int) {
	seen := r.seen.Load()
	for end := r.failed.Load(); seen != end; seen++ {
		if tag := r.failures[seen%uint32(len(r.failures))].tag; tag < uint64(len(sleepers)) {
			FutexWake(sleepers[tag].word, WakeMany)
			alone++
		}
	}
	r.seen.Store(seen)
	return alone
}

func (r *wakeRing) close() (err error) {
	for _, m := range [][]byte{r.ring, r.entriesMap} {
		if m != nil {
			err = errors.Join(err, unix.Munmap(m))
		}
	}
	return errors.Join(err, unix.Close(r.fd))
}
