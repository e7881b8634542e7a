package agent

import (
	"math"
	"testing"
	"time"
)

// A deadline that no longer fits stays in the future, or in the past, and none becomes "never".
func TestDeadlineByAnotherClock(t *testing.T) {
	for _, c := range []struct{ deadline, by, want int64 }{
		{1000, -300, 700}, {300, -1000, -700}, {300, -300, 1},
		{math.MaxInt64 - 5, 5, math.MaxInt64}, {math.MaxInt64 - 5, 6, math.MaxInt64}, {math.MaxInt64, math.MaxInt64, math.MaxInt64},
		{math.MinInt64, -1, math.MinInt64}, {-5, math.MinInt64, math.MinInt64}, {math.MinInt64, math.MaxInt64, -1},
	} {
		if got := later(c.deadline, c.by); got != c.want {
			t.Errorf("%d by %d: %d, want %d", c.deadline, c.by, got, c.want)
		}
	}
}

// Clocks are compared again when that was long ago, or a while ago and a request comes too late, and once for all requests.
func TestClocksAreDoubted(t *testing.T) {
	s := newSide(t, nil)
	l := NewInLane(s.d, rigLane, newRing(t), newVault(t), 16)
	doubts := 0
	l.OnDoubt = func() { doubts++ }
	const start = int64(time.Hour)
	l.Compared = start
	for _, c := range []struct {
		age  time.Duration
		late bool
		want int
	}{
		{time.Millisecond, true, 0}, {2 * time.Second, false, 0}, {2 * time.Second, true, 1}, {2 * time.Second, true, 1},
		{11 * time.Second, false, 1}, {12*time.Second + 1, false, 2}, {12*time.Second + 2, true, 2},
	} {
		s.d.now = start + int64(c.age)
		deadline := s.d.now + 1
		if c.late {
			deadline -= 2
		}
		l.doubt(deadline)
		if doubts != c.want {
			t.Errorf("after %v, late: %v: %d times, want %d", c.age, c.late, doubts, c.want)
		}
	}
}
