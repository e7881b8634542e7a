package blast

import (
	"testing"
	"time"
)

// A link that always has the same rate has no other peak, also if the process is kept from looking for a while and finds much
// then, as much as may be under way.
func TestPeakAfterPause(t *testing.T) {
	const (
		each  = int64(4 * time.Microsecond) // of a message
		depth = 2 * batch
		count = 5000
	)
	// What came while nobody looked, which fills the queue and no more, takes no time to be looked at.
	p := newPeak(count, 0, 0, 0)
	now, seen := int64(0), uint64(0)
	look := func(waiting uint64) {
		for {
			n := min(waiting, batch)
			seen, waiting = seen+n, waiting-n
			p.see(seen, now, n == batch)
			if n < batch {
				return
			}
		}
	}
	for seen < count {
		now += each
		waiting := uint64(1)
		if seen%500 == 490 {
			now += int64(20 * time.Millisecond)
			waiting += depth
		}
		look(waiting)
	}
	if want := 1 / float64(each); p.best > want*1.02 || p.best < want*0.98 {
		t.Errorf("the best part has %.3f of the only rate", p.best/want)
	}
}
