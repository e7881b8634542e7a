package main

import (
	"testing"
	"time"
)

// The bucket of a time ends above it, by an eighth at most.
func TestBuckets(t *testing.T) {
	for d := time.Duration(1); d < time.Minute; d += d/7 + 1 {
		if end := bucketEnd(bucketOf(d)); end <= d || end > d+d/8+1 {
			t.Errorf("%v is in a bucket that ends at %v", d, end)
		}
	}
}

func TestLatency(t *testing.T) {
	b, err := openBoard(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer b.close()
	for i := range 100 {
		b.called(phaseCalm, time.Duration(i+1)*time.Millisecond)
	}
	b.called(phases, time.Hour) // damaged: nothing
	n, p99 := b.latency(phaseCalm, 0.99)
	_, p50 := b.latency(phaseCalm, 0.5)
	if n != 100 || p99 < 99*time.Millisecond || p99 > 112*time.Millisecond || p50 < 50*time.Millisecond || p50 > 57*time.Millisecond {
		t.Errorf("%d calls, p50 %v, p99 %v", n, p50, p99)
	}
	if n, at := b.latency(phaseHostile, 0.99); n != 0 || at != 0 {
		t.Errorf("%d calls, %v in a phase without any", n, at)
	}
}
