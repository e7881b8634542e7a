package main

import (
	"io"
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

// A call that outlasts its turn is the longest of that turn, and of others as far as they have it, and is counted once in each;
// turns with next to no calls count as well.
func TestCallOutlastsItsTurn(t *testing.T) {
	b, err := openBoard(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer b.close()
	r := &run{board: b}
	const ms = int64(time.Millisecond)
	about := func(p phase, want int64) {
		t.Helper()
		n, _ := b.latency(p, 0.99)
		if n != 1 || len(r.p99s[p]) != 1 || int64(r.p99s[p][0]) < want || int64(r.p99s[p][0]) > want*9/8+1 {
			t.Errorf("phase %d: %d calls, p99 of turns %v, want %v", p, n, r.p99s[p], time.Duration(want))
		}
	}
	x := r.beginTurn(phaseHostile, 1000*ms)
	b.opened(1100 * ms)
	r.endTurn(x, 1700*ms)
	about(phaseHostile, 600*ms)

	x = r.beginTurn(phaseNeighbours, 1800*ms)
	r.endTurn(x, 2300*ms)
	about(phaseNeighbours, 500*ms)

	x = r.beginTurn(phaseCalm, 2400*ms)
	if b.closed(1100 * ms) {
		t.Error("a call is to be counted again when it ends")
	}
	r.endTurn(x, 2500*ms)
	if n, _ := b.latency(phaseCalm, 0.99); n != 0 || len(r.p99s[phaseCalm]) != 0 {
		t.Errorf("%d calls in a turn that had none", n)
	}
	if r.phaseTime[phaseHostile] != 700*time.Millisecond {
		t.Errorf("the turn took %v", r.phaseTime[phaseHostile])
	}
}

// What there is nothing to compare with is left out, so that the result can be written.
func TestRatiosAreNumbers(t *testing.T) {
	b, err := openBoard(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer b.close()
	res := &result{run: &run{board: b, hostileTime: time.Second}}
	res.ratios()
	if err := res.write(io.Discard, true); err != nil || len(res.Ratios) != 0 {
		t.Errorf("%v, %v", res.Ratios, err)
	}
	res.run.neighbourTime = 2 * time.Second
	if res.ratios(); len(res.Ratios) != 1 || res.Ratios[0].Ratio != 0.5 {
		t.Errorf("%v", res.Ratios)
	}
}
