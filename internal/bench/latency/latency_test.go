package latency

import (
	"testing"
	"time"
)

// Each latency counts once, whether it is that of the one before or not, and in whatever process.
func TestRecorder(t *testing.T) {
	r := NewRecorder()
	r.Add(time.Hour)
	r.Reset()
	for _, us := range []time.Duration{1, 1, 1, 2, 1, 0, 0, 5, 5} {
		r.Add(us * time.Microsecond)
	}
	if h := r.Histogram(); h.TotalCount() != 9 || h.Max() < 4990 || h.Max() > 5010 || h.Min() != 0 || h.ValueAtPercentile(50) != 1000 {
		t.Errorf("%d latencies up to %d", h.TotalCount(), h.Max())
	}
	encoded, err := Encode(r.Histogram())
	if err != nil {
		t.Fatal(err)
	}
	all := New()
	for range 2 {
		if err := Merge(all, encoded); err != nil {
			t.Fatal(err)
		}
	}
	if all.TotalCount() != 18 {
		t.Errorf("%d latencies of two processes", all.TotalCount())
	}
	if err := Merge(all, []byte("none")); err == nil {
		t.Error("no histogram was merged")
	}
}

func TestAddAllocatesNothing(t *testing.T) {
	r, n := NewRecorder(), time.Duration(0)
	if a := testing.AllocsPerRun(1000, func() { n++; r.Add(n / 3) }); a != 0 {
		t.Errorf("%v allocations", a)
	}
}
