package agent

import (
	"math/bits"
	"time"

	"github.com/rdmad/rdmad/internal/status"
)

// Deaths are times of workers that died.
type Deaths struct {
	// Certain is from the end of a worker's connection until it is certain that the
	// process is dead, freed from then on until all slots are free but those of requests
	// that wait for answers, and settled until these are free, too.
	Certain, freed, settled delays
}

// delayBuckets is how many buckets delays has: four for each power of two of microseconds.
const delayBuckets = 4 * 32

// delays counts times.
type delays struct {
	counts [delayBuckets]uint64
	n      uint64
	most   time.Duration
}

// Add counts a time in nanoseconds.
func (h *delays) Add(ns int64) {
	d := max(time.Duration(ns), 0)
	h.n++
	h.most = max(h.most, d)
	h.counts[delayBucket(d)]++
}

// delayBucket returns the bucket of a time.
func delayBucket(d time.Duration) int {
	us := uint64(d / time.Microsecond)
	if us < 4 {
		return int(us)
	}
	e := bits.Len64(us) - 3 // us>>e is 4 to 7
	return min(4*e+int(us>>e), delayBuckets-1)
}

// delayEnd returns the least time that is above a bucket.
func delayEnd(b int) time.Duration {
	if b < 4 {
		return time.Duration(b+1) * time.Microsecond
	}
	e := b/4 - 1
	return time.Duration(uint64(b%4+5)<<e) * time.Microsecond
}

// merge adds what another has counted.
func (h *delays) merge(o *delays) {
	for i, n := range o.counts {
		h.counts[i] += n
	}
	h.n += o.n
	h.most = max(h.most, o.most)
}

// quantile returns the time below which the share q of all is, rounded up to the end of
// its bucket but not beyond the largest.
func (h *delays) quantile(q float64) time.Duration {
	left := uint64(q * float64(h.n))
	for b, n := range h.counts {
		if n > left {
			return min(delayEnd(b), h.most)
		}
		left -= n
	}
	return h.most
}

// status describes the times for the status.
func (h *delays) status() status.Delays {
	s := status.Delays{Count: h.n, P50US: status.Micros(h.quantile(0.5)), P99US: status.Micros(h.quantile(0.99)), MaxUS: status.Micros(h.most), Buckets: []status.DelayBucket{}}
	for b, n := range h.counts {
		if n > 0 {
			s.Buckets = append(s.Buckets, status.DelayBucket{BelowUS: status.Micros(delayEnd(b)), Count: n})
		}
	}
	return s
}

// Status describes all times.
func (s *Deaths) Status() status.Deaths {
	return status.Deaths{Certain: s.Certain.status(), Freed: s.freed.status(), Settled: s.settled.status()}
}

// Merge adds what another agent has counted.
func (s *Deaths) Merge(o *Deaths) {
	s.Certain.merge(&o.Certain)
	s.freed.merge(&o.freed)
	s.settled.merge(&o.settled)
}
