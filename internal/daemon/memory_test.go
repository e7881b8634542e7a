package daemon

import (
	"errors"
	"strings"
	"testing"

	"github.com/rs/zerolog"
	"golang.org/x/sys/unix"

	"github.com/rdmad/rdmad/internal/attach"
	"github.com/rdmad/rdmad/internal/config"
	"github.com/rdmad/rdmad/internal/vault"
	"github.com/rdmad/rdmad/shm"
)

// A core makes no region and no lane for which its control group, or the machine, has no memory left: the kernel would kill it,
// and each core after it that is asked for the same. It says whose limit that is.
func TestNoSegmentWithoutMemory(t *testing.T) {
	room := uint64(0)
	defer func(f func() (uint64, string)) { memory = f }(memory)
	memory = func() (uint64, string) { return room, "/sys/fs/cgroup/x/memory.max" }
	c, err := newConductor(parsed(t, "[observe]\ncounters = \"off\"\n"), 0, nil, nil, nil, false, zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.stop)
	d := c.allDomains()[0]
	p := pose(t, c, d, 1)
	page := uint64(shm.HeaderSize)
	refused := func(what string, err error) {
		t.Helper()
		if !errors.Is(err, attach.ErrLimit) || !strings.Contains(err.Error(), "/sys/fs/cgroup/x/memory.max leaves") || !strings.Contains(err.Error(), "MemoryMax") {
			t.Errorf("%s: %v", what, err)
		}
	}
	for _, room = range []uint64{0, config.LeftByRegions, config.LeftByRegions + 2*page - 1} {
		_, err := p.alloc()
		refused("a region", err)
	}
	if d.regions.count != 0 || p.w.regions.count != 0 {
		t.Error("what was refused counts")
	}
	room = config.LeftByRegions + 2*page // and its header
	if _, err := p.alloc(); err != nil {
		t.Errorf("a region for which there is enough: %v", err)
	}

	class := config.Class{Name: "c", SlotSize: 128, Slots: 64, MaxRun: 4}
	lane := func() error {
		d.making.Lock()
		defer d.making.Unlock()
		l, _, _, err := d.newLane("b", class, 0, false)
		if err == nil {
			d.dropLane(l)
		}
		return err
	}
	most := max(uint64(geometryOf(class).SegmentSize()), uint64(vault.Size(class.Slots))) // one after the other
	room = config.LeftByLanes + most - 1
	refused("a lane", lane())
	room = config.LeftByLanes + most + page
	if err := lane(); err != nil {
		t.Errorf("a lane for which there is enough: %v", err)
	}
}

// Answers stay in their slots where there is no memory to move them to.
func TestNoSpillWithoutMemory(t *testing.T) {
	room := uint64(config.LeftByLanes + 99)
	defer func(f func() (uint64, string)) { memory = f }(memory)
	memory = func() (uint64, string) { return room, "/sys/fs/cgroup/x/memory.max" }
	spill := make([]byte, 100)
	if _, err := storeSpill(spill); !errors.Is(err, unix.ENOMEM) || !strings.Contains(err.Error(), "memory.max leaves 99 bytes") {
		t.Errorf("a spill of one byte too many: %v", err)
	}
	room++
	fd, err := storeSpill(spill)
	if err != nil {
		t.Fatal(err)
	}
	shm.CloseFDs([]int{fd})
}

// What counts against limits.region_bytes is at least what is taken, also where huge pages are wanted: in small regions of these there
// would be much that nobody has asked for.
func TestRegionsCountWhatTheyTake(t *testing.T) {
	const mib, limit = 1 << 20, 1 << 30
	for _, mode := range []shm.HugepageMode{shm.HugepagesOff, shm.HugepagesTry, shm.HugepagesRequire} {
		for _, want := range []int{1, 4096, 4097, 2 * mib, hugeRegion - 4096, hugeRegion, 20*mib - 4096, 20 * mib, 100*mib + 1, limit - 2*mib, limit} {
			m := memoryOf(want, limit, mode)
			taken, header := shm.Whole(shm.HeaderSize+m.size, m.pages != shm.HugepagesOff), shm.HeaderSize
			if m.pages != shm.HugepagesOff {
				header = 0
			}
			if m.size < want || m.charged < taken-header || m.charged > want+want/8+4096 {
				t.Errorf("mode %d, %d bytes: %+v, and %d are taken", mode, want, m, taken)
			}
			if huge := m.pages == mode && mode != shm.HugepagesOff; huge != (mode == shm.HugepagesRequire && want >= hugeRegion || mode == shm.HugepagesTry && want >= hugeRegion && want < limit) {
				t.Errorf("mode %d, %d bytes of %d: of huge pages: %v", mode, want, limit, huge)
			}
			if again := chargeFor(m.size, taken); again < taken-shm.HeaderSize || again > m.charged {
				t.Errorf("mode %d, %d bytes: %d count, and %d for the next core", mode, want, m.charged, again)
			}
		}
	}
}

// Regions leave some huge pages to lanes, as they do of other memory.
func TestRegionsLeaveHugePages(t *testing.T) {
	defer func(f func() (uint64, string)) { hugePages = f }(hugePages)
	hugePages = func() (uint64, string) { return config.LeftByRegions + hugeRegion, "/proc/meminfo (HugePages_Free)" }
	c, err := newConductor(parsed(t, "[observe]\ncounters = \"off\"\n[memory]\nhugepages = \"require\"\n"), 0, nil, nil, nil, false, zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.stop)
	p := pose(t, c, c.allDomains()[0], 1)
	if _, err := p.allocOf(hugeRegion); !errors.Is(err, attach.ErrLimit) || !strings.Contains(err.Error(), "HugePages_Free) leaves 16777216 bytes") {
		t.Errorf("a region that needs one page more: %v", err)
	}
	if _, err := p.alloc(); err != nil || p.w.regions.bytes != shm.Whole(1, false) {
		t.Errorf("a small one: %v, %d bytes count", err, p.w.regions.bytes)
	}
}
