package slots_test

import (
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rdmad/rdmad/shm"
	"github.com/rdmad/rdmad/slots"
)

// The protocols of sleeping have two sides that each store one word and then look at the other's. If neither sees what the
// other has stored, a wake-up is lost. A processor may let a look come before a store that is not more than a
// release, so each pair is tried many times, on two processors at the same time.

const (
	// fenceRounds is how often a pair is tried, and fenceTime for how long at most, on a machine with more to do: a store that is
	// too weak is noticed within some thousand.
	fenceRounds = 60_000
	fenceTime   = time.Second
	// mostSkew is by how many looks at a counter one side begins later than the other at most: some 0.3 us.
	mostSkew = 250
)

// meet runs one side on a thread of its own and the other on the caller's, round after round. Each side returns whether it
// missed what the other does; reset comes before both. It returns in how many rounds both did.
func meet(t *testing.T, reset func(), one, other func() (missed bool)) (lost int) {
	t.Helper()
	if runtime.GOMAXPROCS(0) < 2 || runtime.NumCPU() < 2 {
		t.Skip("takes two processors: run it where the affinity and GOMAXPROCS allow as many")
	}
	var begun, ended, missed atomic.Int64
	await := func(counter *atomic.Int64, n int64) {
		for looks := 1; counter.Load() < n; looks++ {
			if looks%1000 == 0 {
				runtime.Gosched() // others may have the second processor
				shm.Yield()
			}
		}
	}
	var over bool // written before a round begins
	side := func(round, skew int, f func() bool) {
		for range skew {
			begun.Load()
		}
		if f() {
			missed.Add(1)
		}
		ended.Add(1)
		await(&ended, int64(2*round))
	}
	begin := func(round int) (more bool) {
		begun.Add(1)
		await(&begun, int64(2*round))
		return !over
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for round := 1; begin(round); round++ {
			side(round, round%mostSkew, one)
		}
	}()
	end := time.Now().Add(fenceTime)
	for round := 1; ; round++ {
		missed.Store(0)
		reset()
		over = round > fenceRounds || round%8 == 0 && time.Now().After(end)
		if !begin(round) {
			break
		}
		side(round, round/mostSkew%mostSkew, other)
		if missed.Load() == 2 {
			lost++
		}
	}
	<-done
	return lost
}

func none(t *testing.T, lost int) {
	t.Helper()
	if lost > 0 {
		t.Errorf("wake-ups are lost in %d rounds", lost)
	}
}

// A hint, and a consumer that goes to sleep.
func TestHintWakeIsNotLost(t *testing.T) {
	mem := shm.AlignedBytes(slots.WorkerSegmentSize)
	producer, consumer := &slots.NewWorkerRings(mem).Down, &slots.NewWorkerRings(mem).Down
	none(t, meet(t, func() {
		for {
			if _, ok := consumer.Pop(); !ok {
				break
			}
		}
		consumer.CancelSleep()
	}, func() bool {
		producer.Stage(slots.MakeHint(1, 2, 3))
		woken, _, _ := producer.Rouse()
		return !woken
	}, func() bool {
		consumer.PrepareSleep()
		return consumer.Empty()
	}))
}

// A result, and a worker that goes to sleep.
func TestResultWakeIsNotLost(t *testing.T) {
	mem := shm.AlignedBytes(slots.WorkerSegmentSize)
	daemon, worker := slots.NewOpRing(mem), slots.NewOpRing(mem)
	none(t, meet(t, func() {
		for worker.Take(new(slots.Result)) {
		}
		worker.CancelSleep()
	}, func() bool {
		daemon.Complete(new(slots.Result))
		return !daemon.Wake()
	}, func() bool {
		worker.PrepareSleep()
		return worker.Empty()
	}))
}

// A mark, and an agent that goes to sleep.
func TestMarkIsNotLost(t *testing.T) {
	mem := shm.AlignedBytes(slots.DomainSegmentSize)
	worker, agent := slots.NewBells(mem), slots.NewBells(mem)
	none(t, meet(t, func() {
		agent.CancelSleep()
		agent.TakeLanes(func(uint16) {})
	}, func() bool { return worker.MarkLane(7) == 0 }, func() bool {
		agent.PrepareSleep()
		return !agent.Dirty()
	}))
}

// What a mark that is set already is about, and an agent that takes the mark.
func TestWhatIsMarkedIsSeen(t *testing.T) {
	ring, _ := newRing(t, slots.Geometry{SlotSize: 128, Slots: 16, MaxRun: 1})
	mem := shm.AlignedBytes(slots.DomainSegmentSize)
	worker, agent := slots.NewBells(mem), slots.NewBells(mem)
	var u slots.Run
	none(t, meet(t, func() {
		if u.Len > 0 {
			ring.Revoke(u, 1)
			ring.Abort(u)
		}
		var err error
		if u, err = ring.Claim(1, 1); err != nil {
			t.Error(err)
		}
		worker.MarkLane(7)
	}, func() bool {
		ring.Publish(u, 1)
		worker.MarkLane(7)
		again := false
		agent.TakeLanes(func(uint16) { again = true })
		return !again
	}, func() bool {
		agent.TakeLanes(func(uint16) {})
		return ring.Word(u.Index).State() != slots.Pub
	}))
}

// Slots that become free, and somebody who is about to wait for some.
func TestFreedSlotIsNotLost(t *testing.T) {
	ring, _ := newRing(t, slots.Geometry{SlotSize: 128, Slots: 16, MaxRun: 1})
	var u slots.Run
	none(t, meet(t, func() {
		ring.WakeFree()
		var err error
		if u, err = ring.Claim(1, 1); err != nil {
			t.Error(err)
		}
	}, func() bool {
		ring.Free(u.Index, 1)
		bell := ring.FreeBell().Load()
		ring.Freed(1)
		return ring.FreeBell().Load() == bell
	}, func() bool {
		ring.WaitFree(1)
		return ring.Word(u.Index).State() != slots.Free
	}))
}
