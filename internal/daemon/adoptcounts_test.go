package daemon

import (
	"errors"
	"net"
	"strings"
	"testing"

	"github.com/rs/zerolog"
	"golang.org/x/sys/unix"

	"github.com/rdmad/rdmad/client"
	"github.com/rdmad/rdmad/internal/attach"
	"github.com/rdmad/rdmad/internal/config"
	"github.com/rdmad/rdmad/internal/depot"
	"github.com/rdmad/rdmad/internal/vault"
	"github.com/rdmad/rdmad/shm"
	"github.com/rdmad/rdmad/slots"
)

// What waits in a lane that the last core was taking down has its outcome: the lane is not opened again before somebody
// asks for it.
func TestAdoptedLaneThatWasGoingDown(t *testing.T) {
	class := config.Class{Name: "same", SlotSize: 128, Slots: 64, MaxRun: 4}
	a := newAdoption(t, &config.Config{Classes: []config.Class{class}, Peers: []config.Peer{{Name: "b"}}})
	info, ring, v, err := a.before.newLane("b", class, 0, false)
	if err != nil {
		t.Fatal(err)
	}
	u, err := ring.Claim(1, 1)
	if err != nil {
		t.Fatal(err)
	}
	h := slots.Header{Ticket: u.Ticket, Run: 1, Kind: slots.KindRequest}
	h.Encode(ring.Header(u))
	ring.Publish(u, 1)
	w := ring.Word(u.Index)
	v.Journal.Enter(u.Index, &vault.Entry{Word: w, Seq: 1})
	if !ring.Take(u.Index, w) {
		t.Fatalf("not taken: %v", ring.Word(u.Index))
	}
	v.Closed.Store(1)
	a.next.adoptLanes([]leftover[laneMeta]{a.leave(t, info, laneOut)})
	if w := ring.Word(u.Index); w.State() != slots.Free { // its process is nobody's
		t.Errorf("it is %v", w)
	}
}

// Ids of processes and lanes go on from core to core, so that none comes back that somebody may still know another one by.
func TestIDsGoOnInTheNextCore(t *testing.T) {
	cfg := parsed(t, "[observe]\ncounters = \"off\"\n")
	core := successors(t, cfg)
	seen := map[string]map[int]bool{"process": {}, "lane": {}}
	for n := range 4 {
		c, end := core()
		l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: cfg.Node.Socket, Net: "unixpacket"})
		if err != nil {
			t.Fatal(err)
		}
		c.open(l)
		d := c.allDomains()[0]
		note := func(what string, id int) {
			if seen[what][id] {
				t.Errorf("another %s has the id %d", what, id)
			}
			seen[what][id] = true
		}
		var process *client.Conn
		attaches := func() {
			if process, err = client.Attach(t.Context(), cfg.Node.Socket); err != nil {
				t.Fatal(err)
			}
			note("process", workerOf(t, c).id)
		}
		opens := func() {
			d.making.Lock()
			info, _, _, err := d.newLane("b", cfg.Classes[0], 0, false)
			d.making.Unlock()
			if err != nil {
				t.Fatal(err)
			}
			note("lane", int(info.ID))
			d.dropLane(info)
		}
		// What comes last is not kept by the other.
		if n%2 == 0 {
			opens()
			attaches()
		} else {
			attaches()
			opens()
		}
		_ = process.Close()
		eventually(t, "it has gone", func() error {
			c.mu.Lock()
			defer c.mu.Unlock()
			if len(d.workers) > 0 {
				return errors.New("it has not")
			}
			return nil
		})
		end()
	}
}

