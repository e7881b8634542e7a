package shm

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"

	"github.com/edsrzf/mmap-go"
	"golang.org/x/sys/unix"
)

// HugepageMode says whether a segment is made of huge pages.
type HugepageMode int

const (
	// HugepagesOff uses ordinary pages.
	HugepagesOff HugepageMode = iota
	// HugepagesTry uses huge pages when the kernel has enough free ones and
	// ordinary pages otherwise.
	HugepagesTry
	// HugepagesRequire fails when huge pages cannot be had.
	HugepagesRequire
)

// hugepageSize is the size a MFD_HUGETLB memfd uses by default on x86-64 and on
// arm64 with 4 KiB pages.
const hugepageSize = 2 << 20

// seals keep every holder of the descriptor from changing the segment's size,
// which would turn an access of the others into SIGBUS, and from adding seals.
const seals = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL

// Segment is a mapped shared-memory segment that starts with a header page.
// Its methods are safe for concurrent use except Close.
type Segment struct {
	file *os.File
	mem  mmap.MMap
	huge bool
}

// CreateOptions describes a new segment.
type CreateOptions struct {
	// Name shows up in /proc/PID/maps as memfd:NAME. It identifies nothing.
	Name string
	// Kind is stored in the header; see the Kind constants.
	Kind Kind
	// Size is the wanted size in bytes, header page included. It is rounded
	// up to whole pages.
	Size int
	// Hugepages says whether to use huge pages.
	Hugepages HugepageMode
	// Available, if it is not nil, returns how many bytes there are for ordinary pages, and what says so. A segment that
	// needs more of them is refused. To find out by trying, in a control group with a limit, would bring the kernel's
	// out-of-memory killer on this process: since Linux 4.19 also where fallocate could fail instead.
	Available func() (bytes uint64, by string)
	// HugeAvailable, if it is not nil, is Available for huge pages: what others need of them is left.
	HugeAvailable func() (bytes uint64, by string)
}

// Whole returns how many bytes a segment takes of which so many are wanted: whole pages, huge ones or not.
func Whole(size int, huge bool) int {
	page := os.Getpagesize()
	if huge {
		page = hugepageSize
	}
	return (size + page - 1) / page * page
}

// Create makes, prefaults, seals and maps a segment and writes its header. All
// its pages exist when Create returns, so that a lack of memory is an error
// here and not a SIGBUS later. The caller must Close it.
func Create(o CreateOptions) (*Segment, error) {
	if o.Size < HeaderSize {
		return nil, fmt.Errorf("shm: segment %q: size %d is less than the %d byte header page", o.Name, o.Size, HeaderSize)
	}
	if o.Hugepages != HugepagesOff {
		s, err := create(o, true)
		if err == nil {
			return s, nil
		}
		if o.Hugepages == HugepagesRequire {
			return nil, fmt.Errorf("%w (memory.hugepages = \"require\"; see HugePages_Free in /proc/meminfo, raise vm.nr_hugepages)", err)
		}
	}
	return create(o, false)
}

func create(o CreateOptions, huge bool) (_ *Segment, err error) {
	flags, available, size := unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING, o.Available, Whole(o.Size, huge)
	if huge {
		flags, available = flags|unix.MFD_HUGETLB, nil
		if err := enoughHuge(size, o.HugeAvailable); err != nil {
			return nil, fmt.Errorf("shm: segment %q: prefault %d bytes: %w", o.Name, size, err)
		}
	}
	fd, err := unix.MemfdCreate(o.Name, flags)
	if err != nil {
		return nil, fmt.Errorf("shm: memfd_create %q: %w", o.Name, err)
	}
	f := os.NewFile(uintptr(fd), "memfd:"+o.Name)
	defer func() {
		if err != nil {
			err = errors.Join(err, f.Close())
		}
	}()
	if err = f.Truncate(int64(size)); err != nil {
		return nil, fmt.Errorf("shm: segment %q: set size %d: %w", o.Name, size, err)
	}
	if err = takePages(fd, size, available); err != nil {
		return nil, fmt.Errorf("shm: segment %q: prefault %d bytes: %w", o.Name, size, err)
	}
	if _, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals); err != nil {
		return nil, fmt.Errorf("shm: segment %q: seal: %w", o.Name, err)
	}
	mem, err := mmap.MapRegion(f, size, mmap.RDWR, 0, 0)
	if err != nil {
		return nil, fmt.Errorf("shm: segment %q: map %d bytes: %w", o.Name, size, err)
	}
	s := &Segment{file: f, mem: mem, huge: huge}
	s.populate()
	s.writeHeader(o.Kind)
	return s, nil
}

