package run

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"runtime"
	"slices"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/rdmad/rdmad/bench/peers/internal/crew"
	"github.com/rdmad/rdmad/bench/peers/internal/result"
	"github.com/rdmad/rdmad/bench/peers/internal/system"
	"github.com/rdmad/rdmad/internal/bench/latency"
)

// Options say what to compare.
type Options struct {
	// Peers is this program, and Rdmad the rdmad to measure.
	Peers, Rdmad string
	// Systems and Workloads are names, and Settings what they are run in.
	Systems   []string
	Workloads []Workload
	Settings  []Setting
	// Rounds is how often each is measured, for how long Duration says, or a multiple of it (Workload.Longer).
	Rounds   int
	Duration time.Duration
	// Idle is how long systems are looked at that have nothing to do.
	Idle time.Duration
	// MostClients and MostBytes, if not zero, bound the workloads, so that tests end soon.
	MostClients, MostBytes int
	// Progress, if not nil, is told what happens.
	Progress func(format string, args ...any)
}

// Run carries a comparison out. What fails is in the results; an error means that the comparison
// itself did not come to its end, and the results are those until then.
func Run(ctx context.Context, o Options) (*result.Results, error) {
	// Processes are told when the thread that started them ends, and start on the processors
	// of that thread.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	r := &run{options: &o, results: &result.Results{Rounds: o.Rounds, Duration: o.Duration.Seconds()}, latencies: map[*result.Cell]*hdrhistogram.Histogram{}}
	if o.Progress == nil {
		o.Progress = func(string, ...any) {}
	}
	for _, setting := range o.Settings {
		if err := r.in(ctx, setting); err != nil {
			return r.results, err
		}
	}
	return r.results, nil
}

// run is a comparison under way.
type run struct {
	options *Options
	results *result.Results
	// latencies are those of all rounds.
	latencies map[*result.Cell]*hdrhistogram.Histogram
}

