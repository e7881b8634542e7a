package counters

import (
	"math/bits"
	"time"
)

// Times are counted in buckets of fixed bounds, four for each power of two: what is below
// 1024 ns, then up to 2^37 ns, 137 s, and what is more. So a bucket's bounds are at most a
// quarter apart.
const (
	firstPower  = 10
	lastPower   = 36
	perPower    = 4
	timeBuckets = 2 + (lastPower-firstPower+1)*perPower
)

// Times is a histogram of durations. One thread writes it.
type Times struct {
	// Sum and Max are in nanoseconds.
	Sum uint64
	Max uint64
	// Buckets count the durations below TimeBound and not below that of the bucket before.
	Buckets [timeBuckets]uint64
}

// Add counts a duration in nanoseconds.
func (h *Times) Add(ns uint64) {
	h.Sum += ns
	if ns > h.Max {
		h.Max = ns
	}
	h.Buckets[timeBucket(ns)]++
}

// timeBucket returns the bucket of a duration in nanoseconds.
func timeBucket(ns uint64) int {
	if ns < 1<<firstPower {
		return 0
	}
	e := bits.Len64(ns) - 1
	if e > lastPower {
		return timeBuckets - 1
	}
	return 1 + (e-firstPower)*perPower + int(ns>>(e-2)&3)
}

// TimeBound returns the end of a bucket in nanoseconds, which is not in it. The last one
// has none: 0.
func TimeBound(bucket int) uint64 {
	switch {
	case bucket == 0:
		return 1 << firstPower
	case bucket >= timeBuckets-1:
		return 0
	}
	e, sub := (bucket-1)/perPower+firstPower, (bucket-1)%perPower
	return uint64(perPower+sub+1) << (e - 2)
}

// Count returns how many durations there are.
func (h *Times) Count() (n uint64) {
	for _, k := range &h.Buckets {
		n += k
	}
	return n
}

// Quantile returns the duration below which the share q (0 to 1) of all is, rounded up to
// the end of its bucket, by at most a quarter, and not more than the largest; 0 of none.
func (h *Times) Quantile(q float64) time.Duration {
	total := h.Count()
	left := uint64(q * float64(total))
	for b, n := range &h.Buckets {
		if n > left {
			if end := TimeBound(b); end != 0 && end < h.Max {
				return time.Duration(end)
			}
			break
		}
		left -= n
	}
	return time.Duration(h.Max)
}

// Merge adds what another has counted.
func (h *Times) Merge(o *Times) {
	h.Sum += o.Sum
	h.Max = max(h.Max, o.Max)
	for b, n := range &o.Buckets {
		h.Buckets[b] += n
	}
}

// sizeBuckets: groups of 1, 2, 3 to 4, 5 to 8 messages and so on, and more than 4096.
const sizeBuckets = 14

// Sizes is a histogram of the sizes of groups, in messages. One thread writes it.
type Sizes struct {
	// Sum is in messages.
	Sum uint64
	Max uint64
	// Buckets count the sizes up to SizeBound and above that of the bucket before.
	Buckets [sizeBuckets]uint64
}

// Add counts a group of n messages, at least 1.
func (h *Sizes) Add(n uint64) {
	h.Sum += n
	if n > h.Max {
		h.Max = n
	}
	h.Buckets[min(bits.Len64(n-1), sizeBuckets-1)]++
}

// SizeBound returns the largest size in a bucket. The last one has none: 0.
func SizeBound(bucket int) uint64 {
	if bucket >= sizeBuckets-1 {
		return 0
	}
	return 1 << bucket
}

// Count returns how many groups there are.
func (h *Sizes) Count() (n uint64) {
	for _, k := range &h.Buckets {
		n += k
	}
	return n
}

// Quantile returns the size that the share q (0 to 1) of all groups does not exceed,
// rounded up to the end of its bucket and not more than the largest; 0 of none.
func (h *Sizes) Quantile(q float64) uint64 {
	total := h.Count()
	left := uint64(q * float64(total))
	for b, n := range &h.Buckets {
		if n > left {
			if end := SizeBound(b); end != 0 && end < h.Max {
				return end
			}
			break
		}
		left -= n
	}
	return h.Max
}
