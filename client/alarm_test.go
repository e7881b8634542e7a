package client

import (
	"testing"
	"testing/synctest"
	"time"
)

// An alarm that is set goes off once, whatever waits begin meanwhile, and not after it was stopped.
func TestAlarm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var a alarm
		rings := 0
		ring := func() { rings++ }
		pass := func(d time.Duration, want int) {
			t.Helper()
			time.Sleep(d)
			synctest.Wait()
			if rings != want || a.over.Load() != (want > 0) {
				t.Fatalf("%d rings, over %t; want %d", rings, a.over.Load(), want)
			}
		}
		a.within(time.Hour, ring)
		a.within(time.Second, ring) // sooner
		pass(time.Second/2, 0)
		a.forget()
		a.within(time.Second, ring)
		pass(time.Second/2+1, 1)
		pass(time.Minute, 1)
		a.forget()
		rings = 0
		a.within(time.Second, ring)
		a.stop()
		pass(time.Minute, 0)
		a.within(time.Second, ring)
		pass(time.Second+1, 1)
	})
}
