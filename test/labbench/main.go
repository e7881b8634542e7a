// Command labbench compares rdmad over verbs with the raw tools of perftest, and with a
// bare ping-pong of writes with immediates, and rdmad perf with perftest and fi_pingpong, on the
// same device, interleaved. It prints what each has done, and which of the targets are met. It is made for the
// guest of the lab ("make lab-bench") and works on any machine with an RDMA device
// and perftest installed.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"time"
)

func main() {
	var o options
	flag.StringVar(&o.rdmad, "rdmad", "bin/verbs/rdmad", "the rdmad to measure, built with -tags verbs")
	flag.StringVar(&o.pingpong, "pingpong", "bin/verbs/pingpong", "the ping-pong to compare with: test/labbench/pingpong")
	flag.StringVar(&o.device, "device", "rxe0", "the RDMA device")
	flag.IntVar(&o.gid, "gid", 1, "the GID index for the raw tools")
	flag.IntVar(&o.rounds, "rounds", 3, "how often everything is measured; medians are shown")
	flag.DurationVar(&o.within, "within", 0, "begin no round that would not be over by then if it took as long as the longest one before; 0: no limit")
	flag.DurationVar(&o.duration, "duration", 2*time.Second, "how long each measurement of rdmad takes")
	flag.StringVar(&o.libfabric, "libfabric", "", "an rdmad built with -tags libfabric, for comparisons with fi_pingpong over tcp; empty: none")
	flag.StringVar(&o.address, "address", "10.9.9.1", "the address of the RDMA device, for fi_pingpong")
	flag.IntVar(&o.messages, "messages", 2000, "messages of each measurement of rdmad perf")
	flag.BoolVar(&o.perf, "perf", false, "measure rdmad perf only, and verify what it moves")
	flag.BoolVar(&o.json, "json", false, "print the figures as JSON")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, &o, os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "labbench:", err)
		os.Exit(1)
	}
}

type options struct {
	rdmad, libfabric, pingpong, device, address string
	gid, rounds, messages                       int
	duration, within                            time.Duration
	perf, json                                  bool
}

// Report is what labbench prints with -json.
type Report struct {
	// Rounds is how many there were: figures are medians of as many.
	Rounds   int         `json:"rounds"`
	Raw      []RawResult `json:"raw"`
	Rdmad    []Result    `json:"rdmad"`
	PingPong []PingPong  `json:"ping_pong"`
	Targets  []Verdict   `json:"targets"`
	// Perf compares "rdmad perf" with perftest and fi_pingpong.
	Perf []PerfResult `json:"perf"`
	// LatencyChecks are ib_write_lat at 64 B at the start of each round and at
	// the end, in microseconds: when they differ much, the machine was not
	// quiet and the figures mean nothing.
	LatencyChecks []float64 `json:"latency_checks_us"`
}

// RawResult is a figure of perftest: the median of the rounds.
type RawResult struct {
	Tool string `json:"tool"`
	Size int    `json:"size_bytes"`
	// LatencyUS is the typical one-way latency, for ib_write_lat.
	LatencyUS float64 `json:"latency_us,omitempty"`
	// Rate is in messages per second, for ib_write_bw.
	Rate float64 `json:"messages_per_s,omitempty"`
}

// Result is a figure of rdmad: the median of the rounds.
type Result struct {
	Workload string `json:"workload"`
	Size     int    `json:"size_bytes"`
	Clients  int    `json:"clients"`
	Depth    int    `json:"depth"`
	Idle     string `json:"idle"`
	Groups   bool   `json:"group_send"`
	// Embedded: the service is in the core of its node.
	Embedded bool `json:"embedded"`
	// Rate is in messages per second, P50US the full round trip.
	Rate  float64 `json:"messages_per_s"`
	P50US float64 `json:"p50_us"`
	// Group is the average number of requests per work request.
	Group float64 `json:"requests_per_group"`
	// Against says what Ratio is: this figure as a multiple of a raw one.
	Against string  `json:"against"`
	Ratio   float64 `json:"ratio"`
}

