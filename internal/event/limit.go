package event

import (
	"sync"
	"time"
)

// How many lines one code may make: so many at once, and then one more in every interval.
const (
	burst    = 32
	interval = time.Second / 2
)

// limiter bounds the lines of each code. The zero limiter is ready.
type limiter struct {
	mu      sync.Mutex
	buckets map[Code]*bucket
}

type bucket struct {
	left       int
	since      time.Time // left is as of then
	suppressed uint64
}

// allow reports whether a line may be written at the time now and, if it may, how many of
// the code were not since the last one.
func (l *limiter) allow(c Code, now time.Time) (suppressed uint64, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	b := l.buckets[c]
	if b == nil {
		if l.buckets == nil {
			l.buckets = make(map[Code]*bucket)
		}
		// Codes are of the table, so these are bounded.
		b = &bucket{left: burst, since: now}
		l.buckets[c] = b
	}
	if n := now.Sub(b.since) / interval; n > 0 {
		b.left = int(min(time.Duration(b.left)+n, burst))
		b.since = now
	}
	if b.left == 0 {
		b.suppressed++
		return 0, false
	}
	b.left--
	suppressed, b.suppressed = b.suppressed, 0
	return suppressed, true
}
