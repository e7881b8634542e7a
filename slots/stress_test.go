package slots_test

import (
	"sync"
	"testing"
	"time"

	"github.com/rdmad/rdmad/shm"
	"github.com/rdmad/rdmad/slots"
)

// Several workers and a daemon in one process, over memory that the race
// detector watches: every pair of accesses that the protocol orders must be
// ordered for the detector too.
func TestStressInProcess(t *testing.T) {
	for _, tt := range []struct {
		name    string
		g       slots.Geometry
		workers int
		each    int
	}{
		{"roomy", slots.Geometry{SlotSize: 128, Slots: 1024, MaxRun: 16}, 4, 20_000},
		{"crowded", slots.Geometry{SlotSize: 128, Slots: 37, MaxRun: 8}, 5, 4_000},
		{"large slots", slots.Geometry{SlotSize: 4096, Slots: 64, MaxRun: 8}, 2, 2_000},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if testing.Short() {
				tt.each /= 4
			}
			seed := uint64(time.Now().UnixNano())
			t.Logf("seed %d", seed)
			ring, mem := newRing(t, tt.g)
			setTickets(mem, tt.g, 1<<40-50) // they wrap soon
			domain := shm.AlignedBytes(slots.DomainSegmentSize)
			segments := make([][]byte, tt.workers+1)
			rings := make([]*slots.WorkerRings, tt.workers+1)
			for owner := 1; owner <= tt.workers; owner++ {
				segments[owner] = shm.AlignedBytes(slots.WorkerSegmentSize)
				rings[owner] = slots.NewWorkerRings(segments[owner])
			}
			d, err := newStressDaemon(ring, slots.NewBells(domain), rings)
			if err != nil {
				t.Fatal(err)
			}
			defer d.close()
			stop, failed := make(chan struct{}), make(chan error, 1)
			go func() { failed <- d.run(stop) }()
			var wg sync.WaitGroup
			for owner := 1; owner <= tt.workers; owner++ {
				wg.Go(func() {
					own, err := slots.NewRing(mem, tt.g)
					if err != nil {
						t.Error(err)
						return
					}
					w := newStressWorker(own, slots.NewBells(domain), d.bell, &slots.NewWorkerRings(segments[owner]).Down, owner, seed)
					if err := w.run(tt.each); err != nil {
						t.Error(err)
					}
				})
			}
			wg.Wait()
			close(stop)
			if err := <-failed; err != nil {
				t.Fatal(err)
			}
			if err := d.idle(); err != nil {
				t.Error(err)
				dump(t, ring)
			}
			t.Logf("%d messages in %d groups", d.messages, d.groups)
		})
	}
}