// prefaultChunk is how many bytes are asked for at a time, and prefaultLeast how
// many at the least: an interrupted call has done nothing, so after some
// interruptions less is asked for, until a call ends between two signals.
const (
	prefaultChunk = 16 << 20
	prefaultLeast = 256 << 10
	prefaultTries = 4
)

// checkMemory refuses what the machine can never hold: to find out by trying
// would bring the kernel's out-of-memory killer on everybody.
func checkMemory(size int) error {
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return err
	}
	if total := uint64(info.Totalram) * uint64(info.Unit); uint64(size) > total {
		return fmt.Errorf("the machine has %d bytes: %w", total, unix.ENOMEM)
	}
	return nil
}

// enoughHuge refuses a segment for which there are too few huge pages. Unlike ordinary ones these are no promise: what two that are made
// at once are told to be there for each, the kernel gives to one.
func enoughHuge(size int, available func() (uint64, string)) error {
	if available == nil {
		return nil
	}
	if n, by := available(); uint64(size) > n {
		return fmt.Errorf("%s leaves %d bytes: %w", by, n, unix.ENOMEM)
	}
	return nil
}

// takePages makes all pages of a segment exist, unless there are known to be too few.
func takePages(fd, size int, available func() (uint64, string)) error {
	if err := checkMemory(size); err != nil {
		return err
	}
	owed, err := promiseMemory(size, available)
	if err != nil {
		return err
	}
	defer owed.end()
	return prefault(fd, size, owed)
}

// prefault reserves and zeroes every page before anybody maps it. A signal, and
// the Go runtime sends many, makes fallocate give up with EINTR: for huge pages,
// and for all pages before Linux 5.16. What it gets is not owed any more.
func prefault(fd, size int, owed *promise) error {
	chunk, interrupted := prefaultChunk, 0
	for off := 0; off < size; {
		n := min(chunk, size-off)
		switch err := unix.Fallocate(fd, 0, int64(off), int64(n)); {
		case err == nil:
			off += n
			owed.less(n)
			interrupted = 0
		case err != unix.EINTR || interrupted == 1000:
			return err
		default:
			if interrupted++; interrupted%prefaultTries == 0 {
				chunk = max(chunk/2, prefaultLeast)
			}
		}
	}
	return nil
}

// Open maps the segment behind fd, which another process created, and checks its
// seals, size and header before any byte of it is used. It takes over fd, and closes
// it: the mapping needs none.
//
// It returns ErrNotSealed for a descriptor that its creator could still shrink,
// ErrNotReady when the creator has not finished, a *VersionError for another
// ABI, and ErrBadSegment for anything else that is not the wanted segment.
func Open(fd int, kind Kind, size int) (*Segment, error) {
	s, err := Map(fd, kind, size)
	if cerr := unix.Close(fd); err != nil {
		err = errors.Join(err, cerr)
	}
	return s, err
}

// Map is Open that leaves fd to the caller.
func Map(fd int, kind Kind, size int) (*Segment, error) {
	s, err := mapSealed(fd, size)
	if err != nil {
		return nil, err
	}
	if err := s.checkHeader(kind); err != nil {
		return nil, errors.Join(err, s.mem.Unmap())
	}
	return s, nil
}

// Adopt maps a segment again of which the caller knows that it made it, or a process
// before it that kept the descriptor for it. Only what the kernel vouches for is checked,
// the seals and the size: other processes may have written to the header since. It takes
// over fd, also when it fails. Errors wrap ErrNotSealed and ErrBadSegment.
func Adopt(fd int, size int) (*Segment, error) {
	f := os.NewFile(uintptr(fd), "memfd")
	if f == nil {
		return nil, fmt.Errorf("%w: descriptor %d", ErrBadSegment, fd)
	}
	s, err := mapSealed(fd, size)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	s.file = f
	return s, nil
}

