package main

import (
	"math/rand/v2"
	"testing"
	"time"
)

// However long faults take, there is time enough in which none of them explains anything.
func TestQuietIsKept(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, longest := range []time.Duration{50 * time.Millisecond, time.Second, 5 * time.Second} {
		var injections []*injection
		at := int64(1e12)
		began := at
		for n := range 200 {
			i := &injection{began: at, ended: at + rng.Int64N(int64(longest))}
			injections, at = append(injections, i), i.ended
			if n%spell != spell-1 {
				at += rng.Int64N(int64(calm))
				continue
			}
			pause := rest(injections, began, at)
			if at += int64(pause); pause < leastQuiet {
				t.Errorf("a quiet stretch of %v", pause)
			}
			if share := float64(undisturbed(injections, began, at)) / float64(at-began); share < quietShare-0.001 {
				t.Fatalf("faults of up to %v: after %d of them %.3f of the time are undisturbed", longest, n+1, share)
			}
		}
	}
}

func TestUndisturbed(t *testing.T) {
	injections := []*injection{{began: 1e9, ended: 2e9}, {began: 2e9 + after/2, ended: 3e9}, {began: 5e9, ended: 6e9}}
	for _, c := range []struct{ from, to, want int64 }{
		{0, 1e9, 1e9},
		{0, 15e8, 1e9},
		{12e8, 3e9, 0},
		{0, 4e9, 1e9 + 1e9 - after},
		{0, 10e9, 1e9 + 2e9 - after + 4e9 - after},
		{7e9, 8e9, 1e9},
	} {
		if got := undisturbed(injections, c.from, c.to); got != c.want {
			t.Errorf("from %d to %d: %d, want %d", c.from, c.to, got, c.want)
		}
	}
}
