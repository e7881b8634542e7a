package daemon

import (
	"context"
	"slices"
	"sync"
	"testing"

	"github.com/rs/zerolog"
	"golang.org/x/sys/unix"

	"github.com/rdmad/rdmad/internal/agent"
	"github.com/rdmad/rdmad/internal/attach"
	"github.com/rdmad/rdmad/internal/config"
	"github.com/rdmad/rdmad/internal/depot"
	"github.com/rdmad/rdmad/internal/vault"
	"github.com/rdmad/rdmad/shm"
	"github.com/rdmad/rdmad/slots"
)

// adoption is a conductor whose domain before was that of the last core, and whose domain next adopts
// lanes of it.
type adoption struct {
	agent        *agent.Agent
	conductor    *conductor
	before, next *domain
}

func newAdoption(t *testing.T, cfg *config.Config) *adoption {
	t.Helper()
	a, err := agent.New("test", agent.IdleStrategy{}, 16, nil, zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	a.Start(&running)
	t.Cleanup(running.Wait)
	t.Cleanup(func() { a.Commands.Do(func() { a.Stop = true }) })
	d := &adoption{agent: a, conductor: &conductor{log: zerolog.Nop(), node: "a", ctx: context.Background(), cfg: cfg}}
	for _, dom := range []**domain{&d.before, &d.next} {
		if *dom, err = d.conductor.newDomain(config.Domain{Name: "d"}, a, nil); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			a.Commands.Call(func() { a.Domains = nil })
			if err := a.Poll.Remove((*dom).bell.FD()); err != nil {
				t.Error(err)
			}
			(*dom).close()
		})
	}
	return d
}

// leave makes a lane of the last core's what it leaves behind.
func (d *adoption) leave(t *testing.T, o *laneInfo, role string) leftover[laneMeta] {
	t.Helper()
	item := &depot.Item{}
	for _, fd := range []int{o.seg.FD(), o.vault.FD()} {
		copied, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		item.FDs = append(item.FDs, copied)
	}
	return leftover[laneMeta]{item, int(o.ID), laneMeta{Lane: o.Lane, Direction: role}}
}

// A lane for which the config has no place any more is closed, and another one takes its
// place: one of a class that has other slots now, or that comes back.
func TestAdoptedLaneWithoutAPlace(t *testing.T) {
	class := func(name string, slots int) config.Class {
		return config.Class{Name: name, SlotSize: 128, Slots: slots, MaxRun: 4}
	}
	old := []config.Class{class("same", 64), class("changed", 64), class("removed", 64)}
	a := newAdoption(t, &config.Config{Classes: []config.Class{old[0], class("changed", 128)}, Peers: []config.Peer{{Name: "b"}}})
	var left []leftover[laneMeta]
	for _, k := range old {
		info, _, _, err := a.before.newLane("b", k, 0, false)
		if err != nil {
			t.Fatal(err)
		}
		left = append(left, a.leave(t, info, laneOut))
	}
	a.next.adoptLanes(left)
	if len(a.next.lanes) != len(old) {
		t.Errorf("%d lanes are adopted", len(a.next.lanes))
	}
	var entered []string
	for k, o := range a.next.outs {
		entered = append(entered, k.class)
		if o.lane.IsClosed() != (k.class != "same") {
			t.Errorf("class %s: closed %v", k.class, o.lane.IsClosed())
		}
	}
	if !slices.Equal(entered, []string{"same"}) {
		t.Errorf("lanes of classes %q have their places", entered)
	}
	a.next.dropUnused()
	known := 0
	a.agent.Commands.Call(func() { known = len(a.next.view.OutLanes) })
	if len(a.next.lanes) != 1 || known != 1 {
		t.Errorf("%d lanes are kept, of which the agent knows %d, when nobody has those that are replaced", len(a.next.lanes), known)
	}
}

