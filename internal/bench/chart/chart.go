// Package chart is what all plots of measurements have in common.
package chart

import (
	"math"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
)

// New returns an empty plot.
func New(title, x, y string) *plot.Plot {
	p := plot.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = title, x, y
	p.Title.Padding = vg.Points(6)
	p.Add(plotter.NewGrid())
	return p
}

// legendPart is how much wider a plot is for its legend.
const legendPart = 0.3

// Widen makes room for the legend beside the lines, which are all drawn.
func Widen(p *plot.Plot) { p.X.Max += (p.X.Max - p.X.Min) * legendPart }

// Rarity places a percentile: each step to the right is ten times as rare.
func Rarity(percent float64) float64 { return -math.Log10(1 - percent/100) }

// Percentiles are the ticks of an axis of percentiles.
func Percentiles() plot.ConstantTicks {
	var ticks plot.ConstantTicks
	for _, percent := range []float64{50, 90, 99, 99.9, 99.99} {
		ticks = append(ticks, plot.Tick{Value: Rarity(percent), Label: strconv.FormatFloat(percent, 'g', -1, 64)})
	}
	return ticks
}

// Short are ticks with short numbers.
type Short struct{ plot.Ticker }

// Ticks implements plot.Ticker.
func (s Short) Ticks(low, high float64) []plot.Tick {
	ticks := s.Ticker.Ticks(low, high)
	for i := range ticks {
		if ticks[i].Label != "" {
			ticks[i].Label = short(ticks[i].Value)
		}
	}
	return ticks
}

func short(v float64) string {
	unit := ""
	switch {
	case v >= 1e6:
		v, unit = v/1e6, " M"
	case v >= 1e4:
		v, unit = v/1e3, " k"
	}
	return strconv.FormatFloat(v, 'g', 4, 64) + unit
}
