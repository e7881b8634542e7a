package shm_test

import (
	"runtime"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rdmad/rdmad/shm"
)

// onOneProcessor keeps the calling thread on the first processor that the process may use, until
// the function that it returns is called.
func onOneProcessor(t *testing.T) (release func()) {
	t.Helper()
	runtime.LockOSThread()
	var all, one unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		t.Fatal(err)
	}
	for cpu := 0; one.Count() == 0; cpu++ {
		if all.IsSet(cpu) {
			one.Set(cpu)
		}
	}
	if err := unix.SchedSetaffinity(0, &one); err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := unix.SchedSetaffinity(0, &all); err != nil {
			t.Error(err)
		}
		runtime.UnlockOSThread()
	}
}

// Where another thread wants the processor, it has run when Until returns, mostly.
func TestLingerLetsOthersRun(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(4))
	var asked, done atomic.Uint64
	var over atomic.Bool
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer onOneProcessor(t)()
		for !over.Load() {
			done.Store(asked.Load())
			shm.Yield()
		}
	}()
	release := onOneProcessor(t)
	defer func() {
		over.Store(true)
		release()
		<-ended
	}()
	var l shm.Linger
	const rounds = 20000
	came := 0
	for n := uint64(1); n <= rounds; n++ {
		asked.Store(n)
		if l.Until(func() bool { return done.Load() == n }) {
			if came++; done.Load() != n {
				t.Fatal("it says that ready was true")
			}
		}
	}
	// A yield that was too quick to be noticed, or much too slow, costs many rounds without.
	if came < rounds/2048 {
		t.Errorf("the other thread had run after %d of %d calls", came, rounds)
	}
}

// In vain it is done less and less often, and costs a call next to nothing.
func TestLingerInVain(t *testing.T) {
	var l shm.Linger
	looks := 0
	for range 128 * 100 {
		if l.Until(func() bool { looks++; return false }) {
			t.Fatal("it says that ready was true")
		}
	}
	// Seven calls on the way to the longest pause, and each of the hundred after it, at four yields.
	if looks > 4*(7+100) {
		t.Errorf("%d looks", looks)
	}
}

// Ready decides, however often it was in vain before.
func TestLingerAgain(t *testing.T) {
	var l shm.Linger
	for range 1000 {
		l.Until(func() bool { return false })
	}
	looked := false
	for range 1000 {
		if l.Until(func() bool { looked = true; return true }) != looked {
			t.Fatalf("it says %v, ready was called: %v", !looked, looked)
		}
		looked = false
	}
}