// mapSealed maps the segment behind fd, if it cannot change its size and is large enough.
func mapSealed(fd int, size int) (*Segment, error) {
	got, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	if err != nil {
		return nil, fmt.Errorf("%w: not a memfd: %w", ErrBadSegment, err)
	}
	if got&seals != seals {
		return nil, fmt.Errorf("%w: seals %#x, want %#x", ErrNotSealed, got, seals)
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, fmt.Errorf("shm: stat segment: %w", err)
	}
	if size < HeaderSize || st.Size < int64(size) {
		return nil, fmt.Errorf("%w: %d bytes, want at least %d", ErrBadSegment, st.Size, max(size, HeaderSize))
	}
	mem, err := unix.Mmap(fd, 0, int(st.Size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("shm: map segment of %d bytes: %w", st.Size, err)
	}
	s := &Segment{mem: mem}
	s.populate()
	return s, nil
}

// populateMost is how many bytes of a mapping populate looks after: more than a ring of the
// default classes has. Of a region that is larger, a process may never touch most.
const populateMost = 64 << 20

// populate enters the pages, all of which exist, into the page table of this process with one
// system call. Without it the first touch of each is a page fault of its own: the processes of a
// ring go round it slot by slot and would take one for each page of it, in the middle of requests.
// Kernels before Linux 5.14 refuse, which costs speed only.
func (s *Segment) populate() {
	_ = unix.Madvise(s.mem[:min(len(s.mem), populateMost)], unix.MADV_POPULATE_READ)
}

// Bytes returns the whole mapping, header page first. The slice is valid until
// Close; using it later faults.
func (s *Segment) Bytes() []byte { return s.mem }

// FD returns the descriptor to pass to other processes, -1 for a segment of another process. It stays owned by s.
func (s *Segment) FD() int { return int(s.file.Fd()) }

// Huge reports whether Create got huge pages.
func (s *Segment) Huge() bool { return s.huge }

// Close unmaps the segment and closes its descriptor. The memory lives on while
// another process has it mapped. No byte slice or atomic view taken from s may
// be used afterwards.
func (s *Segment) Close() error {
	err := s.mem.Unmap()
	if s.file != nil {
		err = errors.Join(err, s.file.Close())
	}
	return err
}

// Discard gives the segment's memory back to the system, before the Close of the last who needs
// it, although other processes may hold it longer: every byte is zero there from now on, and what
// they write to takes memory anew, on their account. Nothing may use the bytes at the same time.
func (s *Segment) Discard() error {
	const mode = unix.FALLOC_FL_PUNCH_HOLE | unix.FALLOC_FL_KEEP_SIZE
	for range 1000 { // as often as prefault, for the same reason
		if err := unix.Fallocate(s.FD(), mode, 0, int64(len(s.mem))); err != unix.EINTR {
			return err
		}
	}
	return unix.EINTR
}

// RestoreHeader writes the header again, of which other processes may have left anything
// since Create. Do so before the descriptor is given to another one, which would not
// map a segment without. Who is mapping it meanwhile sees what was there or what is.
func (s *Segment) RestoreHeader(kind Kind) { s.writeHeader(kind) }

func (s *Segment) writeHeader(kind Kind) {
	h := s.mem[:HeaderSize]
	binary.LittleEndian.PutUint64(h[offMagic:], Magic)
	binary.LittleEndian.PutUint32(h[offKind:], uint32(kind))
	binary.LittleEndian.PutUint64(h[offSize:], uint64(len(s.mem)))
	// SYNC POINT (segment ready): everything above is visible to whoever
	// loads this version; pairs with checkHeader.
	Uint32At(s.mem, offVersion).Store(ABIVersion)
}

func (s *Segment) checkHeader(kind Kind) error {
	// SYNC POINT (segment ready): pairs with writeHeader.
	v := Uint32At(s.mem, offVersion).Load()
	h := s.mem[:HeaderSize]
	switch magic := binary.LittleEndian.Uint64(h[offMagic:]); {
	case v == 0:
		return ErrNotReady
	case magic != Magic:
		return fmt.Errorf("%w: magic %#x, want %#x", ErrBadSegment, magic, uint64(Magic))
	}
	if err := CheckABI(v); err != nil {
		return err
	}
	if got := Kind(binary.LittleEndian.Uint32(h[offKind:])); got != kind {
		return fmt.Errorf("%w: a %v segment, want a %v segment", ErrBadSegment, got, kind)
	}
	return nil
}
