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

// A lane for which the config has no place any more is closed, and another one takes its
// place: one of a class that has other slots now, or that comes back.
func TestAdoptedLaneWithoutAPlace(t *testing.T) {
	a, err := newAgent("test", idleStrategy{}, 16, nil, zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	running.Go(a.run)
	defer running.Wait()
	defer a.commands.do(func() { a.stop = true })
	class := func(name string, slots int) config.Class {
		return config.Class{Name: name, SlotSize: 128, Slots: slots, MaxRun: 4}
	}
	old := []config.Class{class("same", 64), class("changed", 64), class("removed", 64)}
	c := &conductor{
		log: zerolog.Nop(), node: "a", ctx: context.Background(),
		cfg: &config.Config{Classes: []config.Class{old[0], class("changed", 128)}, Peers: []config.Peer{{Name: "b"}}},
	}
	newDomain := func() *domain {
		d, err := c.newDomain(config.Domain{Name: "d"}, a, nil)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	before, d := newDomain(), newDomain()
	defer func() {
		for _, d := range []*domain{before, d} {
			if err := a.poll.Remove(d.bell.FD()); err != nil {
				t.Error(err)
			}
			d.close()
		}
	}()
	var left []leftover[laneMeta]
	for _, k := range old {
		info, _, _, err := before.newLane("b", k, 0, false)
		if err != nil {
			t.Fatal(err)
		}
		item := &depot.Item{}
		for _, fd := range []int{info.seg.FD(), info.vault.FD()} {
			copied, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
			if err != nil {
				t.Fatal(err)
			}
			item.FDs = append(item.FDs, copied)
		}
		left = append(left, leftover[laneMeta]{item, int(info.ID), laneMeta{info.Lane, laneOut}})
	}
	d.adoptLanes(left)
	if len(d.lanes) != len(old) {
		t.Errorf("%d lanes are adopted", len(d.lanes))
	}
	var entered []string
	for k, o := range d.outs {
		entered = append(entered, k.class)
		if o.lane.isClosed() != (k.class != "same") {
			t.Errorf("class %s: closed %v", k.class, o.lane.isClosed())
		}
	}
	if !slices.Equal(entered, []string{"same"}) {
		t.Errorf("lanes of classes %q have their places", entered)
	}
}
