package poller_test

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdmad/rdmad/internal/poller"
	"github.com/rdmad/rdmad/shm"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func newPoller(t testing.TB) *poller.Poller {
	t.Helper()
	p, err := poller.New()
	must(t, err)
	t.Cleanup(func() { must(t, p.Close()) })
	return p
}

func newBell(t testing.TB) *shm.Bell {
	t.Helper()
	b, err := shm.NewBell()
	must(t, err)
	t.Cleanup(func() { must(t, b.Close()) })
	return b
}

// handlerFunc is a Handler.
type handlerFunc func(fd int, events uint32)

func (f handlerFunc) Ready(fd int, events uint32) { f(fd, events) }

// wait waits and fails unless want handlers were called. A long wait may end for no
// reason, by a signal of the Go runtime.
func wait(t *testing.T, p *poller.Poller, timeout time.Duration, want int) {
	t.Helper()
	start := time.Now()
	n, err := p.Wait(timeout)
	for err == nil && n < want && (timeout < 0 || time.Since(start) < timeout) {
		n, err = p.Wait(timeout)
	}
	must(t, err)
	if n != want {
		t.Fatalf("%d ready descriptors, want %d", n, want)
	}
}

func TestReadyDescriptorsReachTheirHandlers(t *testing.T) {
	p := newPoller(t)
	bells := []*shm.Bell{newBell(t), newBell(t), newBell(t)}
	calls := make([]int, len(bells))
	for i, b := range bells {
		must(t, p.Add(b.FD(), unix.EPOLLIN, handlerFunc(func(fd int, events uint32) {
			if fd != b.FD() || events != unix.EPOLLIN {
				t.Errorf("handler %d: descriptor %d, events %#x", i, fd, events)
			}
			calls[i]++
		})))
	}
	wait(t, p, 0, 0)
	wait(t, p, poller.RawLimit, 0)
	wait(t, p, poller.RawLimit+1, 0)
	bells[0].Ring()
	bells[2].Ring()
	// Level triggered: it stays ready, for short, long and unlimited waits.
	for _, timeout := range []time.Duration{0, poller.RawLimit, time.Minute, -1} {
		wait(t, p, timeout, 2)
	}
	bells[0].Silence()
	wait(t, p, time.Minute, 1)
	if calls[0] != 4 || calls[1] != 0 || calls[2] != 5 {
		t.Errorf("calls %v", calls)
	}
}

func TestModify(t *testing.T) {
	p, b := newPoller(t), newBell(t)
	var last uint32
	must(t, p.Add(b.FD(), unix.EPOLLIN, handlerFunc(func(_ int, events uint32) { last = events })))
	wait(t, p, 0, 0)
	must(t, p.Modify(b.FD(), unix.EPOLLOUT))
	wait(t, p, 0, 1)
	if last != unix.EPOLLOUT {
		t.Errorf("events %#x", last)
	}
	if err := p.Modify(-1, 0); err == nil {
		t.Error("a descriptor nobody added can be modified")
	}
}

// A handler may remove another descriptor: the event that Wait already holds for
// it is dropped.
func TestRemoveDuringWait(t *testing.T) {
	p := newPoller(t)
	a, b := newBell(t), newBell(t)
	calls := 0
	remove := func(other *shm.Bell) handlerFunc {
		return func(int, uint32) {
			calls++
			must(t, p.Remove(other.FD()))
		}
	}
	must(t, p.Add(a.FD(), unix.EPOLLIN, remove(b)))
	must(t, p.Add(b.FD(), unix.EPOLLIN, remove(a)))
	a.Ring()
	b.Ring()
	wait(t, p, 0, 2)
	if calls != 1 {
		t.Errorf("%d handlers were called, want the first only", calls)
	}
	must(t, p.Remove(a.FD()))
	must(t, p.Remove(b.FD()))
	wait(t, p, 0, 0)
}

func TestAddTwiceFails(t *testing.T) {
	p, b := newPoller(t), newBell(t)
	h := handlerFunc(func(int, uint32) {})
	must(t, p.Add(b.FD(), unix.EPOLLIN, h))
	if err := p.Add(b.FD(), unix.EPOLLIN, h); err == nil {
		t.Error("a descriptor can be added twice")
	}
}

// A ring from another goroutine ends a long wait.
func TestWakeFromElsewhere(t *testing.T) {
	p, b := newPoller(t), newBell(t)
	must(t, p.Add(b.FD(), unix.EPOLLIN, handlerFunc(func(int, uint32) { b.Silence() })))
	for range 100 {
		go b.Ring()
		wait(t, p, time.Minute, 1)
	}
}

func TestWaitDoesNotAllocate(t *testing.T) {
	p, b := newPoller(t), newBell(t)
	must(t, p.Add(b.FD(), unix.EPOLLIN, handlerFunc(func(int, uint32) {})))
	b.Ring()
	if n := testing.AllocsPerRun(100, func() {
		if _, err := p.Wait(0); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
