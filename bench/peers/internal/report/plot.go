package report

import (
	"fmt"
	"image/color"
	"math"
	"path/filepath"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"

	"github.com/rdmad/rdmad/bench/peers/internal/result"
	"github.com/rdmad/rdmad/bench/peers/internal/run"
	"github.com/rdmad/rdmad/internal/bench/chart"
)

// Size of a plot.
const (
	plotWidth  = 16 * vg.Centimeter
	plotHeight = 11 * vg.Centimeter
)

// colours are those of systems, the same in every plot, and easy to tell apart for everybody (after
// Okabe and Ito).
var colours = map[string]color.RGBA{
	"rdmad":          {213, 94, 0, 255},
	"rdmad-local":    {230, 159, 0, 255},
	"rdmad-region":   {204, 121, 167, 255},
	"rdmad-single":   {150, 150, 150, 255},
	"rdmad-embedded": {130, 60, 20, 255},
	"tcp":            {0, 0, 0, 255},
	"tcp-coalesced":  {0, 114, 178, 255},
	"unix":           {86, 180, 233, 255},
	"grpc":           {0, 158, 115, 255},
	"grpc-unix":      {120, 200, 90, 255},
	"nats":           {190, 170, 30, 255},
}

var settings = []run.Setting{run.Free, run.Pinned}

// plots are the plots of each setting.
var plots = []struct {
	name string
	plot func(*result.Results, string) (*plot.Plot, error)
}{
	{"latency", latencyPlot},
	{"clients", clientsPlot},
	{"sizes", sizesPlot},
	{"groups", groupsPlot},
}

func plotFile(name string, s run.Setting) string { return fmt.Sprintf("%s-%s.svg", name, s) }

// Plots writes the plots, as SVG, into a directory, and returns the names of the files. Those for which
// nothing was measured are left out.
func Plots(dir string, r *result.Results) (files []string, err error) {
	for _, s := range settings {
		for _, p := range plots {
			made, err := p.plot(r, string(s))
			if err == nil && made != nil {
				file := plotFile(p.name, s)
				files = append(files, file)
				made.BackgroundColor = color.White
				err = made.Save(plotWidth, plotHeight, filepath.Join(dir, file))
			}
			if err != nil {
				return nil, fmt.Errorf("plot %s: %w", p.name, err)
			}
		}
	}
	return files, nil
}

// line is the points of one system.
type line struct {
	system string
	points plotter.XYs
}

// newPlot makes an empty plot that says where its figures come from.
func newPlot(r *result.Results, title, x, y string) *plot.Plot {
	m := &r.Machine
	return chart.New(fmt.Sprintf("%s\n%s, %d CPUs, %s, %s", title, m.CPU, m.CPUs, m.Date, m.Revision), x, y)
}

// draw makes a plot of lines, or nil if there is none.
func draw(r *result.Results, title, x, y string, lines []line) (*plot.Plot, error) {
	p := newPlot(r, title, x, y)
	p.Y.Scale, p.Y.Tick.Marker = plot.LogScale{}, chart.Short{Ticker: plot.LogTicks{}}
	p.Legend.Top = true
	any := false
	for _, l := range lines {
		if len(l.points) == 0 {
			continue
		}
		any = true
		drawn, dots, err := plotter.NewLinePoints(l.points)
		if err != nil {
			return nil, err
		}
		drawn.Color, dots.Color = colours[l.system], colours[l.system]
		drawn.Width = vg.Points(1.5)
		p.Add(drawn, dots)
		p.Legend.Add(l.system, drawn)
	}
	if !any {
		return nil, nil
	}
	chart.Widen(p)
	return p, nil
}

// latencyPlot is the latencies of one caller: how many of its calls took longer.
func latencyPlot(r *result.Results, setting string) (*plot.Plot, error) {
	const workload = "call"
	w := find(workload)
	var lines []line
	for _, name := range w.Systems {
		l := line{system: name}
		if c := r.Find(setting, workload, name); c != nil {
			for _, at := range c.Curve {
				l.points = append(l.points, plotter.XY{X: chart.Rarity(at.Percent), Y: max(at.Latency, 0.1)})
			}
		}
		lines = append(lines, l)
	}
	p, err := draw(r, w.Text+", "+setting, "percentile", "us", lines)
	if p != nil {
		p.X.Tick.Marker = chart.Percentiles()
	}
	return p, err
}

