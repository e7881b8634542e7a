package report

import (
	"image/color"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rdmad/rdmad/bench/peers/internal/result"
	"github.com/rdmad/rdmad/bench/peers/internal/run"
	"github.com/rdmad/rdmad/bench/peers/internal/system"
)

// add makes a cell with the same sample in each round.
func add(r *result.Results, s run.Setting, workload, system string, sample result.Sample) *result.Cell {
	c := &result.Cell{Setting: string(s), Workload: workload, System: system, Samples: []*result.Sample{&sample, &sample}}
	r.Cells = append(r.Cells, c)
	return c
}

func judged(r *result.Results, s run.Setting, text string) (Judged, bool) {
	for _, j := range Judge(r) {
		if j.Setting == s && j.Text == text {
			return j, true
		}
	}
	return Judged{}, false
}

func TestTargets(t *testing.T) {
	r := &result.Results{Rounds: 2}
	add(r, run.Pinned, "call", "rdmad", result.Sample{P50: 18, P99: 50})
	add(r, run.Pinned, "call", "tcp", result.Sample{P50: 10, P99: 40})
	add(r, run.Pinned, "call", "grpc", result.Sample{P50: 40, P99: 100})
	add(r, run.Free, "storm-64", "rdmad", result.Sample{Rate: 1000, CPU: 0.4, RequestGroup: 15.9})
	add(r, run.Free, "storm-64", "nats", result.Sample{Rate: 100})
	add(r, run.Free, "storm-64", "rdmad-single", result.Sample{Rate: 600})
	add(r, run.Free, "oneway", "rdmad", result.Sample{Rate: 1300})
	add(r, run.Free, "fan-8", "rdmad", result.Sample{Rate: 100})
	add(r, run.Free, "fan-64", "rdmad", result.Sample{Rate: 120})
	add(r, run.Free, "fan-256", "rdmad", result.Sample{Rate: 105})
	add(r, run.Free, "bulk-1m", "rdmad-region", result.Sample{Rate: 8})
	add(r, run.Free, "bulk-1m", "tcp", result.Sample{Rate: 10})
	add(r, run.Free, "idle", "rdmad", result.Sample{Cores: 0.0004})
	for _, c := range []struct {
		setting run.Setting
		text    string
		value   float64
		met     bool
	}{
		{run.Pinned, "one caller: p50, of tcp", 1.8, true},
		{run.Pinned, "one caller: p50, of grpc", 0.45, false},
		{run.Pinned, "one caller: p99, of grpc", 0.5, true},
		{run.Free, "storm: calls/s, of nats", 10, false},
		{run.Free, "storm: CPU s per million", 0.4, true},
		{run.Free, "storm: messages in a group of requests", 15.9, false},
		{run.Free, "groups of one message, storm: calls/s, of those of rdmad", 0.6, true},
		{run.Free, "one-way: messages/s, of calls/s of the storm", 1.3, true},
		{run.Free, "256 processes: calls/s, of the best of 8 and 64", 0.875, false},
		{run.Free, "1 MiB into regions: MB/s, of tcp", 0.8, true},
		{run.Free, "idle: processors used by five processes", 0.0004, true},
	} {
		j, ok := judged(r, c.setting, c.text)
		if !ok || j.Measured.Median != c.value || j.Met() != c.met {
			t.Errorf("%s, %s: %+v, met %v, want %v, %v", c.setting, c.text, j.Measured, j.Met(), c.value, c.met)
		}
	}
	if j, ok := judged(r, run.Free, "storm: calls/s, of grpc"); !ok || j.Measured.N != 0 || j.Met() {
		t.Errorf("without a measurement: %+v", j)
	}
	var b strings.Builder
	if err := TargetTable(&b, r); err != nil {
		t.Fatal(err)
	}
	text := strings.Join(strings.Fields(b.String()), " ")
	for _, want := range []string{"one caller: p50, of tcp <= 1.8 1.8 1.8-1.8 met", "p50, of grpc <= 0.4 0.45 0.45-0.45 not met", "- - not measured"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
}

// No two systems look the same in a plot.
func TestColours(t *testing.T) {
	seen := make(map[color.RGBA]string)
	for name, c := range colours {
		if other, twice := seen[c]; twice {
			t.Errorf("%s and %s have the same colour", name, other)
		}
		seen[c] = name
	}
}

// Targets are about workloads that there are, and systems that do them.
func TestTargetsCanBeMeasured(t *testing.T) {
	r := &result.Results{}
	for _, s := range []run.Setting{run.Free, run.Pinned} {
		for _, w := range run.Workloads {
			for _, name := range w.Systems {
				if _, err := system.Find(name); err != nil {
					t.Errorf("%s: %v", w.Name, err)
				}
				if colours[name].A == 0 {
					t.Errorf("%s has no colour", name)
				}
				add(r, s, w.Name, name, result.Sample{Rate: 1, P50: 1, P99: 1, CPU: 1, Cores: 1, RequestGroup: 1})
			}
		}
	}
	for _, j := range Judge(r) {
		if j.Measured.N == 0 {
			t.Errorf("%s, %s, %s: not measured although everything was", j.Name, j.Setting, j.Text)
		}
	}
}

func TestTable(t *testing.T) {
	r := &result.Results{Rounds: 2, Duration: 0.25, Machine: result.Machine{CPU: "Some Processor", CPUs: 2}}
	add(r, run.Free, "call", "rdmad", result.Sample{Rate: 1000, P50: 20, P99: 50, CPU: 15, RequestGroup: 1.5})
	add(r, run.Free, "call", "tcp", result.Sample{Rate: 2000, P50: 10, P99: 50, CPU: 5})
	broken := add(r, run.Free, "call", "nats", result.Sample{})
	broken.Samples, broken.Errors = []*result.Sample{nil, nil}, []string{"it is broken"}
	add(r, run.Pinned, "idle", "rdmad", result.Sample{})
	var b strings.Builder
	if err := Table(&b, r); err != nil {
		t.Fatal(err)
	}
	var rows [][]string
	for line := range strings.Lines(b.String()) {
		rows = append(rows, strings.Fields(line))
	}
	find := func(system string) []string {
		for _, r := range rows {
			if len(r) > 1 && r[0] == system {
				return r
			}
		}
		return nil
	}
	for system, want := range map[string]string{
		"tcp":   "tcp 2000 2000-2000 10.0 - 50.0 - 5.00 0.50 2.00 1.00",
		"nats":  "nats - - - - - - - - - - - -",
		"rdmad": "rdmad 1000 1000-1000 20.0 - 50.0 - 15.00 1.5",
	} {
		if got := strings.Join(find(system), " "); got != want {
			t.Errorf("%s: %q, want %q", system, got, want)
		}
	}
	for _, want := range []string{"Some Processor, 2 CPUs", "nats FAILED: it is broken", "free: all", "pinned: every", "rdmad           0.0000"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
}

func TestPlots(t *testing.T) {
	r := &result.Results{Machine: result.Machine{CPU: "Some Processor", CPUs: 2, Date: "2026-11-22", Revision: "abc"}}
	for _, w := range run.Workloads {
		for _, name := range w.Systems {
			c := add(r, run.Free, w.Name, name, result.Sample{Rate: 50000, RequestGroup: 8, AnswerGroup: 4})
			c.Curve = []result.Point{{Percent: 50, Latency: 10}, {Percent: 99, Latency: 100}}
			c.GroupSizes = []result.GroupSize{{Most: 1, Groups: 5}, {Most: 16, Groups: 20}, {Groups: 1}}
		}
	}
	dir := t.TempDir()
	if err := Page(dir, r); err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join(dir, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	// Nothing was measured on one processor.
	made, err := filepath.Glob(filepath.Join(dir, "*.svg"))
	if err != nil || len(made) != 4 || strings.Count(string(page), "](") != len(made)+1 {
		t.Fatalf("made %v, %v\n%s", made, err, page)
	}
	for _, name := range made {
		text, err := os.ReadFile(name)
		if err != nil || !strings.Contains(string(text), "<svg") || !strings.Contains(string(text), "free") {
			t.Errorf("%s is no plot: %v", name, err)
		}
		if !strings.Contains(string(text), "Some Processor, 2 CPUs, 2026-11-22, abc") {
			t.Errorf("%s does not say where its figures come from", name)
		}
	}
}