// A lane to a node that is not a peer any more keeps its place: it is used again if the node
// comes back, and does not stay beside another one for ever.
func TestAdoptedLaneOfRemovedPeer(t *testing.T) {
	class := config.Class{Name: "same", SlotSize: 128, Slots: 64, MaxRun: 4}
	a := newAdoption(t, &config.Config{Classes: []config.Class{class}})
	info, _, _, err := a.before.newLane("b", class, 0, false)
	if err != nil {
		t.Fatal(err)
	}
	a.next.adoptLanes([]leftover[laneMeta]{a.leave(t, info, laneOut)})
	o := a.next.outs[laneKey{"b", "same", 0}]
	if o == nil || !o.lane.IsClosed() {
		t.Errorf("adopted as %+v, which must be closed", o)
	}
}

// A core that has another name than the last one, such as that of a peer which has its name now, has no place for the lanes that there
// were: who calls the one node by its name must not come to the other.
func TestAdoptedLanesOfAnotherName(t *testing.T) {
	class := config.Class{Name: "same", SlotSize: 128, Slots: 64, MaxRun: 4}
	a := newAdoption(t, &config.Config{Classes: []config.Class{class}, Peers: []config.Peer{{Name: "b"}}}) // it is node a, and was b
	var left []leftover[laneMeta]
	states := make(map[string]func() slots.LaneState)
	for direction, peer := range map[string]string{laneLocal: "b", laneOut: "a"} {
		info, ring, _, err := a.before.newLane(peer, class, 0, direction == laneLocal)
		if err != nil {
			t.Fatal(err)
		}
		left = append(left, a.leave(t, info, direction))
		states[direction] = ring.State
	}
	a.next.adoptLanes(left)
	list := []*domain{a.next}
	a.conductor.domains.Store(&list)
	a.conductor.applyService(false) // the node is in service
	if len(a.next.lanes) != 2 || len(a.next.outs) != 0 {
		t.Errorf("%d lanes are adopted, and %d have places", len(a.next.lanes), len(a.next.outs))
	}
	if local, out := states[laneLocal](), states[laneOut](); local != slots.LaneDraining || out != slots.LaneClosed {
		t.Errorf("within the node %v, to a peer %v", local, out)
	}
}

