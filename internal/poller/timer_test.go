package poller_test

import (
	"testing"
	"time"

	"github.com/rdmad/rdmad/shm"
)

func TestTimer(t *testing.T) {
	p := newPoller(t)
	timer, err := p.NewTimer()
	must(t, err)
	t.Cleanup(func() { must(t, timer.Close()) })
	wait(t, p, 0, 0)
	// Every expiry ends one wait, short or long, and not before its time.
	for _, limit := range []time.Duration{2 * time.Minute, -1} {
		for range 3 {
			at := shm.Nanotime() + int64(time.Millisecond)
			must(t, timer.Set(at))
			wait(t, p, limit, 1)
			if early := at - shm.Nanotime(); early > int64(100*time.Microsecond) {
				t.Errorf("%v too early", time.Duration(early))
			}
			wait(t, p, 0, 0)
		}
	}
	must(t, timer.Set(-5)) // has passed
	wait(t, p, time.Minute, 1)
	// A later time takes the place of one that has not come.
	must(t, timer.Set(shm.Nanotime()+int64(time.Hour)))
	wait(t, p, time.Millisecond, 0)
	must(t, timer.Set(shm.Nanotime()))
	wait(t, p, time.Minute, 1)
	if n := testing.AllocsPerRun(100, func() { must(t, timer.Set(shm.Nanotime()+int64(time.Hour))) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
