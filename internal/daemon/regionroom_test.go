package daemon

import (
	"errors"
	"strings"
	"testing"

	"github.com/rs/zerolog"
	"golang.org/x/sys/unix"

	"github.com/rdmad/rdmad/internal/attach"
	"github.com/rdmad/rdmad/internal/config"
	"github.com/rdmad/rdmad/shm"
)

// roomForTest makes the cores that are started from now on have room for so many regions.
func roomForTest(t *testing.T, r config.RegionRoom) {
	machine := regionRoom
	regionRoom = func() config.RegionRoom { return r }
	t.Cleanup(func() { regionRoom = machine })
}

// posed is the other side of a worker that has not attached, and is one all the same.
type posed struct {
	t    *testing.T
	w    *worker
	conn *attach.Conn
	seq  uint64
}

func pose(t *testing.T, c *conductor, d *domain, id int) *posed {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	p := &posed{t: t, w: &worker{domain: d, id: id, role: attach.RoleClient, given: make(map[uint16]bool)}}
	for fd, conn := range map[int]**attach.Conn{fds[0]: &p.w.conn, fds[1]: &p.conn} {
		if *conn, err = connOf(fd); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = (*conn).Close() })
	}
	c.mu.Lock()
	c.attached[p.w] = struct{}{}
	c.mu.Unlock()
	t.Cleanup(func() {
		c.mu.Lock()
		delete(c.attached, p.w)
		c.mu.Unlock()
	})
	return p
}

// alloc asks for a region.
func (p *posed) alloc() (*attach.RegionInfo, error) {
	p.t.Helper()
	return p.allocOf(1)
}

// allocOf asks for a region of so many bytes.
func (p *posed) allocOf(size int64) (*attach.RegionInfo, error) {
	p.t.Helper()
	p.seq++
	c := p.w.domain.conductor
	if err := c.alloc(p.w, &attach.Message{Type: attach.TypeAlloc, Seq: p.seq, Region: &attach.RegionInfo{Size: size}}); err != nil {
		return nil, err
	}
	m, fds, err := p.conn.Recv()
	shm.CloseFDs(fds)
	if err != nil || m.Region == nil {
		p.t.Fatalf("%+v, %v", m, err)
	}
	return m.Region, nil
}

// Processes of a domain have no more regions together than there is room for, however many processes they are, and
// those of another domain have what is theirs.
func TestRegionsOfADomainAreBounded(t *testing.T) {
	roomForTest(t, config.RegionRoom{Most: 16, Limit: "half of something: have more of it", Maps: 100})
	c, err := newConductor(parsed(t, "[observe]\ncounters = \"off\"\n[[domain]]\nname = \"one\"\nusers = [\"0\"]\n[[domain]]\nname = \"two\"\nusers = [\"1\"]\n"), 0, nil, nil, nil, false, zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.stop)
	one, two := c.domainNamed("one"), c.domainNamed("two")
	first, second := pose(t, c, one, 1), pose(t, c, one, 2)
	var regions []*attach.RegionInfo
	for range 4 {
		for _, p := range []*posed{first, second} {
			r, err := p.alloc()
			if err != nil {
				t.Fatal(err)
			}
			regions = append(regions, r)
		}
	}
	_, err = first.alloc()
	if !errors.Is(err, attach.ErrLimit) || !strings.Contains(err.Error(), "domain one have 8 regions, of 8") || !strings.Contains(err.Error(), "have more of it") {
		t.Errorf("the ninth: %v", err)
	}
	other := pose(t, c, two, 1)
	if _, err := other.alloc(); err != nil {
		t.Errorf("another domain: %v", err)
	}

	// A region that is given back makes room, and for one.
	if err := c.free(second.w, &attach.Message{Type: attach.TypeFree, Region: regions[len(regions)-1]}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "there is room again", func() error {
		_, err := first.alloc()
		return err
	})
	if _, err := second.alloc(); !errors.Is(err, attach.ErrLimit) {
		t.Errorf("one more: %v", err)
	}

	// What the domain had in other memory counts as long as it is there.
	c.rotate(one, 1)
	if _, err := pose(t, c, c.domainNamed("one"), 3).alloc(); !errors.Is(err, attach.ErrLimit) {
		t.Errorf("in other memory: %v", err)
	}
}

// What processes have they keep in a core that has less room, which makes no more; but not the mappings that it needs itself.
func TestRegionsAreAdoptedBeyondTheRoom(t *testing.T) {
	cfg := parsed(t, "[observe]\ncounters = \"off\"\n")
	core := successors(t, cfg)
	first, end := served(t, cfg, core)
	process, w := attached(t, cfg, first)
	defer process.Close()
	const regions = 6
	for range regions {
		if _, err := process.AllocRegion(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
	}
	if w.regions.count != regions || w.domain.regions.count != regions {
		t.Errorf("%d and %d regions are counted", w.regions.count, w.domain.regions.count)
	}
	end()

	for _, want := range []struct{ maps, regions int }{{100, regions}, {4, 3}} {
		roomForTest(t, config.RegionRoom{Most: 2, Limit: "half of something", Maps: want.maps})
		c, end := core()
		w := workerOf(t, c)
		if w.regions.count != want.regions || w.domain.regions.count != want.regions {
			t.Errorf("%d and %d regions are counted where a process may have %d mappings, want %d", w.regions.count, w.domain.regions.count, want.maps, want.regions)
		}
		if err := c.reserve(w, 1); !errors.Is(err, attach.ErrLimit) || !strings.Contains(err.Error(), "half of something") {
			t.Errorf("one more: %v", err)
		}
		end()
	}
}