// run measures round by round, everything in each, so that a disturbance hits all. What complete rounds
// have found is printed whatever becomes of a later one.
func run(ctx context.Context, o *options, out, progress io.Writer) error {
	f := newAllFigures()
	done, err := f.collect(o, progress, func(round string) error { return f.measure(ctx, o, round, progress) })
	if done == 0 {
		return err
	}
	report, tables := Report{Rounds: done, Perf: f.perf.results(o)}, (*Report).printPerf
	if !o.perf {
		tables = (*Report).print
		report.LatencyChecks = f.raw.checks()
		if err == nil {
			var last float64
			if last, err = writeLatency(ctx, o, 64); err == nil {
				report.LatencyChecks = append(report.LatencyChecks, last)
			}
		}
		report.Raw = f.raw.results()
		report.PingPong = f.bare.results()
		report.Rdmad = f.product.results(report.Raw)
		report.judge()
	}
	return errors.Join(err, report.write(out, o.json, func(out io.Writer) error { return tables(&report, out) }))
}

// rounds calls measure for each round with what the round is called, until one fails or the time is over.
// It returns how many are complete.
func rounds(o *options, progress io.Writer, measure func(round string) error) (done int, err error) {
	begin := time.Now()
	var longest time.Duration
	for ; done < o.rounds; done++ {
		name := fmt.Sprintf("round %d of %d", done+1, o.rounds)
		start := time.Now()
		if done > 0 && o.within > 0 && start.Sub(begin)+longest > o.within {
			fmt.Fprintf(progress, "%s is left out: it would not be over within %v (-within)\n", name, o.within)
			return done, nil
		}
		if err := measure(name); err != nil {
			return done, fmt.Errorf("%s: %w", name, err)
		}
		took := time.Since(start)
		longest = max(longest, took)
		fmt.Fprintf(progress, "%s took %v\n", name, took.Round(time.Second))
	}
	return done, nil
}

// allFigures collects the rounds of everything that is measured.
type allFigures struct {
	raw     *rawFigures
	bare    *pingPongs
	product *figures
	perf    *perfFigures
}

func newAllFigures() *allFigures {
	return &allFigures{raw: newRawFigures(), bare: newPingPongs(), product: newFigures(), perf: newPerfFigures()}
}

// collect measures round by round, and keeps what complete ones have found. It returns how many these are.
func (f *allFigures) collect(o *options, progress io.Writer, measure func(round string) error) (done int, err error) {
	done, err = rounds(o, progress, measure)
	keep(f.raw.values, done)
	keep(f.bare.rates, done)
	keep(f.bare.p50s, done)
	keep(f.product.samples, done)
	keep(f.perf.theirs, done)
	keep(f.perf.ours, done)
	return done, err
}

// keep forgets what was found after so many rounds, each of which adds one to everything.
func keep[K comparable, V any](found map[K][]V, rounds int) {
	for k, v := range found {
		found[k] = v[:min(rounds, len(v))]
	}
}

// measure is one round.
func (f *allFigures) measure(ctx context.Context, o *options, round string, progress io.Writer) error {
	fmt.Fprintf(progress, "%s: rdmad perf\n", round)
	if err := f.perf.measure(ctx, o, o.perf); err != nil || o.perf {
		return err
	}
	fmt.Fprintf(progress, "%s: raw verbs\n", round)
	if err := f.raw.measure(ctx, o); err != nil {
		return err
	}
	if err := f.bare.measure(ctx, o); err != nil {
		return err
	}
	for _, s := range settings {
		fmt.Fprintf(progress, "%s: rdmad, %s\n", round, s)
		if err := f.product.measure(ctx, o, s); err != nil {
			return err
		}
	}
	return nil
}

// write writes the report as JSON, or as tables for people.
func (r *Report) write(out io.Writer, asJSON bool, tables func(io.Writer) error) error {
	if !asJSON {
		return tables(out)
	}
	e := json.NewEncoder(out)
	e.SetIndent("", "  ")
	return e.Encode(r)
}
