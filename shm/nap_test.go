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
	for range 20 {
		runtime.GC()
	}
	took := time.Since(start)
	stop.Store(true)
	word.Store(1)
	shm.FutexWake(&word, shm.WakeAll)
	wg.Wait()
	if took > 5*time.Second {
		t.Errorf("20 collections took %v beside a sleeping thread", took)
	}
	if sleeps.Load() < 2 {
		t.Errorf("%d sleeps: the collector did not have to end any, so the test shows nothing", sleeps.Load())
	}
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
		for deadline := time.Now().Add(10 * time.Second); word.Load() == old; {
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
