// Package plot draws the results of "rdmad perf" as SVG: how latencies are distributed, or
// bandwidth against the size of messages.
package plot

import (
	"bytes"
	"errors"
	"fmt"
	"image/color"
	"math"
	"os"
	"path/filepath"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	_ "gonum.org/v1/plot/vg/vgsvg" // the format

	"github.com/rdmad/rdmad/internal/bench/chart"
	"github.com/rdmad/rdmad/internal/perf"
	"github.com/rdmad/rdmad/internal/perf/report"
)

const (
	width, height = 18 * vg.Centimeter, 12 * vg.Centimeter
	extension     = ".svg"
)

var errNothing = errors.New("nothing was measured")

// Check refuses a file that could not be written, with a *perf.InputError, before something is
// measured.
func Check(file string) error {
	if filepath.Ext(file) != extension {
		return perf.Inputf("--plot %q: want a file called *%s", file, extension)
	}
	if i, err := os.Stat(filepath.Dir(file)); err != nil {
		return perf.Inputf("--plot %q: %w", file, err)
	} else if !i.IsDir() {
		return perf.Inputf("--plot %q: %s is no directory", file, filepath.Dir(file))
	}
	return nil
}

// Write draws a report into a file, which appears as a whole.
func Write(file string, r *report.Report) error {
	p, err := draw(r)
	if err != nil {
		return fmt.Errorf("plot: %w", err)
	}
	w, err := p.WriterTo(width, height, extension[1:])
	if err != nil {
		return fmt.Errorf("plot: %w", err)
	}
	var b bytes.Buffer
	if _, err := w.WriteTo(&b); err != nil {
		return fmt.Errorf("plot: %w", err)
	}
	f, err := os.CreateTemp(filepath.Dir(file), ".plot-*")
	if err != nil {
		return fmt.Errorf("plot: %w", err)
	}
	_, err = f.Write(b.Bytes())
	err = errors.Join(err, f.Chmod(0o644), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), file)
	}
	if err != nil {
		return fmt.Errorf("plot: %w", errors.Join(err, os.Remove(f.Name())))
	}
	return nil
}

// draw chooses the plot that the report is for.
func draw(r *report.Report) (*plot.Plot, error) {
	if len(r.Results) > 0 && r.Results[0].Samples != nil {
		return latencies(r)
	}
	return bandwidths(r)
}

// percentages are the points of a line of latencies: each step is rarer.
var percentages = []float64{1, 10, 25, 50, 75, 90, 95, 99, 99.5, 99.9, 99.95, 99.99, 99.999, 99.9999}

// latencies draws, for each size, which latency which part of the messages does not exceed.
func latencies(r *report.Report) (*plot.Plot, error) {
	unit := "half round trip"
	if r.Info.RTTFactor == 1 {
		unit = "round trip"
	}
	p := chart.New(r.Info.Test+", "+r.Info.Wait+", "+r.Info.Client.Provider, "percentile", unit+", us")
	p.Y.Scale, p.Y.Tick.Marker = plot.LogScale{}, chart.Short{Ticker: plot.LogTicks{}}
	p.Legend.Top = true
	low, high := math.Inf(1), 0.0
	for i, row := range r.Results {
		points := distribution(row.Samples)
		if len(points) == 0 {
			continue
		}
		low, high = min(low, points[0].Y), max(high, points[len(points)-1].Y)
		l, err := plotter.NewLine(points)
		if err != nil {
			return nil, err
		}
		l.Color, l.Width = shade(i, len(r.Results)), vg.Points(1.5)
		p.Add(l)
		p.Legend.Add(size(row.Size), l)
	}
	if high == 0 {
		return nil, errNothing
	}
	// Room around a line that is a point, without an end at 0, where there is no logarithm.
	p.Y.Min, p.Y.Max = low/1.1, high*1.1
	p.X.Tick.Marker = chart.Percentiles()
	chart.Widen(p)
	return p, nil
}

// distribution returns the points of a line, as far as there are samples beyond them.
func distribution(s *report.Samples) plotter.XYs {
	var points plotter.XYs
	if s == nil {
		return nil
	}
	for _, at := range percentages {
		if float64(s.Count())*(1-at/100) >= 1 || len(points) == 0 && s.Count() > 0 {
			// A logarithm of 0 cannot be drawn; the clock has nanoseconds.
			points = append(points, plotter.XY{X: chart.Rarity(at), Y: max(s.At(at), 1e-3)})
		}
	}
	return points
}

// bandwidths draws the average bandwidth of each size.
func bandwidths(r *report.Report) (*plot.Plot, error) {
	p := chart.New(r.Info.Test+", "+r.Info.Wait+", "+r.Info.Client.Provider, "bytes of a message", "MB/s (2^20 bytes)")
	var points plotter.XYs
	var ticks plot.ConstantTicks
	for i, row := range r.Results {
		if row.Bandwidth == nil {
			continue
		}
		at := math.Log2(float64(max(row.Size, 1)))
		points = append(points, plotter.XY{X: at, Y: row.Bandwidth.Average})
		t := plot.Tick{Value: at}
		if len(r.Results) < 12 || i%4 == 1 {
			t.Label = size(row.Size)
		}
		ticks = append(ticks, t)
	}
	if len(points) == 0 {
		return nil, errNothing
	}
	l, dots, err := plotter.NewLinePoints(points)
	if err != nil {
		return nil, err
	}
	l.Color, l.Width, dots.Color = shade(0, 1), vg.Points(1.5), shade(0, 1)
	p.Add(l, dots)
	p.X.Tick.Marker = ticks
	p.Y.Min, p.Y.Tick.Marker = 0, chart.Short{Ticker: plot.DefaultTicks{}}
	return p, nil
}

// shade is the colour of line i of n: from blue to red.
func shade(i, n int) color.Color {
	part := 0.0
	if n > 1 {
		part = float64(i) / float64(n-1)
	}
	return color.RGBA{R: uint8(30 + 190*part), G: uint8(110 - 60*part), B: uint8(180 - 150*part), A: 255}
}

// size formats a number of bytes with the unit that leaves it whole.
func size(n int) string {
	switch {
	case n >= 1<<20 && n%(1<<20) == 0:
		return strconv.Itoa(n>>20) + " MiB"
	case n >= 1<<10 && n%(1<<10) == 0:
		return strconv.Itoa(n>>10) + " KiB"
	}
	return strconv.Itoa(n) + " B"
}
