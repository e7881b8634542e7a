package chart

import (
	"math"
	"testing"

	"gonum.org/v1/plot"
)

// The ticks of large and small numbers are short, and those without a number stay so.
func TestShort(t *testing.T) {
	for v, want := range map[float64]string{0: "0", 0.5: "0.5", 9999: "9999", 10_000: "10 k", 250_000: "250 k", 1_500_000: "1.5 M"} {
		ticks := Short{plot.ConstantTicks{{Value: v, Label: "long"}, {Value: v}}}.Ticks(0, v)
		if ticks[0].Label != want || ticks[1].Label != "" {
			t.Errorf("%v: %q and %q, want %q", v, ticks[0].Label, ticks[1].Label, want)
		}
	}
}

// A percentile is a step further to the right if it is ten times as rare.
func TestPercentiles(t *testing.T) {
	ticks := Percentiles()
	for i, label := range []string{"50", "90", "99", "99.9", "99.99"} {
		if ticks[i].Label != label || i > 0 && math.Abs(ticks[i].Value-float64(i)) > 1e-9 {
			t.Errorf("%+v, want %s at %d", ticks[i], label, i)
		}
	}
	p := New("title", "x", "y")
	p.X.Min, p.X.Max = 1, 2
	if Widen(p); p.X.Max != 2.3 || p.Title.Text != "title" || p.X.Label.Text != "x" || p.Y.Label.Text != "y" {
		t.Errorf("%+v", p)
	}
}
