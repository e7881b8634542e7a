package slots_test

import (
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdmad/rdmad/shm"
	"github.com/rdmad/rdmad/slots"
)

func TestBells(t *testing.T) {
	b := slots.NewBells(shm.AlignedBytes(slots.DomainSegmentSize))
	if b.Dirty() {
		t.Error("new bells are dirty")
	}
	for _, lane := range []uint16{4095, 64, 0, 63, 64, 4096 + 7} {
		if b.MarkLane(lane) {
			t.Error("ring for an agent that is awake")
		}
	}
	b.MarkWorker(12)
	if !b.Dirty() {
		t.Error("marked and not dirty")
	}
	var lanes []uint16
	b.TakeLanes(func(lane uint16) { lanes = append(lanes, lane) })
	if !slices.Equal(lanes, []uint16{0, 7, 63, 64, 4095}) {
		t.Errorf("took %v", lanes)
	}
	b.TakeLanes(func(lane uint16) { t.Errorf("took %d again", lane) })
	var workers []int
	b.TakeWorkers(func(id int) { workers = append(workers, id) })
	if !slices.Equal(workers, []int{12}) || b.Dirty() {
		t.Errorf("took workers %v, dirty %v", workers, b.Dirty())
	}
	b.PrepareSleep()
	// Who marked first may be stopped before it rings.
	for range 2 {
		if !b.MarkLane(3) || !b.MarkWorker(1) {
			t.Error("a sleeping agent is not rung for by everybody")
		}
	}
	b.CancelSleep()
	if b.MarkWorker(2) {
		t.Error("ring for an agent that gave up to sleep")
	}
}

// An agent that sleeps on the eventfd whenever it finds no mark misses none:
// without a wake-up it would sleep until the guard.
func TestBellsConcurrent(t *testing.T) {
	b := slots.NewBells(shm.AlignedBytes(slots.DomainSegmentSize))
	bell, err := shm.NewBell()
	if err != nil {
		t.Fatal(err)
	}
	defer bell.Close()
	epfd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(epfd)
	if err := unix.EpollCtl(epfd, unix.EPOLL_CTL_ADD, bell.FD(), &unix.EpollEvent{Events: unix.EPOLLIN}); err != nil {
		t.Fatal(err)
	}
	const workers, n = 3, 20_000
	guard := time.AfterFunc(4*time.Minute, func() { panic("a ring was lost") })
	defer guard.Stop()
	var posted, seen [workers]atomic.Uint64
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for i := range uint64(n) {
				posted[w].Store(i + 1)
				if b.MarkLane(uint16(w * 70)) {
					bell.Ring()
				}
			}
		})
	}
	for events := make([]unix.EpollEvent, 1); ; {
		b.TakeLanes(func(lane uint16) { w := lane / 70; seen[w].Store(posted[w].Load()) })
		done := true
		for w := range workers {
			done = done && seen[w].Load() == n
		}
		if done {
			break
		}
		b.PrepareSleep()
		if !b.Dirty() {
			if _, err := shm.EpollWait(epfd, events, 5*time.Minute); err != nil {
				t.Fatal(err)
			}
			bell.Silence()
		}
		b.CancelSleep()
	}
	wg.Wait()
}
