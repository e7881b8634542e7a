//go:build verbs && cgo && linux

package verbs

import (
	"testing"
	"time"

	"github.com/rdmad/rdmad/internal/fabric"
)

// hush has nothing of a device arrive anywhere until the function that it returns is called.
func (d *datagrams) hush() (speak func()) {
	set := func(closed bool) {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.closed = closed
	}
	set(true)
	return func() { set(false) }
}

// Many ends close at once, as those of a node that stops, more than messages can be on their way: every peer is told.
func TestManyFarewells(t *testing.T) {
	needDevice(t)
	const pairs = 40
	r := newRig(t, Default(), 64*pairs, true)
	var ends []*end
	for range pairs {
		a, _ := r.pair(4, 4)
		ends = append(ends, a)
	}
	d := r.dev[0]
	first := farewellWaits[0]
	farewellWaits[0] = time.Hour // until all are closed, however long that takes here
	t.Cleanup(func() { farewellWaits[0] = first })
	speak := d.ctl.hush()
	for _, a := range ends {
		r.must(a.ep.Close())
	}
	speak()
	d.mu.Lock()
	now := time.Now()
	for i := range d.farewells {
		d.farewells[i].next = now
	}
	d.mu.Unlock()
	d.bell.Ring()
	r.until("all peers are told", func() bool { return r.count(1, fabric.OpDisconnect) == pairs })
}

// The way to a peer is there as long as the last message to it may be on its way, also where the device's goroutine stands still for an hour.
func TestHandleOutlivesTheLastFarewell(t *testing.T) {
	needDevice(t)
	r := newRig(t, Default(), 64, true)
	a, _ := r.pair(4, 4)
	d := r.dev[0]
	first := farewellWaits[0]
	farewellWaits[0] = time.Hour
	t.Cleanup(func() { farewellWaits[0] = first })
	r.must(a.ep.Close())
	now := time.Now()
	left := func() int {
		now = now.Add(time.Hour)
		d.repeatFarewells(now)
		d.mu.Lock()
		defer d.mu.Unlock()
		return len(d.farewells)
	}
	for i := range 2 {
		if n := left(); n != 1 {
			t.Fatalf("after repetition %d there are %d ways to the peer", i+1, n)
		}
	}
	if n := left(); n != 0 {
		t.Errorf("%d ways are left", n)
	}
}
