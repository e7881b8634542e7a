package plot

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rdmad/rdmad/internal/perf"
	"github.com/rdmad/rdmad/internal/perf/report"
)

// A plot has a line or a point for each size, and nothing else is left in its directory.
func TestWrite(t *testing.T) {
	latencies := &report.Report{Info: report.Info{Test: "pingpong send", RTTFactor: 2}}
	bandwidths := &report.Report{Info: report.Info{Test: "blast write"}}
	for _, size := range []int{2, 4096, 1 << 20} {
		s := report.NewSamples(2)
		for i := range int64(10_000) {
			s.Record(1000 + i*int64(size))
		}
		latencies.Results = append(latencies.Results, report.Row{Size: size, Samples: s})
		bandwidths.Results = append(bandwidths.Results, report.Row{Size: size, Bandwidth: report.NewBandwidth(size, 1000, 1e6, 0)})
	}
	one := report.NewSamples(1)
	one.Record(0)
	for name, r := range map[string]*report.Report{
		"latencies": latencies, "bandwidths": bandwidths,
		"one": {Info: report.Info{Test: "one"}, Results: []report.Row{{Size: 1, Samples: one}}},
	} {
		dir := t.TempDir()
		file := filepath.Join(dir, "plot.svg")
		if err := errors.Join(Check(file), Write(file, r), Write(file, r)); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		words := []string{"<svg", r.Info.Test}
		if name != "one" {
			words = append(words, "2 B", "4 KiB", "1 MiB")
		}
		for _, w := range words {
			if !strings.Contains(string(text), w) {
				t.Errorf("%s: no %q", name, w)
			}
		}
		if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
			t.Errorf("%s: it has left %v, %v", name, left, err)
		}
	}
}

func TestCheck(t *testing.T) {
	for _, bad := range []string{"x.png", "x", "", "/nonexistent/x.svg", "plot.go/x.svg"} {
		if err := Check(bad); !perf.IsInput(err) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

func TestNothingToDraw(t *testing.T) {
	file := filepath.Join(t.TempDir(), "x.svg")
	if err := Write(file, new(report.Report)); err == nil {
		t.Error("a plot of nothing")
	}
	if _, err := os.Stat(file); err == nil {
		t.Error("a file without a plot")
	}
}
