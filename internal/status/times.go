package status

import (
	"time"

	"github.com/rdmad/rdmad/internal/counters"
)

// Deaths says how long the slots of workers that died stayed in use.
type Deaths struct {
	// Certain is from the end of a worker's connection until the kernel has said that
	// the process is dead.
	Certain Delays `json:"certain"`
	// Freed is from then on until the slots are free that the worker held itself, Settled
	// until those are free, too, whose requests waited for answers.
	Freed   Delays `json:"freed"`
	Settled Delays `json:"settled"`
}

// Delays describes times that were counted, in microseconds.
type Delays struct {
	Count uint64 `json:"count"`
	// P50US and P99US are rounded up, by at most a quarter.
	P50US float64 `json:"p50_us"`
	P99US float64 `json:"p99_us"`
	MaxUS float64 `json:"max_us"`
	// Buckets are those with something in them, the shortest times first.
	Buckets []DelayBucket `json:"buckets"`
}

// DelayBucket counts the times that are at least those of the bucket before and below its
// own end.
type DelayBucket struct {
	BelowUS float64 `json:"below_us"`
	Count   uint64  `json:"count"`
}

// Times describes times that were counted, in microseconds. Quantiles are rounded
// up, by at most a quarter.
type Times struct {
	Count  uint64  `json:"count"`
	SumUS  float64 `json:"sum_us"`
	P50US  float64 `json:"p50_us"`
	P90US  float64 `json:"p90_us"`
	P99US  float64 `json:"p99_us"`
	P999US float64 `json:"p999_us"`
	MaxUS  float64 `json:"max_us"`
	// Buckets are those with something in them, the shortest times first. To get the
	// quantiles of the last seconds, subtract the counts of an earlier status. The last
	// bucket, of times beyond all bounds, has BelowUS 0.
	Buckets []DelayBucket `json:"buckets"`
}

// Sizes describes the sizes of groups, in messages. Quantiles are rounded up to the
// next power of two.
type Sizes struct {
	Count uint64 `json:"count"`
	// Messages is how many there were in all groups.
	Messages uint64 `json:"messages"`
	P50      uint64 `json:"p50"`
	P90      uint64 `json:"p90"`
	P99      uint64 `json:"p99"`
	Max      uint64 `json:"max"`
	// Buckets are those with something in them, the smallest groups first.
	Buckets []SizeBucket `json:"buckets"`
}

// SizeBucket counts the groups that are larger than those of the bucket before and have at
// most Most messages; 0 for no bound.
type SizeBucket struct {
	Most  uint64 `json:"most"`
	Count uint64 `json:"count"`
}

// TimesOf describes a histogram of times.
func TimesOf(h *counters.Times) Times {
	at := func(q float64) float64 { return Micros(h.Quantile(q)) }
	s := Times{
		Count: h.Count(), SumUS: Micros(time.Duration(h.Sum)), P50US: at(0.5), P90US: at(0.9), P99US: at(0.99), P999US: at(0.999),
		MaxUS: Micros(time.Duration(h.Max)), Buckets: []DelayBucket{},
	}
	for b, n := range h.Buckets {
		if n > 0 {
			s.Buckets = append(s.Buckets, DelayBucket{BelowUS: Micros(time.Duration(counters.TimeBound(b))), Count: n})
		}
	}
	return s
}

// SizesOf describes a histogram of the sizes of groups.
func SizesOf(h *counters.Sizes) Sizes {
	s := Sizes{
		Count: h.Count(), Messages: h.Sum, P50: h.Quantile(0.5), P90: h.Quantile(0.9), P99: h.Quantile(0.99), Max: h.Max, Buckets: []SizeBucket{},
	}
	for b, n := range h.Buckets {
		if n > 0 {
			s.Buckets = append(s.Buckets, SizeBucket{Most: counters.SizeBound(b), Count: n})
		}
	}
	return s
}

// Micros returns a time in microseconds, as they are here.
func Micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