// A process that says it has a lane which is just being dropped is told that it is gone, and is
// given another one that gets the same number.
func TestHaveOfDroppedLane(t *testing.T) {
	class := config.Class{Name: "same", SlotSize: 128, Slots: 64, MaxRun: 4}
	a := newAdoption(t, &config.Config{Classes: []config.Class{class}})
	d := a.next
	info, _, _, err := d.newLane("b", class, 0, true)
	if err != nil {
		t.Fatal(err)
	}
	info.withhold() // as dropIncoming, which is on its way to ask whether the process has it
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	here, err := connOf(fds[0])
	if err != nil {
		t.Fatal(err)
	}
	defer here.Close()
	there, err := connOf(fds[1])
	if err != nil {
		t.Fatal(err)
	}
	defer there.Close()
	w := &worker{domain: d, conn: here, role: attach.RoleService, adopted: true, given: make(map[uint16]bool), asks: make(chan struct{}, askPlaces), asking: make(map[uint64]bool)}
	w.view = &agent.Worker{ID: 1}
	if err := a.conductor.have(w, &attach.Message{Have: &attach.Have{Lanes: []uint16{info.ID}}}); err != nil {
		t.Fatal(err)
	}
	m, _, err := there.Recv()
	if err != nil || m.Type != attach.TypeClosed || m.Lane.ID != info.ID {
		t.Errorf("told %+v, %v", m, err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.given[info.ID] {
		t.Error("the lane counts as given")
	}
}

// A process of a domain whose memory is unmapped is given no lane of it, whatever it has asked for before it was detached.
func TestLaneOfUnmappedDomain(t *testing.T) {
	class := config.Class{Name: "same", SlotSize: 128, Slots: 64, MaxRun: 4}
	a := newAdoption(t, &config.Config{Classes: []config.Class{class}})
	d, err := a.conductor.newDomain(config.Domain{Name: "gone"}, a.agent, nil)
	if err != nil {
		t.Fatal(err)
	}
	info, _, _, err := d.newLane("b", class, 0, true)
	if err != nil {
		t.Fatal(err)
	}
	w := &worker{domain: d, given: make(map[uint16]bool)}
	a.agent.Commands.Call(func() { a.agent.Domains = nil })
	d.cut, a.conductor.retired = true, map[*domain]struct{}{d: {}}
	a.conductor.dispose(d)
	w.give(info)
	if len(w.given) > 0 {
		t.Errorf("given: %v", w.given)
	}
}

// A lane in which a process may be at work that the next core does not know is not adopted: what it fills in or reads would be given to
// others. Who cannot be at work there any more is no reason, nor is who is known.
func TestAdoptedLaneOfAStranger(t *testing.T) {
	const stranger = 9
	class := config.Class{Name: "same", SlotSize: 128, Slots: 64, MaxRun: 4}
	claim := func(r *slots.Ring) slots.Run {
		u, err := r.Claim(stranger, 1)
		if err != nil {
			t.Fatal(err)
		}
		return u
	}
	publish := func(r *slots.Ring) slots.Run {
		u := claim(r)
		h := slots.Header{Ticket: u.Ticket, Run: 1, Kind: slots.KindOneWay}
		h.Encode(r.Header(u))
		r.Publish(u, stranger)
		return u
	}
	answer := func(r *slots.Ring) slots.Run {
		u := publish(r)
		w := r.Word(u.Index)
		r.Take(u.Index, w)
		r.Answer(u.Index, w)
		return u
	}
	deliver := func(r *slots.Ring, v *vault.Vault) {
		v.Records.Accept(3, &vault.Record{Run: 1, Ticket: 5})
		r.Deliver(3, 1, stranger, 5)
	}
	for name, c := range map[string]struct {
		does func(*slots.Ring, *vault.Vault)
		left bool
	}{
		"writes":        {func(r *slots.Ring, _ *vault.Vault) { claim(r) }, true},
		"has published": {func(r *slots.Ring, _ *vault.Vault) { publish(r) }, false},
		"has an answer": {func(r *slots.Ring, _ *vault.Vault) { answer(r) }, true},
		"reads":         {func(r *slots.Ring, _ *vault.Vault) { r.Acquire(answer(r), stranger) }, true},
		"has freed":     {func(r *slots.Ring, _ *vault.Vault) { u := answer(r); r.Free(u.Index, 1) }, false},
		"has not begun": {deliver, false},
		"handles one": {func(r *slots.Ring, v *vault.Vault) {
			deliver(r, v)
			r.Pick(3, stranger)
		}, true},
		"has died with an operation under way": {func(r *slots.Ring, v *vault.Vault) {
			deliver(r, v)
			r.Pick(3, stranger)
			v.Records.Failing(3, slots.StatusMaybeExecuted)
		}, false},
		"has handled one": {func(r *slots.Ring, v *vault.Vault) {
			deliver(r, v)
			u, _ := r.Pick(3, stranger)
			r.Finish(u, stranger)
		}, false},
		"has handled another": {func(r *slots.Ring, v *vault.Vault) {
			deliver(r, v)
			v.Records.Accept(3, &vault.Record{Run: 1, Ticket: 6})
		}, false},
	} {
		for _, known := range []bool{false, true} {
			a := newAdoption(t, &config.Config{Classes: []config.Class{class}})
			info, ring, v, err := a.before.newLane("a", class, 0, false)
			if err != nil {
				t.Fatal(err)
			}
			c.does(ring, v)
			if known {
				a.agent.Commands.Call(func() {
					rings := slots.NewWorkerRings(shm.AlignedBytes(slots.WorkerSegmentSize))
					a.next.view.AddWorker(&agent.Worker{ID: stranger, Rings: rings, Ops: &agent.WorkerOps{Ring: slots.NewOpRing(shm.AlignedBytes(slots.WorkerSegmentSize))}})
				})
			}
			a.next.adoptLanes([]leftover[laneMeta]{a.leave(t, info, laneLocal)})
			if left := len(a.next.lanes) == 0; left != (c.left && !known) {
				t.Errorf("one that %s, known: %v: the lane is left behind: %v", name, known, left)
			}
		}
	}
}
