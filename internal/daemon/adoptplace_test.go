package daemon

import (
	"context"
	"slices"
	"sync"
	"testing"

	"github.com/rs/zerolog"
	"golang.org/x/sys/unix"

	"github.com/rdmad/rdmad/internal/config"
	"github.com/rdmad/rdmad/internal/depot"
)

// adoption is a conductor whose domain before was that of the last core, and whose domain next adopts
// lanes of it.
type adoption struct {
	agent        *agent
	conductor    *conductor
	before, next *domain
}

func newAdoption(t *testing.T, cfg *config.Config) *adoption {
	t.Helper()
	a, err := newAgent("test", idleStrategy{}, 16, nil, zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	running.Go(a.run)
	t.Cleanup(running.Wait)
	t.Cleanup(func() { a.commands.do(func() { a.stop = true }) })
	d := &adoption{agent: a, conductor: &conductor{log: zerolog.Nop(), node: "a", ctx: context.Background(), cfg: cfg}}
	for _, dom := range []**domain{&d.before, &d.next} {
		if *dom, err = d.conductor.newDomain(config.Domain{Name: "d"}, a, nil); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			a.commands.call(func() { a.domains = nil })
			if err := a.poll.Remove((*dom).bell.FD()); err != nil {
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
	return leftover[laneMeta]{item, int(o.ID), laneMeta{o.Lane, role}}
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
		if o.lane.isClosed() != (k.class != "same") {
			t.Errorf("class %s: closed %v", k.class, o.lane.isClosed())
		}
	}
	if !slices.Equal(entered, []string{"same"}) {
		t.Errorf("lanes of classes %q have their places", entered)
	}
}