// in measures everything in one setting.
func (r *run) in(ctx context.Context, setting Setting) (err error) {
	if setting == Pinned {
		unpin, e := crew.Pin()
		if e != nil {
			return e
		}
		defer func() { err = errors.Join(err, unpin()) }()
	}
	dir, err := os.MkdirTemp("", "rdmad-peers-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	var all []*instance
	defer func() {
		for _, in := range all {
			if e := in.stop(); e != nil {
				err = errors.Join(err, fmt.Errorf("stop %s: %w", in.system.Name, e))
			}
		}
	}()
	for _, name := range r.options.Systems {
		s, err := system.Find(name)
		if err != nil {
			return err
		}
		in := newInstance(s, system.Host{Dir: dir, Peers: r.options.Peers, Rdmad: r.options.Rdmad})
		all = append(all, in)
		if in.down = in.start(ctx); in.down != nil {
			r.options.Progress("%s: %s does not start: %v", setting, name, in.down)
		}
	}
	for round := range r.options.Rounds {
		for i := range r.options.Workloads {
			w := r.options.bounded(i)
			// Each is first now and then.
			order := rotated(members(all, w), round)
			r.options.Progress("%s: round %d of %d: %s", setting, round+1, r.options.Rounds, w.Name)
			if w.Idle {
				r.idle(ctx, setting, round, w, order)
			} else {
				for _, in := range order {
					r.one(ctx, setting, round, w, in)
				}
			}
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
		}
	}
	for cell, h := range r.latencies {
		cell.Curve = curve(h)
	}
	return nil
}

// bounded returns the workload within the bounds.
func (o *Options) bounded(i int) *Workload {
	w := o.Workloads[i]
	if o.MostClients > 0 {
		w.Clients = min(w.Clients, o.MostClients)
	}
	if o.MostBytes > 0 {
		w.Size = min(w.Size, o.MostBytes)
	}
	return &w
}

// members returns those that do a workload.
func members(all []*instance, w *Workload) []*instance {
	return slices.DeleteFunc(slices.Clone(all), func(in *instance) bool { return !slices.Contains(w.Systems, in.system.Name) })
}

// rotated returns the list from element by on, and those before it at the end.
func rotated[T any](list []T, by int) []T {
	if len(list) == 0 {
		return nil
	}
	by %= len(list)
	return append(slices.Clone(list[by:]), list[:by]...)
}

// cell returns the cell, which it makes if need be.
func (r *run) cell(setting Setting, w *Workload, in *instance) *result.Cell {
	c := r.results.Find(string(setting), w.Name, in.system.Name)
	if c == nil {
		c = &result.Cell{Setting: string(setting), Workload: w.Name, System: in.system.Name, Samples: make([]*result.Sample, r.options.Rounds)}
		r.results.Cells = append(r.results.Cells, c)
	}
	return c
}

// one measures a system once, and writes down how that went. A system that failed is started anew.
func (r *run) one(ctx context.Context, setting Setting, round int, w *Workload, in *instance) {
	cell := r.cell(setting, w, in)
	if in.down != nil {
		r.failed(cell, in.down)
		return
	}
	m, err := in.measure(ctx, w, r.options.Duration*time.Duration(max(w.Longer, 1)))
	if ctx.Err() != nil {
		return
	}
	if err == nil {
		cell.Samples[round], err = r.sample(cell, w, m)
	}
	if err != nil {
		r.failed(cell, err)
		in.restart(ctx)
	}
}

func (r *run) failed(cell *result.Cell, err error) {
	r.options.Progress("%s: %s: %s FAILED: %v", cell.Setting, cell.Workload, cell.System, err)
	cell.Errors = append(cell.Errors, err.Error())
}

// sample adds up what the clients measured.
func (r *run) sample(cell *result.Cell, w *Workload, m *measured) (*result.Sample, error) {
	s := new(result.Sample)
	all := latency.New()
	cpu := m.cpu
	var mismatches uint64
	// From the first message of any process to the last answer of any: not all begin at once.
	begin, end := int64(math.MaxInt64), int64(math.MinInt64)
	for i, p := range m.results {
		s.Messages += p.Messages
		mismatches += p.Mismatches
		cpu += p.CPU
		begin, end = min(begin, p.Begin), max(end, p.End)
		if len(p.Histogram) == 0 {
			continue
		}
		if err := latency.Merge(all, p.Histogram); err != nil {
			return nil, fmt.Errorf("client process %d: %w", i+1, err)
		}
	}
	if mismatches > 0 {
		return nil, fmt.Errorf("%d of %d answers had the wrong content", mismatches, s.Messages)
	}
	s.Elapsed = time.Duration(end - begin).Seconds()
	if m.arrived > 0 {
		s.Elapsed = m.arrived.Seconds()
	}
	if s.Messages == 0 || s.Elapsed <= 0 {
		return nil, errors.New("no message was finished")
	}
	s.Rate = float64(s.Messages) / s.Elapsed
	s.Megabytes = s.Rate * float64(w.Size) / 1e6
	s.CPU = cpu.Seconds() / float64(s.Messages) * 1e6
	s.Cores = cpu.Seconds() / s.Elapsed
	if all.TotalCount() > 0 {
		us := func(p float64) float64 { return float64(all.ValueAtQuantile(p)) / 1e3 }
		for _, v := range []struct {
			to      *float64
			percent float64
		}{{&s.P50, 50}, {&s.P90, 90}, {&s.P99, 99}, {&s.P999, 99.9}} {
			// Of fewer it would be the largest of all.
			if float64(all.TotalCount())*(100-v.percent) >= 99.99 {
				*v.to = us(v.percent)
			}
		}
		if r.latencies[cell] == nil {
			r.latencies[cell] = latency.New()
		}
		r.latencies[cell].Merge(all)
	}
	s.RequestGroup = quotient(m.after.Requests-m.before.Requests, m.after.RequestGroups-m.before.RequestGroups)
	s.AnswerGroup = quotient(m.after.Answers-m.before.Answers, m.after.AnswerGroups-m.before.AnswerGroups)
	cell.AddGroups(m.before.Sizes, m.after.Sizes)
	s.Round()
	return s, nil
}

// quotient returns a/b, and 0 where there is none.
func quotient(a, b uint64) float64 {
	if b == 0 {
		return 0
	}
	return float64(a) / float64(b)
}

// curvePercents are the points of a curve.
var curvePercents = []float64{1, 10, 25, 50, 75, 90, 95, 98, 99, 99.5, 99.8, 99.9, 99.95, 99.98, 99.99}

// curve returns those points of which there are ten latencies beyond.
func curve(h *hdrhistogram.Histogram) []result.Point {
	var points []result.Point
	for _, p := range curvePercents {
		if float64(h.TotalCount())*(100-p)/100 < 10 {
			break
		}
		points = append(points, result.Point{Percent: p, Latency: float64(h.ValueAtQuantile(p)) / 1e3})
	}
	return points
}
