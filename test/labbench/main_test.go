package main

import (
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A machine that is slow has fewer rounds, and what complete ones have found is not lost with a later one.
func TestRounds(t *testing.T) {
	broken := errors.New("broken")
	for _, c := range []struct {
		name   string
		within time.Duration
		fails  int // this round, from 1 on
		took   []time.Duration
		done   int
		says   string
	}{
		{"no limit", 0, 0, []time.Duration{time.Hour, time.Hour, time.Hour}, 3, "round 3 of 3 took 1h0m0s"},
		{"all fit", 30 * time.Minute, 0, []time.Duration{10 * time.Minute, 10 * time.Minute, 10 * time.Minute}, 3, "round 3 of 3 took 10m0s"},
		{"the third would not", 30 * time.Minute, 0, []time.Duration{8 * time.Minute, 12 * time.Minute}, 2, "round 3 of 3 is left out"},
		{"one that is too long", time.Minute, 0, []time.Duration{10 * time.Minute}, 1, "round 2 of 3 is left out"},
		{"the first fails", 0, 1, []time.Duration{time.Minute}, 0, ""},
		{"the second fails", 0, 2, []time.Duration{time.Minute, time.Minute}, 1, "round 1 of 3 took 1m0s"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var progress strings.Builder
				n := 0
				done, err := rounds(&options{rounds: 3, within: c.within}, &progress, func(string) error {
					time.Sleep(c.took[n])
					if n++; n == c.fails {
						return broken
					}
					return nil
				})
				if done != c.done || n != len(c.took) || errors.Is(err, broken) != (c.fails > 0) || !strings.Contains(progress.String(), c.says) {
					t.Errorf("%d rounds of %d complete, %v:\n%s", done, n, err, &progress)
				}
			})
		})
	}
}

// A round that has failed is in no median.
func TestIncompleteRound(t *testing.T) {
	f, broken := newAllFigures(), errors.New("broken")
	n := 0.0
	done, err := f.collect(&options{rounds: 3}, io.Discard, func(string) error {
		n++
		for i := range comparisons {
			f.perf.theirs[i], f.perf.ours[i] = append(f.perf.theirs[i], n), append(f.perf.ours[i], n)
		}
		for _, p := range rawPoints {
			f.raw.values[p] = append(f.raw.values[p], n)
		}
		if n == 1 {
			for _, b := range bares {
				f.bare.rates[b], f.bare.p50s[b] = append(f.bare.rates[b], n), append(f.bare.p50s[b], n)
			}
			return nil
		}
		f.bare.rates[bares[0]] = append(f.bare.rates[bares[0]], n)
		return broken
	})
	if done != 1 || !errors.Is(err, broken) {
		t.Fatalf("%d, %v", done, err)
	}
	for _, r := range f.raw.results() {
		if r.LatencyUS+r.Rate != 1 {
			t.Errorf("%+v", r)
		}
	}
	for _, r := range f.bare.results() {
		if r.Rate != 1 || r.P50US != 1 {
			t.Errorf("%+v", r)
		}
	}
	for _, r := range f.perf.results(&options{}) {
		if r.Theirs != 1 || r.Ours != 1 {
			t.Errorf("%+v", r)
		}
	}
	if checks := f.raw.checks(); len(checks) != 1 {
		t.Errorf("latency checks %v", checks)
	}
}
