package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"
)

// setting is how a pair of daemons is run.
type setting struct {
	idle   string
	groups bool
	// embedded: the service is in the core of its node, else in a process of its own.
	embedded bool
}

// wait is how callers and the service wait: where agents sleep they do, too. Where agents poll they
// poll for a moment, as by default: ten processes that poll all the time share two processors badly.
func (s setting) wait() []string {
	if s.idle == "event" {
		return []string{"--wait", "event"}
	}
	return nil
}

func (s setting) String() string {
	switch {
	case s.embedded:
		return s.idle + ", service embedded"
	case s.groups:
		return s.idle + ", group send on"
	}
	return s.idle + ", group send off"
}

var settings = []setting{{"busy", true, false}, {"busy", false, false}, {"busy", true, true}, {"event", true, false}, {"event", false, false}, {"event", true, true}}

// load is a run of "rdmad bench".
type load struct {
	workload       string
	size           int
	clients, depth int
}

// bulkSize is more than fits a ring: it goes by operations on regions.
const bulkSize = 1 << 20

var loads = []load{
	{"call", 64, 1, 1}, {"call", 64, 8, 1}, {"call", 64, 8, 64}, {"call", 64, 1, 1024}, {"stream", 64, 8, 64}, {"pages", 8 << 10, 8, 1}, {"pages", 8 << 10, 8, 8},
	{"pages", bulkSize, 1, 4}, {"stream", bulkSize, 1, 4},
}

// point is a load in a setting.
type point struct {
	setting
	load
}

// sample is what bench says of a point in one round.
type sample struct {
	Rate    float64 `json:"messages_per_s"`
	Latency struct {
		P50 float64 `json:"p50_us"`
	} `json:"latency"`
	Group      float64 `json:"messages_per_request_group"`
	Mismatches int     `json:"mismatches"`
	Fabric     string  `json:"fabric"`
}

type figures struct{ samples map[point][]sample }

func newFigures() *figures { return &figures{samples: make(map[point][]sample)} }

// measure starts two daemons in the given setting and runs all loads on them.
func (f *figures) measure(ctx context.Context, o *options, s setting) error {
	dir, err := os.MkdirTemp("", "labbench")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	var script strings.Builder
	script.WriteString("set -e\n")
	for i, l := range loads {
		fmt.Fprintf(&script, "%q bench %s --size %d --clients %d --depth %d --duration %s --warmup 300ms --json %s > %q\n",
			o.rdmad, l.workload, l.size, l.clients, l.depth, o.duration, strings.Join(s.wait(), " "), filepath.Join(dir, strconv.Itoa(i)))
	}
	args := []string{"sandbox", "--keep", "--fabric", "verbs", "--verbs-device", o.device, "--idle", s.idle}
	args = append(args, s.wait()...)
	if !s.groups {
		args = append(args, "--group-max", "1")
	}
	if s.embedded {
		args = append(args, "--embedded")
	}
	ctx, cancel := context.WithTimeout(ctx, time.Duration(len(loads))*(o.duration+30*time.Second))
	defer cancel()
	cmd := exec.CommandContext(ctx, o.rdmad, append(args, "--", "sh", "-c", script.String())...)
	cmd.Env = append(os.Environ(), "TMPDIR="+dir) // where the logs stay until this returns
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 20 * time.Second
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w\n%s%s", o.rdmad, strings.Join(args, " "), err, out, logs(dir))
	}
	for i, l := range loads {
		data, err := os.ReadFile(filepath.Join(dir, strconv.Itoa(i)))
		if err != nil {
			return err
		}
		var r sample
		if err := json.Unmarshal(data, &r); err != nil {
			return fmt.Errorf("result of bench %s: %w", l.workload, err)
		}
		if r.Mismatches != 0 || r.Fabric != "verbs" {
			return fmt.Errorf("bench %s: %d mismatches over fabric %q", l.workload, r.Mismatches, r.Fabric)
		}
		p := point{s, l}
		f.samples[p] = append(f.samples[p], r)
	}
	return nil
}

// lastLines is how much of each log of a sandbox is shown when a run of it has failed.
const lastLines = 25

