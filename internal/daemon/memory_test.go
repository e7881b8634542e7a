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