// ratesPlot is the rates of several workloads side by side, with a place for each.
func ratesPlot(r *result.Results, setting, title, x string, workloads []string, place func(*run.Workload) (float64, string)) (*plot.Plot, error) {
	points := map[string]plotter.XYs{}
	var ticks plot.ConstantTicks
	for _, name := range workloads {
		w := find(name)
		at, label := place(w)
		ticks = append(ticks, plot.Tick{Value: at, Label: label})
		for _, system := range w.Systems {
			if rate := r.Find(setting, name, system).Of(result.Rate); rate.N > 0 {
				points[system] = append(points[system], plotter.XY{X: at, Y: rate.Median})
			}
		}
	}
	var lines []line
	for _, system := range find(workloads[0]).Systems {
		lines = append(lines, line{system, points[system]})
	}
	p, err := draw(r, title+", "+setting, x, "calls per second", lines)
	if p != nil {
		p.X.Tick.Marker = ticks
	}
	return p, err
}

func clientsPlot(r *result.Results, setting string) (*plot.Plot, error) {
	return ratesPlot(r, setting, "64 B echo, 8 outstanding each", "client processes", []string{"fan-1", "fan-8", "fan-64", "fan-256"},
		func(w *run.Workload) (float64, string) { return math.Log2(float64(w.Clients)), strconv.Itoa(w.Clients) })
}

func sizesPlot(r *result.Results, setting string) (*plot.Plot, error) {
	return ratesPlot(r, setting, "echo, 8 processes, 64 outstanding each", "bytes of request and answer", []string{"storm-64", "storm-1k", "storm-8k"},
		func(w *run.Workload) (float64, string) { return math.Log2(float64(w.Size)), strconv.Itoa(w.Size) })
}

// groupLoads are the workloads whose groups are shown, and how.
var groupLoads = []struct{ workload, colour string }{
	{"call", "tcp"}, {"callers", "unix"}, {"pages-64", "grpc"}, {"oneway", "nats"}, {"storm-8k", "rdmad-region"}, {"storm-1k", "rdmad-local"}, {"storm-64", "rdmad"},
}

// groupsPlot is the distribution of the sizes of groups of requests between two nodes: what part of all groups had
// at most so many messages.
func groupsPlot(r *result.Results, setting string) (*plot.Plot, error) {
	p := newPlot(r, "sizes of rdmad's groups of requests, "+setting, "messages in a group, at most", "percent of groups")
	var ticks plot.ConstantTicks
	largest := 0.0
	for _, g := range groupLoads {
		c := r.Find(setting, g.workload, base)
		if c == nil || len(c.GroupSizes) == 0 {
			continue
		}
		points, sum, all := plotter.XYs{}, uint64(0), uint64(0)
		for _, s := range c.GroupSizes {
			all += s.Groups
		}
		for _, s := range c.GroupSizes {
			sum += s.Groups
			at := math.Log2(float64(max(s.Most, 1)))
			if s.Most == 0 { // beyond all bounds
				at = largest + 1
			}
			largest = max(largest, at)
			points = append(points, plotter.XY{X: at, Y: 100 * float64(sum) / float64(all)})
		}
		drawn, dots, err := plotter.NewLinePoints(points)
		if err != nil {
			return nil, err
		}
		drawn.Color, dots.Color = colours[g.colour], colours[g.colour]
		drawn.Width = vg.Points(1.5)
		p.Add(drawn, dots)
		p.Legend.Add(g.workload, drawn)
	}
	if largest == 0 {
		return nil, nil
	}
	for at := 0.0; at <= largest; at++ {
		ticks = append(ticks, plot.Tick{Value: at, Label: strconv.Itoa(1 << int(at))})
	}
	p.X.Tick.Marker = ticks
	p.X.Min, p.X.Max, p.Y.Min, p.Y.Max = 0, largest, 0, 100
	chart.Widen(p)
	return p, nil
}

// find returns the workload of that name.
func find(name string) *run.Workload {
	for i := range run.Workloads {
		if run.Workloads[i].Name == name {
			return &run.Workloads[i]
		}
	}
	return &run.Workload{}
}
