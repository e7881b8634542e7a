package shm_test

import (
	"fmt"
	"math"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rdmad/rdmad/shm"
)

func TestFutexReturnsAtOnce(t *testing.T) {
	var word atomic.Uint32
	word.Store(1)
	start := time.Now()
	for _, wait := range []func(*atomic.Uint32, uint32, time.Duration){shm.FutexWait, shm.FutexWaitRaw} {
		wait(&word, 0, hang) // the value is another
		wait(&word, 1, 0)
		wait(&word, 1, -time.Second)
	}
	if d := time.Since(start); d > patience {
		t.Errorf("slept %v", d)
	}
	if n := shm.FutexWake(&word, shm.WakeMany); n != 0 {
		t.Errorf("woke %d of nobody", n)
	}
}

func TestFutexTimesOut(t *testing.T) {
	var word atomic.Uint32
	for _, wait := range []func(*atomic.Uint32, uint32, time.Duration){shm.FutexWait, shm.FutexWaitRaw} {
		// Early returns are allowed: wait until the time has passed.
		start := time.Now()
		for range 1000 {
			if time.Since(start) >= 2*time.Millisecond {
				break
			}
			wait(&word, 0, 2*time.Millisecond)
		}
		if d := time.Since(start); d < 2*time.Millisecond {
			t.Errorf("1000 waits of 2 ms took %v", d)
		}
	}
}

// Both words' sleepers wake up, whatever is in the words, which stay as they are.
func TestFutexWakeTwo(t *testing.T) {
	for _, value := range []uint32{0, 1, 1023, 1024, 1025, 2047, 2048, 3072, 1 << 31, math.MaxUint32 - 1023, math.MaxUint32} {
		var words [2]atomic.Uint32
		var sleepers sync.WaitGroup
		var over atomic.Bool
		for i := range words {
			words[i].Store(value)
			sleepers.Go(func() {
				for !over.Load() { // a signal ends a sleep, too
					shm.FutexWait(&words[i], value, time.Millisecond)
				}
			})
		}
		eventually(t, fmt.Sprintf("wake both sleepers on %#x", value), func() bool {
			return shm.FutexWakeTwo(&words[0], &words[1]) == len(words)
		})
		over.Store(true)
		sleepers.Wait()
		if a, b := words[0].Load(), words[1].Load(); a != value || b != value {
			t.Errorf("words of %#x became %#x and %#x", value, a, b)
		}
	}
	if n := shm.FutexWakeTwo(new(atomic.Uint32), new(atomic.Uint32)); n != 0 {
		t.Errorf("woke %d of nobody", n)
	}
}

func TestFutexAcrossProcesses(t *testing.T) {
	for _, role := range []string{"sleep", "sleep-raw"} {
		t.Run(role, func(t *testing.T) {
			s := testSegment(t)
			wait := child(t, role, s)
			eventually(t, "wake the child", func() bool {
				return shm.FutexWake(shm.Uint32At(s.Bytes(), offWord), 1) == 1
			})
			endSleep(t, s, 1)
			wait()
		})
	}
}

// endSleep makes n children that sleep end: one that has been woken may sleep again.
func endSleep(t *testing.T, s *shm.Segment, n uint32) {
	t.Helper()
	shm.Uint32At(s.Bytes(), offOver).Store(1)
	eventually(t, "children end", func() bool {
		shm.FutexWake(shm.Uint32At(s.Bytes(), offWord), shm.WakeMany)
		return shm.Uint32At(s.Bytes(), offDone).Load() == n
	})
}

func TestFutexWokenByAnotherProcess(t *testing.T) {
	s := testSegment(t)
	wait := child(t, "wake", s)
	start := time.Now()
	for word := shm.Uint32At(s.Bytes(), offWord); word.Load() == 0 && time.Since(start) < patience; {
		shm.FutexWait(word, 0, hang)
	}
	if d := time.Since(start); d > patience {
		t.Errorf("slept %v", d)
	}
	wait()
}

func TestFutexWakeMany(t *testing.T) {
	s := testSegment(t)
	const n = 3
	var waits []func()
	for range n {
		waits = append(waits, child(t, "sleep", s))
	}
	eventually(t, "wake all children at once", func() bool {
		return shm.FutexWake(shm.Uint32At(s.Bytes(), offWord), shm.WakeMany) == n
	})
	endSleep(t, s, n)
	for _, w := range waits {
		w()
	}
}

func TestFutexWakesOnlyN(t *testing.T) {
	var word atomic.Uint32
	var woke, ended atomic.Int32
	var over atomic.Bool
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			defer ended.Add(1)
			for !over.Load() { // a sleep may end for no reason
				shm.FutexWait(&word, 0, hang)
				woke.Add(1)
			}
		})
	}
	for sum := 0; sum < 3; {
		n := 0
		eventually(t, "wake one", func() bool { n = shm.FutexWake(&word, 1); return n > 0 })
		if n != 1 {
			t.Fatalf("woke %d, want 1", n)
		}
		sum += n
		eventually(t, "the woken one goes on", func() bool { return int(woke.Load()) >= sum })
	}
	over.Store(true)
	eventually(t, "all end", func() bool {
		shm.FutexWake(&word, shm.WakeMany)
		return ended.Load() == 3
	})
	wg.Wait()
}

// Either of two words ends the sleep, and so does a value that has changed before.
func TestFutexWaitEither(t *testing.T) {
	t.Run("FutexWaitEither", func(t *testing.T) { testWaitEither(t, shm.FutexWaitEither) })
	t.Run("Nap", func(t *testing.T) { testWaitEither(t, new(shm.Nap).SleepEither) })
}

func testWaitEither(t *testing.T, wait func(a *atomic.Uint32, oldA uint32, b *atomic.Uint32, oldB uint32, limit time.Duration)) {
	words := [2]atomic.Uint32{}
	for k := range words {
		var wg sync.WaitGroup
		start := time.Now()
		wg.Go(func() {
			for words[k].Load() == 0 && time.Since(start) < hang {
				wait(&words[0], 0, &words[1], 0, hang)
			}
		})
		for woken := 0; woken == 0; {
			woken = shm.FutexWake(&words[k], shm.WakeMany) // it sleeps
			if time.Since(start) > patience {
				t.Fatalf("nobody slept on word %d (kernels before 5.16 have no futex_waitv)", k)
			}
			runtime.Gosched()
		}
		words[k].Store(1)
		shm.FutexWake(&words[k], shm.WakeMany)
		wg.Wait()
		wait(&words[0], 1-words[0].Load(), &words[1], 1-words[1].Load(), hang) // other values: no sleep
		if took := time.Since(start); took > patience {
			t.Errorf("word %d: %v", k, took)
		}
		words[k].Store(0)
	}
	wait(&words[0], 0, &words[1], 0, 0)
	wait(&words[0], 0, &words[1], 0, time.Millisecond) // nobody wakes it
}
