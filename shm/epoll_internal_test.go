package shm

import (
	"math"
	"testing"
	"time"
)

// Milliseconds do not make a look of a short wait, nor one without end of a long one.
func TestEpollMillis(t *testing.T) {
	for timeout, want := range map[time.Duration]int32{
		-1: -1, math.MinInt64: -1, 0: 0, 1: 1, time.Millisecond: 1, time.Millisecond + 1: 2, 20 * time.Millisecond: 20,
		math.MaxInt32 * time.Millisecond: math.MaxInt32, math.MaxInt32*time.Millisecond + 1: math.MaxInt32, math.MaxInt64: math.MaxInt32,
	} {
		if got := epollMillis(timeout); got != want {
			t.Errorf("%v is %d ms, want %d", timeout, got, want)
		}
	}
}