// logs are the ends of the logs that a sandbox has left in dir.
func logs(dir string) string {
	var b strings.Builder
	files, _ := filepath.Glob(filepath.Join(dir, "rdmad-sandbox-*", "*.log")) // the pattern is well formed
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			fmt.Fprintln(&b, err)
			continue
		}
		lines := strings.SplitAfter(string(text), "\n")
		fmt.Fprintf(&b, "--- end of %s\n%s", filepath.Base(name), strings.Join(lines[max(0, len(lines)-lastLines):], ""))
	}
	return b.String()
}

// results are the medians, each with its ratio to the raw figure it is judged by.
func (f *figures) results(raw []RawResult) []Result {
	var rs []Result
	for _, s := range settings {
		for _, l := range loads {
			var rates, p50s, groups []float64
			for _, v := range f.samples[point{s, l}] {
				rates, p50s, groups = append(rates, v.Rate), append(p50s, v.Latency.P50), append(groups, v.Group)
			}
			r := Result{
				Workload: l.workload, Size: l.size, Clients: l.clients, Depth: l.depth, Idle: s.idle, Groups: s.groups, Embedded: s.embedded,
				Rate: median(rates), P50US: median(p50s), Group: median(groups),
			}
			r.compare(raw)
			rs = append(rs, r)
		}
	}
	return rs
}

// tool is what moves the same bytes without rdmad. Services read large requests out of the
// requester's memory.
func (r *Result) tool() string {
	if r.Workload == "stream" && r.Size >= bulkSize {
		return "ib_read_bw"
	}
	return "ib_write_bw"
}

// compare fills in the ratio, if there is a figure to compare with: one caller's round trip to two one-way writes, all
// else to the rate at which the device takes writes of that size one by one.
func (r *Result) compare(raw []RawResult) {
	for _, w := range raw {
		switch {
		case w.Size != r.Size:
		case r.Depth == 1 && r.Clients == 1 && w.Tool == "ib_write_lat" && w.LatencyUS > 0:
			r.Against, r.Ratio = "p50 / 2 x ib_write_lat", r.P50US/(2*w.LatencyUS)
		case r.Depth*r.Clients > 1 && w.Tool == r.tool() && w.Rate > 0:
			r.Against, r.Ratio = "rate / "+w.Tool, r.Rate/w.Rate
		}
	}
}

// print writes the table for people.
func (r *Report) print(out io.Writer) error {
	fmt.Fprintf(out, "medians of %d rounds\n\n", r.Rounds)
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "raw verbs\tbytes\tone way us\tmessages/s\t")
	for _, w := range r.Raw {
		fmt.Fprintf(t, "%s\t%d\t%s\t%s\t\n", w.Tool, w.Size, number(w.LatencyUS, 1), number(w.Rate, 0))
	}
	err := t.Flush()
	fmt.Fprintln(out)
	t = tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "rdmad\tbytes\tprocesses\tdepth\tidle\tgroups\tservice\tcalls/s\tround trip p50 us\trequests/WR\tratio\tof\t")
	for _, v := range r.Rdmad {
		groups := "on"
		if !v.Groups {
			groups = "off"
		}
		fmt.Fprintf(t, "%s\t%d\t%d\t%d\t%s\t%s\t%s\t%s\t%s\t%s\t%.2f\t%s\t\n", v.Workload, v.Size, v.Clients, v.Depth, v.Idle, groups, where(v.Embedded),
			number(v.Rate, 0), number(v.P50US, 1), number(v.Group, 1), v.Ratio, v.Against)
	}
	err = errors.Join(err, t.Flush(), r.printPingPong(out), r.printPerf(out), r.printTargets(out))
	fmt.Fprintf(out, "\nib_write_lat at 64 B through the run, us: %.1f (a quiet machine shows about the same each time)\n", r.LatencyChecks)
	return err
}

// where says where a service is.
func where(embedded bool) string {
	if embedded {
		return "embedded"
	}
	return "process"
}

// number formats a figure, or leaves the cell empty.
func number(v float64, digits int) string {
	if v == 0 {
		return ""
	}
	return strconv.FormatFloat(v, 'f', digits, 64)
}
