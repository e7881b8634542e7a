package poller_test

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdmad/rdmad/internal/poller"
	"github.com/rdmad/rdmad/shm"
)

// BenchmarkWait is an agent's look for events: with nothing to find, and with one bell
// of 16 that rings each time.
func BenchmarkWait(b *testing.B) {
	const bells = 16
	for _, c := range []struct {
		name    string
		timeout time.Duration
		ring    bool
	}{
		{"nothing", 0, false},
		{"bell", 0, true},
		{"bell before a short sleep", poller.RawLimit, true},
		{"bell before a long sleep", time.Minute, true},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			p := newPoller(b)
			var ring *shm.Bell
			for range bells {
				ring = newBell(b)
				must(b, p.Add(ring.FD(), unix.EPOLLIN|unix.EPOLLET, handlerFunc(func(int, uint32) {})))
			}
			want := 0
			if c.ring {
				want = 1
			}
			for b.Loop() {
				if c.ring {
					ring.Ring()
				}
				if n, err := p.Wait(c.timeout); n != want || err != nil {
					b.Fatal(n, err)
				}
			}
		})
	}
}
