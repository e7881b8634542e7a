package daemon

import (
	"testing"
	"time"
)

// Waits double up to a bound while nothing lasts, and begin anew after what has.
func TestBackoff(t *testing.T) {
	var r backoff
	if d := r.after(time.Hour); d != 0 {
		t.Errorf("after what has lasted: %v", d)
	}
	for want := firstRetry; want < 4*longestBackoff; want *= 2 {
		if d, most := r.after(steady-1), min(want, longestBackoff); d < most/2 || d > most {
			t.Errorf("%v, want half of %v to all of it", d, most)
		}
	}
	if d := r.after(steady); d != 0 {
		t.Errorf("after what has lasted again: %v", d)
	}
	if d := r.after(0); d > firstRetry {
		t.Errorf("the first wait after that: %v", d)
	}
}
