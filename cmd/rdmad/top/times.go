package top

import (
	"github.com/rdmad/rdmad/cmd/rdmad/table"
	"github.com/rdmad/rdmad/internal/status"
)

// times are latencies of something, in microseconds: of the interval or, if nothing ended
// in it or it is not known, of all time.
type times struct {
	count    uint64 // of all time
	p50, p99 float64
	known    bool
}

func (t times) cell(us float64) cell {
	return value(us, t.known && t.count > 0, table.Micros(us))
}

// timesOf compares what was counted with what had been before; nil for nothing.
func timesOf(now, before *status.Times) times {
	t := times{count: now.Count, p50: now.P50US, p99: now.P99US, known: true}
	if before == nil || now.Count <= before.Count {
		return t
	}
	n := now.Count - before.Count
	t.p50, t.p99 = quantile(now, before, n, 0.5), quantile(now, before, n, 0.99)
	return t
}

// quantile returns which time the given part of the n new ones was below.
func quantile(now, before *status.Times, n uint64, part float64) float64 {
	old := make(map[float64]uint64, len(before.Buckets))
	for _, b := range before.Buckets {
		old[b.BelowUS] = b.Count
	}
	want, sum := uint64(part*float64(n-1))+1, uint64(0)
	for _, b := range now.Buckets {
		if sum += b.Count - min(b.Count, old[b.BelowUS]); sum >= want && b.BelowUS > 0 {
			return min(b.BelowUS, now.MaxUS)
		}
	}
	return now.MaxUS
}
