package poller_test

import (
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdmad/rdmad/internal/poller"
	"github.com/rdmad/rdmad/shm"
)

// BenchmarkRoundTrip is two threads on one processor that wake each other, with waits
// that end long before their limit: what the limit costs, and what a Timer costs instead
// that is set again when it has run out.
func BenchmarkRoundTrip(b *testing.B) {
	for _, c := range []struct {
		name  string
		limit time.Duration
		timer time.Duration
	}{
		{"limit 20ms", poller.RawLimit, 0},
		{"limit 200us", 200 * time.Microsecond, 0},
		{"timer 200us", poller.RawLimit, 200 * time.Microsecond},
		{"limit 1ms", time.Millisecond, 0},
		{"timer 1ms", poller.RawLimit, time.Millisecond},
	} {
		b.Run(c.name, func(b *testing.B) { roundTrips(b, c.limit, c.timer) })
	}
}

func roundTrips(b *testing.B, limit, delay time.Duration) {
	must := func(err error) {
		if err != nil {
			b.Fatal(err)
		}
	}
	var bells [2]*shm.Bell
	var polls [2]*poller.Poller
	var rang [2]bool // by the bell, each for one of the threads
	for i := range bells {
		var err error
		bells[i], err = shm.NewBell()
		must(err)
		polls[i], err = poller.New()
		must(err)
		must(polls[i].Add(bells[i].FD(), unix.EPOLLIN|unix.EPOLLET, handlerFunc(func(int, uint32) { rang[i] = true })))
	}
	defer func() {
		for i := range bells {
			must(polls[i].Close())
			must(bells[i].Close())
		}
	}()
	var timer *poller.Timer
	var at int64
	if delay > 0 {
		var err error
		timer, err = polls[0].NewTimer()
		must(err)
		defer func() { must(timer.Close()) }()
	}
	var cpu unix.CPUSet
	cpu.Zero()
	cpu.Set(0)
	pin := func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with its goroutine
		must(unix.SchedSetaffinity(0, &cpu))
	}
	over := make(chan struct{})
	n := b.N
	go func() {
		defer close(over)
		pin()
		for range n {
			for rang[1] = false; !rang[1]; {
				_, _ = polls[1].Wait(poller.RawLimit)
			}
			bells[0].Ring()
		}
	}()
	mine := make(chan struct{})
	go func() {
		defer close(mine)
		pin()
		for range n {
			rang[0] = false
			for bells[1].Ring(); !rang[0]; {
				if timer != nil {
					if now := shm.Nanotime(); now >= at {
						at = now + int64(delay)
						_ = timer.Set(at)
					}
				}
				_, _ = polls[0].Wait(limit)
			}
		}
	}()
	<-mine
	<-over
}
