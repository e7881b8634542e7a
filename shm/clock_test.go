package shm_test

import (
	"testing"
	"time"

	"github.com/rdmad/rdmad/shm"
)

// A time is the same by either clock, also one that was computed from a date, and one too far away is none.
func TestNanotimeOf(t *testing.T) {
	before := shm.Nanotime()
	now := time.Now()
	after := shm.Nanotime()
	for _, in := range []time.Duration{0, time.Hour, -time.Second, 100 * 365 * 24 * time.Hour} {
		at, ok := shm.NanotimeOf(now.Add(in))
		if !ok || at < before+int64(in) || at > after+int64(in) {
			t.Errorf("in %v: %d, %v, want %d to %d", in, at, ok, before+int64(in), after+int64(in))
		}
		// By the date alone: the clock may be set meanwhile, but not by much.
		at, ok = shm.NanotimeOf(now.Add(in).Round(0))
		if off := time.Duration(at - before - int64(in)); !ok || off.Abs() > time.Minute {
			t.Errorf("in %v by its date: off by %v, %v", in, off, ok)
		}
	}
	for _, far := range []time.Time{now.Add(1<<63 - 1), time.Unix(1<<40, 0)} {
		if at, ok := shm.NanotimeOf(far); ok {
			t.Errorf("%v is at %d", far, at)
		}
	}
}

func BenchmarkNanotimeOf(b *testing.B) {
	end := time.Now().Add(time.Hour)
	b.Run("deadline", func(b *testing.B) {
		for b.Loop() {
			shm.NanotimeOf(end)
		}
	})
	b.Run("date", func(b *testing.B) { // as every deadline was before
		date := end.Round(0)
		for b.Loop() {
			shm.NanotimeOf(date)
		}
	})
}