// adopted starts a core that takes a process over which the last one has left like that, and returns the process's end of the
// connection.
func adopted(t *testing.T, cfg *config.Config, how workerMeta, change func(*slots.WorkerRings)) (*conductor, *attach.Conn) {
	t.Helper()
	items, process := leftBy(t, cfg)
	socket := items[3].FDs[1]
	shm.CloseFDs(append(items[1].FDs, items[3].FDs[0], items[4].FDs[0], items[5].FDs[0], items[5].FDs[1]))
	segment := func(kind shm.Kind, size int) (*shm.Segment, int) {
		seg, err := shm.Create(shm.CreateOptions{Name: "test", Kind: kind, Size: size})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = seg.Close() })
		fd, err := unix.FcntlInt(uintptr(seg.FD()), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		return seg, fd
	}
	_, domain := segment(shm.KindDomain, slots.DomainSegmentSize)
	seg, worker := segment(shm.KindWorker, slots.WorkerSegmentSize)
	change(slots.NewWorkerRings(seg.Bytes()))
	self, err := unix.PidfdOpen(ownPID, 0) // a process that lives
	if err != nil {
		t.Fatal(err)
	}
	items[1].FDs = append([]int{domain}, someFDs(t, 1)...)
	how.Role, how.PID, how.Welcomed = attach.RoleClient, ownPID, true
	items[3].Meta, items[3].FDs = metaOf(t, how), []int{worker, socket, self}
	c, err := newConductor(cfg, 0, nil, nil, []depot.Item{items[0], items[1], items[2], items[3]}, false, zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.stop)
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: cfg.Node.Socket, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	c.open(l)
	return c, process
}

// A process that the last core was about to disconnect for its offences is told so by the next one.
func TestNextCoreDismissesOffenders(t *testing.T) {
	_, process := adopted(t, parsed(t, "[limits]\ndomain_strikes = 0\n[observe]\ncounters = \"off\"\n"), workerMeta{Struck: 8}, func(*slots.WorkerRings) {})
	m, fds, err := process.Recv()
	shm.CloseFDs(fds)
	if err != nil || m.Type != attach.TypeGoodbye || !strings.Contains(m.Reason, "has broken the protocol 8 times") {
		t.Errorf("it is told %+v, %v", m, err)
	}
}

// A process that has said goodbye to a core that died with it, and lives, has nothing any more.
func TestNextCoreKnowsWhoHasDeparted(t *testing.T) {
	c, process := adopted(t, parsed(t, "[observe]\ncounters = \"off\"\n"), workerMeta{}, (*slots.WorkerRings).Depart)
	_ = process.Close()
	eventually(t, "it has nothing", func() error {
		c.mu.Lock()
		defer c.mu.Unlock()
		if len(c.allDomains()[0].workers) > 0 {
			return errors.New("it has")
		}
		return nil
	})
}

// What is left of a memory that the domain has no more, since the core died while it took it out of the depot, is not adopted, and its
// processes are told to attach again.
func TestMemoryThatADomainHasNoMore(t *testing.T) {
	for _, rotation := range []int{0, 3} { // the domain's is 0
		c, process := adopted(t, parsed(t, "[observe]\ncounters = \"off\"\n"), workerMeta{Rotation: rotation}, func(*slots.WorkerRings) {})
		m, _, err := process.Recv()
		c.mu.Lock()
		n := len(c.allDomains()[0].workers)
		c.mu.Unlock()
		if rotation == 0 {
			if err != nil || m.Type != attach.TypeResumed || n != 1 {
				t.Errorf("one of this memory: %+v, %v, %d workers", m, err, n)
			}
			continue
		}
		if err != nil || m.Type != attach.TypeGoodbye || !strings.Contains(m.Reason, "attach again") || n != 0 {
			t.Errorf("one of another memory: %+v, %v, %d workers", m, err, n)
		}
	}
}

// Of the old memory only what is not the domain's any more is dropped: also lanes and regions.
func TestDropFormer(t *testing.T) {
	c := &conductor{log: zerolog.Nop()}
	d := &domain{conductor: c, name: "d"}
	item := func(key string) *depot.Item { return &depot.Item{Key: key} }
	left := &domainLeft{
		domainMeta: domainMeta{Rotation: 2},
		workers:    []leftover[workerMeta]{{item("w1"), 1, workerMeta{Rotation: 1}}, {item("w2"), 2, workerMeta{Rotation: 2}}},
		regions:    []leftover[regionMeta]{{item("r1"), 1, regionMeta{Rotation: 2}}, {item("r2"), 2, regionMeta{}}},
		lanes:      []leftover[laneMeta]{{item("l1"), 1, laneMeta{Rotation: 3}}, {item("l2"), 2, laneMeta{Rotation: 2}}},
	}
	d.dropFormer(left)
	if len(left.workers) != 1 || left.workers[0].n != 2 || len(left.regions) != 1 || left.regions[0].n != 1 || len(left.lanes) != 1 || left.lanes[0].n != 2 {
		t.Errorf("%+v", left)
	}
}
