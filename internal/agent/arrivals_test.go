package agent

import (
	"math"
	"testing"
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
