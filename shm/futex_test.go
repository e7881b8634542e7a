package shm_test

import (
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
		wait(&word, 0, time.Minute) // the value is another
		wait(&word, 1, 0)
		wait(&word, 1, -time.Second)
	}
	if d := time.Since(start); d > 30*time.Second {
		t.Errorf("slept %v", d)
	}
	if n := shm.FutexWake(&word, shm.WakeAll); n != 0 {
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

func TestFutexAcrossProcesses(t *testing.T) {
	for _, role := range []string{"sleep", "sleep-raw"} {
		t.Run(role, func(t *testing.T) {
			s := testSegment(t)
			wait := child(t, role, s)
			eventually(t, "wake the child", func() bool {
				return shm.FutexWake(shm.Uint32At(s.Bytes(), offWord), 1) == 1
			})
			wait()
			if shm.Uint32At(s.Bytes(), offDone).Load() != 1 {
				t.Error("the child did not finish")
			}
		})
	}
}

func TestFutexWokenByAnotherProcess(t *testing.T) {
	s := testSegment(t)
	wait := child(t, "wake", s)
	start := time.Now()
	shm.FutexWait(shm.Uint32At(s.Bytes(), offWord), 0, 20*time.Second)
	if d := time.Since(start); d > 15*time.Second {
		t.Errorf("slept %v", d)
	}
	wait()
}

func TestFutexWakeAll(t *testing.T) {
	s := testSegment(t)
	const n = 3
	var waits []func()
	for range n {
		waits = append(waits, child(t, "sleep", s))
	}
	woken := 0
	eventually(t, "wake all children", func() bool {
		woken += shm.FutexWake(shm.Uint32At(s.Bytes(), offWord), shm.WakeAll)
		return woken == n
	})
	for _, w := range waits {
		w()
	}
	if got := shm.Uint32At(s.Bytes(), offDone).Load(); got != n {
		t.Errorf("%d of %d children finished", got, n)
	}
}

func TestFutexWakesOnlyN(t *testing.T) {
	var word atomic.Uint32
	var woke atomic.Int32
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			shm.FutexWait(&word, 0, 20*time.Second)
			woke.Add(1)
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
	wg.Wait()
}
