package shm_test

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rdmad/rdmad/shm"
)

// A garbage collection does not have to wait for a thread that sleeps behind the
// scheduler's back: the runtime's preemption signal ends the system call. The
// thread here would sleep for ten seconds at a time, so a collection that had to
// wait would make this test far longer than its bound.
func TestRawSleepDoesNotHoldUpTheCollector(t *testing.T) {
	var word atomic.Uint32
	var stop atomic.Bool
	var sleeps atomic.Uint64
	var wg sync.WaitGroup
	wg.Go(func() {
		for !stop.Load() {
			sleeps.Add(1)
			shm.FutexWaitRaw(&word, 0, 10*time.Second)
		}
	})
	for sleeps.Load() == 0 {
		runtime.Gosched()
	}
	start := time.Now()
	// The other thread may get no processor in all that time, and then there is no sleep to end.
	for n := 0; n < 20 || sleeps.Load() < 2 && time.Since(start) < time.Minute; n++ {
		runtime.GC()
	}
	took := time.Since(start)
	stop.Store(true)
	word.Store(1)
	shm.FutexWake(&word, shm.WakeAll)
	wg.Wait()
	if took > patience {
		t.Errorf("20 collections took %v beside a sleeping thread", took)
	}
	if sleeps.Load() < 2 {
		t.Errorf("%d sleeps: the collector did not have to end any, so the test shows nothing", sleeps.Load())
	}
}

// A goroutine that was started before a short sleep runs before it, even if there is one
// processor: otherwise each wait here would last until the scheduler interrupts it, some 20 ms.
func TestNapLetsOthersRunFirst(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	const naps = 100
	var word atomic.Uint32
	var n shm.Nap
	// The quickest of many rounds: other processes may have the processor.
	quickest := time.Hour
	for end := time.Now().Add(time.Minute); time.Now().Before(end); {
		start := time.Now()
		word.Store(0)
		for i := range uint32(naps) {
			go func() {
				word.Store(i + 1)
				shm.FutexWake(&word, 1)
			}()
			for word.Load() == i {
				n.Sleep(&word, i, time.Second)
			}
		}
		if quickest = min(quickest, time.Since(start)); quickest < naps*2*time.Millisecond {
			return
		}
	}
	t.Errorf("%d naps took %v", naps, quickest)
}

// After a long sleep the next one goes through the scheduler: with one processor
// another goroutine can run meanwhile. After a short one it does not.
func TestNapAdapts(t *testing.T) {
	var word atomic.Uint32
	var n shm.Nap
	wake := func(after time.Duration) {
		old := word.Load()
		timer := time.AfterFunc(after, func() {
			word.Add(1)
			shm.FutexWake(&word, 1)
		})
		defer timer.Stop()
		for deadline := time.Now().Add(time.Minute); word.Load() == old; {
			n.Sleep(&word, old, time.Second)
			if time.Now().After(deadline) {
				t.Fatal("never woken")
			}
		}
	}
	wake(30 * time.Millisecond)
	wake(30 * time.Millisecond)
	wake(0)
	start := time.Now()
	n.Sleep(&word, word.Load()+1, time.Hour) // the value differs: no sleep
	if d := time.Since(start); d > time.Minute {
		t.Errorf("slept %v on another value", d)
	}
}

// Beside a sleep that leaves the only processor to others, what becomes ready runs at once: here a
// timer, on which the sleep's end depends. Sleeps that keep it end by their own limit.
func TestSleepBesideLeavesTheProcessor(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	const naps, after = 50, 100 * time.Microsecond
	var word atomic.Uint32
	// The quickest of many rounds: other processes may have the processor.
	quickest := time.Hour
	for end := time.Now().Add(time.Minute); time.Now().Before(end); {
		start := time.Now()
		for range naps {
			var n shm.Nap
			old := word.Load()
			time.AfterFunc(after, func() {
				word.Add(1)
				shm.FutexWake(&word, 1)
			})
			for word.Load() == old {
				n.SleepBeside(&word, old, time.Minute)
			}
		}
		if quickest = min(quickest, time.Since(start)); quickest < naps*2*time.Millisecond {
			return
		}
	}
	t.Errorf("%d sleeps of %v each took %v", naps, after, quickest)
}
