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

// beside keeps the calling thread on one processor, with another thread that wants it all the time
// and calls f whenever it has it.
func beside(t *testing.T, f func()) {
	t.Helper()
	before := runtime.GOMAXPROCS(4)
	var over atomic.Bool
	begun, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		defer onOneProcessor(t)()
		close(begun)
		for !over.Load() {
			f()
			shm.Yield()
		}
	}()
	<-begun
	release := onOneProcessor(t)
	t.Cleanup(func() {
		over.Store(true)
		release()
		<-ended
		runtime.GOMAXPROCS(before)
	})
}

// Where another thread wants the processor, it has run when Until returns, mostly.
func TestLingerLetsOthersRun(t *testing.T) {
	var asked, done atomic.Uint64
	beside(t, func() { done.Store(asked.Load()) })
	var l shm.Linger
	// A yield that was too quick to be noticed, or much too slow, costs many rounds without.
	const rounds, enough = 1 << 20, 100
	came := 0
	for n := uint64(1); n <= rounds && came < enough; n++ {
		asked.Store(n)
		if l.Until(func() bool { return done.Load() == n }) {
			if came++; done.Load() != n {
				t.Fatal("it says that ready was true")
			}
		}
	}
	if came < enough {
		t.Errorf("the other thread had run after %d of %d calls", came, rounds)
	}
}

// In vain it is done less and less often, and costs a call next to nothing.
func TestLingerInVain(t *testing.T) {
	beside(t, func() {})
	var l shm.Linger
	looks := 0
	for range 128 * 100 {
		if l.Until(func() bool { looks++; return false }) {
			t.Fatal("it says that ready was true")
		}
	}
	// Seven calls on the way to the longest pause, and each of the hundred after it, at four yields.
	if looks == 0 || looks > 4*(7+100) {
		t.Errorf("%d looks", looks)
	}
}

// Ready decides, however often it was in vain before.
func TestLingerAgain(t *testing.T) {
	beside(t, func() {})
	var l shm.Linger
	for range 1000 {
		l.Until(func() bool { return false })
	}
	ever := false
	for range 1 << 14 {
		looked := false
		if l.Until(func() bool { looked = true; return true }) != looked {
			t.Fatalf("it says %v, ready was called: %v", !looked, looked)
		}
		ever = ever || looked
	}
	if !ever {
		t.Error("it never looked again")
	}
}

// A look that ends its goroutine leaves nothing behind that keeps others from lingering.
func TestLingerGoexit(t *testing.T) {
	beside(t, func() {})
	looks := 0
	for range 1 << 11 {
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			defer onOneProcessor(t)()
			var l shm.Linger
			l.Until(func() bool { looks++; runtime.Goexit(); return true })
		}()
		if <-ended; looks == 100 {
			return
		}
	}
	t.Errorf("%d looks", looks)
}
