package daemon

import (
	"os"

	"github.com/rdmad/rdmad/internal/cgroup"
	"github.com/rdmad/rdmad/shm"
)

// memory returns how many bytes more this process may take, and what says so.
var memory = func() (uint64, string) { return cgroup.Memory(os.DirFS("/"), "proc/self") }

// hugePages returns how many bytes there are in huge pages that nobody has, and what says so.
var hugePages = func() (uint64, string) { return cgroup.HugePages(os.DirFS("/")) }

// leaving returns what tells shm.Create how many bytes there are, but for some that are to be left.
func leaving(some uint64) func() (uint64, string) { return leavingOf(memory, some) }

func leavingOf(memory func() (uint64, string), some uint64) func() (uint64, string) {
	return func() (uint64, string) {
		n, by := memory()
		return n - min(n, some), by
	}
}

// hugeRegion is from how many bytes on a region is made of huge pages, where memory.hugepages wants some: what the last page is too
// large by is little of it then.
const hugeRegion = 16 << 20

// regionMemory is what a region takes.
type regionMemory struct {
	// size is that of the segment without its header page.
	size int
	// charged counts against limits.region_bytes: what it takes, but for the header page of one of ordinary pages.
	charged int
	pages   shm.HugepageMode
}

// memoryOf returns what a region takes of which a worker wants so many bytes, of limit that it may have.
func memoryOf(want, limit int, mode shm.HugepageMode) regionMemory {
	m := regionMemory{size: shm.Whole(want, false)}
	m.charged = m.size
	if mode == shm.HugepagesOff || m.size < hugeRegion {
		return m
	}
	if huge := shm.Whole(shm.HeaderSize+m.size, true); huge <= limit || mode == shm.HugepagesRequire {
		m.charged, m.pages = huge, mode
	}
	return m
}

// chargeFor returns what counts for an adopted region of size bytes whose segment has so many.
func chargeFor(size, segment int) int {
	if segment > shm.HeaderSize+size {
		return segment // of huge pages
	}
	return size
}
