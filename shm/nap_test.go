package shm_test

import (
	"encoding/binary"
	"io"
	"os"
	"runtime"
	"slices"
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
	shm.FutexWake(&word, shm.WakeMany)
	wg.Wait()
	if took > patience {
		t.Errorf("20 collections took %v beside a sleeping thread", took)
	}
	if sleeps.Load() < 2 {
		t.Errorf("%d sleeps: the collector did not have to end any, so the test shows nothing", sleeps.Load())
	}
}

// A sleep on two words, which no signal ends, is behind the scheduler's back for a moment only.
func TestSleepOnTwoWordsDoesNotHoldUpTheCollector(t *testing.T) {
	var one, other atomic.Uint32
	var stop atomic.Bool
	var wg sync.WaitGroup
	wg.Go(func() {
		for !stop.Load() {
			var n shm.Nap // whose waits have been short
			n.SleepEither(&one, 0, &other, 0, 20*time.Millisecond)
		}
	})
	// It was 1.5 s. The quickest of many rounds: other processes may have the processor.
	const collections, bound = 20, 300 * time.Millisecond
	quickest := time.Hour
	for end := time.Now().Add(time.Minute); quickest > bound && time.Now().Before(end); {
		start := time.Now()
		for range collections {
			runtime.GC()
		}
		quickest = min(quickest, time.Since(start))
	}
	stop.Store(true)
	one.Store(1)
	shm.FutexWake(&one, shm.WakeMany)
	wg.Wait()
	if quickest > bound {
		t.Errorf("%d collections took %v beside a thread that sleeps on two words", collections, quickest)
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

// Threads that sleep behind the scheduler's back leave a processor (P) to the others, also when there have
// come to be fewer: a goroutine that waits for a descriptor would go without one otherwise, for
// a tenth of a second each time.
func TestNapsHeedFewerProcessors(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(4))
	var unused atomic.Uint32
	var first shm.Nap
	first.Sleep(&unused, 0, time.Millisecond) // which sees four
	runtime.GOMAXPROCS(2)
	// The quickest of some rounds: other processes may have the processors.
	const bound = 20 * time.Millisecond
	quickest := time.Hour
	for end := time.Now().Add(time.Minute); quickest > bound && time.Now().Before(end); {
		quickest = min(quickest, readBesideNaps(t, 2))
	}
	if quickest > bound {
		t.Errorf("what another process wrote was read after %v", quickest)
	}
}

// readBesideNaps returns how long, by median, a goroutine waits for what a process has written
// that wakes the given number of naps of this one all the time.
func readBesideNaps(t *testing.T, naps int) time.Duration {
	t.Helper()
	seg := testSegment(t)
	word := shm.Uint32At(seg.Bytes(), offWord)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	wait := child(t, "pulse", seg, w)
	w.Close()
	var stop atomic.Bool
	var wg sync.WaitGroup
	for range naps {
		wg.Go(func() {
			var n shm.Nap
			for !stop.Load() {
				n.Sleep(word, word.Load(), 20*time.Millisecond)
			}
		})
	}
	var took []time.Duration
	for {
		var sent [8]byte
		if _, err := io.ReadFull(r, sent[:]); err != nil {
			break
		}
		took = append(took, time.Duration(shm.Nanotime()-int64(binary.LittleEndian.Uint64(sent[:]))))
	}
	stop.Store(true)
	wait()
	wg.Wait()
	if len(took) != pulses/5 {
		t.Fatalf("%d messages, want %d", len(took), pulses/5)
	}
	slices.Sort(took)
	return took[len(took)/2]
}
