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
		if b.MarkLane(lane) != 0 {
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
}

// Every process rings for each sleep until it has done so, and no more: who marked first
// may be stopped before it rings.
func TestEveryProcessRingsOnce(t *testing.T) {
	mem := shm.AlignedBytes(slots.DomainSegmentSize)
	agent, one, other := slots.NewBells(mem), slots.NewBells(mem), slots.NewBells(mem)
	for range 3 {
		agent.PrepareSleep()
		sleep := one.MarkLane(3)
		for range 2 {
			if sleep == 0 || one.MarkLane(3) != sleep || one.MarkWorker(1) != sleep || other.MarkLane(3) != sleep || one.HasRung(sleep) || other.HasRung(sleep) {
				t.Fatal("a sleeping agent is not rung for by everybody")
			}
		}
		one.Rung(sleep)
		if !one.HasRung(one.MarkLane(3)) || !one.HasRung(one.MarkWorker(1)) {
			t.Error("a second ring for one sleep")
		}
		if other.HasRung(other.MarkLane(3)) {
			t.Error("one process's ring keeps another one from ringing")
		}
		agent.CancelSleep()
		if one.MarkWorker(2) != 0 || other.MarkWorker(2) != 0 {
			t.Error("ring for an agent that gave up to sleep")
		}
		agent = slots.NewBells(mem) // of another core, which goes on
	}
}

// Whoever writes to the memory between two sleeps makes no number come again.
func TestSleepsAreNotRepeated(t *testing.T) {
	mem := shm.AlignedBytes(slots.DomainSegmentSize)
	agent, worker := slots.NewBells(mem), slots.NewBells(mem)
	seen := map[slots.Sleep]bool{}
	for range 5 {
		agent.PrepareSleep()
		sleep := worker.MarkLane(3)
		if seen[sleep] || sleep == 0 {
			t.Errorf("sleep %d again", sleep)
		}
		seen[sleep] = true
		shm.Uint64At(mem, 4104).Store(0)
		agent.CancelSleep()
	}
}

// An agent of an older version has one number for all its sleeps.
func TestBellsOfOlderAgents(t *testing.T) {
	mem := shm.AlignedBytes(slots.DomainSegmentSize)
	b := slots.NewBells(mem)
	for range 3 {
		shm.Uint32At(mem, 4096).Store(1)
		sleep := b.MarkLane(3)
		if sleep == 0 || b.HasRung(sleep) {
			t.Fatal("no ring for a sleeping agent")
		}
		b.Rung(sleep)
		shm.Uint32At(mem, 4096).Store(0)
	}
}

// An agent that sleeps on the eventfd whenever it finds no mark misses none:
// without a wake-up it would sleep until the guard.
func TestBellsConcurrent(t *testing.T) {
	mem := shm.AlignedBytes(slots.DomainSegmentSize)
	b := slots.NewBells(mem)
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
	const workers, n = 4, 20_000
	guard := time.AfterFunc(4*time.Minute, func() { panic("a ring was lost") })
	defer guard.Stop()
	var posted, seen [workers]atomic.Uint64
	var wg sync.WaitGroup
	for w := range workers {
		// Two and two of them are threads of a process.
		process := b
		if w >= workers/2 {
			process = slots.NewBells(mem)
		}
		wg.Go(func() {
			for i := range uint64(n) {
				posted[w].Store(i + 1)
				if sleep := process.MarkLane(uint16(w * 70)); sleep != 0 && !process.HasRung(sleep) {
					bell.Ring()
					process.Rung(sleep)
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
