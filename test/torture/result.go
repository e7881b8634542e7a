package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// result is what a run has come to.
type result struct {
	Failed bool `json:"failed"`
	// Why is why it ended.
	Why     string  `json:"why"`
	Seed    uint64  `json:"seed"`
	Seconds float64 `json:"seconds"`
	// Command repeats the run.
	Command  string   `json:"command"`
	Problems []string `json:"problems"`
	// Unreached are the limits that were not reached.
	Unreached []string      `json:"unreached,omitempty"`
	Faults    []faultResult `json:"faults"`
	// Unproven are faults that were to make no call fail, and were not injected.
	Unproven []string          `json:"unproven,omitempty"`
	Skipped  map[string]string `json:"skipped,omitempty"`
	Calls    *judgement        `json:"calls"`
	// Undisturbed is for how many seconds no fault was there to explain anything, of the Scheduled ones in which faults were
	// injected, and Unexplained how many calls failed then.
	Undisturbed float64          `json:"undisturbed_seconds"`
	Scheduled   float64          `json:"scheduled_seconds"`
	Unexplained int              `json:"unexplained"`
	Reattached  uint64           `json:"reattached"`
	BadRequests uint64           `json:"bad_requests"`
	Crashes     int              `json:"crashes"`
	Recoveries  []recoveryResult `json:"recoveries"`
	Ratios      []ratio          `json:"ratios"`
	Usage       []usageResult    `json:"usage"`

	run *run
}

// faultResult is how often a fault was injected, and how many calls failed because of it.
type faultResult struct {
	Name     string `json:"name"`
	Injected int    `json:"injected"`
	Errors   int    `json:"errors"`
	// Promised is how many of them failed in a way that docs/semantics.md has programs expect of it.
	Promised int `json:"promised"`
}

// recoveryResult is how long something took to be well again, in milliseconds.
type recoveryResult struct {
	Name  string  `json:"name"`
	Count int     `json:"count"`
	P50   float64 `json:"p50_ms"`
	P99   float64 `json:"p99_ms"`
	Max   float64 `json:"max_ms"`
}

// ratio compares the witness's calls in two phases that took turns.
type ratio struct {
	Name string `json:"name"`
	// Unit is of Before and During.
	Unit   string  `json:"unit"`
	Before float64 `json:"before"`
	During float64 `json:"during"`
	Ratio  float64 `json:"ratio"`
}

// usageResult is what a process had at the start and at the end.
type usageResult struct {
	Name       string `json:"name"`
	Start, End usage
}

func newResult(r *run, why string) *result {
	return &result{run: r, Why: why, Seed: r.options.seed, Command: r.options.command, Seconds: time.Since(r.began).Seconds(),
		Skipped: r.skipped, Undisturbed: float64(r.undisturbed) / 1e9, Scheduled: float64(r.scheduled) / 1e9, Unreached: r.unreached(), Problems: []string{}}
}

// problem notes what is wrong, if anything.
func (res *result) problem(err error) {
	if err != nil {
		res.Failed = true
		res.Problems = append(res.Problems, err.Error())
	}
}

// usage compares what the daemons have with what they had.
func (res *result) usage(start, end usages) {
	for i := range start {
		res.Usage = append(res.Usage, usageResult{usageNames[i], start[i], end[i]})
	}
	for _, p := range end.grown(start) {
		res.problem(fmt.Errorf("%s", p))
	}
}

// judged enters what the books say.
func (res *result) judged(j *judgement, unexplained int) {
	r := res.run
	res.Calls, res.Unexplained = j, unexplained
	res.Reattached, res.BadRequests = r.board.get(boardReattached), r.board.get(boardBadRequests)
	if j.bad() {
		res.problem(fmt.Errorf("lost %d, duplicated %d, executed though denied %d, stuck %d, wrong %d, disordered %d", j.Lost, j.Duplicated, j.Denied, j.Stuck, j.Wrong, j.Disordered))
	}
	for _, p := range j.mute() {
		res.problem(errors.New(p))
	}
	if n := res.BadRequests + r.board.get(boardForeign); n > 0 {
		res.problem(fmt.Errorf("%d requests had wrong bytes when they came to their handlers", n))
	}
	if unexplained > 0 {
		res.problem(fmt.Errorf("%d calls failed while no fault was injected", unexplained))
	}
	by := map[string]*faultResult{}
	for _, f := range r.possible {
		by[f.name] = &faultResult{Name: f.name}
	}
	times := [recoveries][]time.Duration{}
	for _, i := range r.injections {
		f := by[i.fault.name]
		f.Injected, f.Errors, f.Promised = f.Injected+1, f.Errors+i.errors, f.Promised+i.promised
		for what, d := range i.recovered {
			times[what] = append(times[what], d)
		}
	}
	for _, f := range r.possible {
		res.Faults = append(res.Faults, *by[f.name])
		if n := by[f.name].Errors - by[f.name].Promised; n > 0 && slices.Contains(r.options.noErrors, f.name) {
			res.problem(fmt.Errorf("%d calls failed because of %s", n, f.name))
		}
	}
	res.unproven(by)
	for what, ds := range times {
		if len(ds) > 0 {
			res.Recoveries = append(res.Recoveries, recoveryResult{recoveryNames[what], len(ds),
				millis(quantile(ds, 0.5)), millis(quantile(ds, 0.99)), millis(slices.Max(ds))})
		}
	}
	res.ratios()
}

// unproven notes of which faults it was not seen that they make no call fail, although that was asked for: chance may have left some out.
func (res *result) unproven(by map[string]*faultResult) {
	asked := res.run.options.noErrors
	for _, name := range asked {
		if f := by[name]; f == nil || f.Injected == 0 {
			res.Unproven = append(res.Unproven, name)
		}
	}
	if n := len(asked); n > 0 && len(res.Unproven) == n {
		res.problem(errors.New("none of the faults was injected that are to make no call fail"))
	}
}

func millis(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// fewCalls are too few to compare with.
const fewCalls = 100

// ratios compares phases.
func (res *result) ratios() {
	r := res.run
	for _, c := range []struct {
		name         string
		before, with phase
		rate         bool
	}{
		{"p99 of calls beside hostile workers, to that in calm", phaseCalm, phaseHostile, false},
		{"p99 of calls beside hostile workers, to that beside honest ones as busy", phaseNeighbours, phaseHostile, false},
		{"p99 of calls beside a hostile peer", phasePeerCalm, phaseHostilePeer, false},
		{"calls of others while a worker is stopped", phaseRunning, phaseStopped, true},
	} {
		calls, _ := r.board.latency(c.before, 0.99)
		callsWith, _ := r.board.latency(c.with, 0.99)
		if calls < fewCalls || len(r.p99s[c.with]) == 0 {
			continue
		}
		// Medians: one turn in which something else took the machine decides nothing.
		before, with := quantile(r.p99s[c.before], 0.5), quantile(r.p99s[c.with], 0.5)
		x := ratio{Name: c.name, Unit: "ms", Before: millis(before), During: millis(with)}
		if c.rate {
			x.Unit, x.Before, x.During = "calls/s", float64(calls)/r.phaseTime[c.before].Seconds(), float64(callsWith)/r.phaseTime[c.with].Seconds()
		}
		res.compare(x)
	}
	res.compare(ratio{Name: "processor time of hostile workers, to that of honest ones", Unit: "ms", Before: millis(r.neighbourTime), During: millis(r.hostileTime)})
}

// compare adds a ratio, if there is something to compare with: JSON has no number for what is infinite.
func (res *result) compare(x ratio) {
	if x.Before > 0 {
		x.Ratio = x.During / x.Before
		res.Ratios = append(res.Ratios, x)
	}
}

// write prints the result.
func (res *result) write(out io.Writer, asJSON bool) error {
	if asJSON {
		e := json.NewEncoder(out)
		e.SetIndent("", "  ")
		e.SetEscapeHTML(false)
		return e.Encode(res)
	}
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	p := func(format string, args ...any) { fmt.Fprintf(t, format, args...) }
	p("\nfault\tinjected\tcalls that failed\n")
	for _, f := range res.Faults {
		p("%s\t%d\t%d", f.Name, f.Injected, f.Errors)
		if f.Promised > 0 {
			p("\tof these %d as docs/semantics.md says", f.Promised)
		}
		p("\n")
	}
	for _, name := range slices.Sorted(maps.Keys(res.Skipped)) {
		p("%s\tskipped\t%s\n", name, res.Skipped[name])
	}
	if j := res.Calls; j != nil {
		j.print(p)
	}
	p("unexplained\t%d\tfailed in the %.1f of %.1f s in which no fault explains it\nbad requests\t%d\twrong bytes at a handler\ncrashes\t%d\tof daemons\nattached again\t%d\tprocesses that lost their daemon\n",
		res.Unexplained, res.Undisturbed, res.Scheduled, res.BadRequests, res.Crashes, res.Reattached)
	if len(res.Recoveries) > 0 {
		p("\nrecovery\tcount\tp50 ms\tp99 ms\tmost ms\n")
		for _, x := range res.Recoveries {
			p("%s\t%d\t%.1f\t%.1f\t%.1f\n", x.Name, x.Count, x.P50, x.P99, x.Max)
		}
	}
	if len(res.Ratios) > 0 {
		p("\ncompared\tbefore\tduring\tratio\n")
		for _, x := range res.Ratios {
			p("%s\t%.3g %s\t%.3g %s\t%.2f\n", x.Name, x.Before, x.Unit, x.During, x.Unit, x.Ratio)
		}
	}
	p("\nprocess\tmemory at start, end\tdescriptors at start, end\n")
	for _, u := range res.Usage {
		p("%s\t%d MiB, %d MiB\t%d, %d\n", u.Name, u.Start.Anon>>20, u.End.Anon>>20, u.Start.FDs, u.End.FDs)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	return res.conclude(out)
}

// print prints what the books say.
func (j *judgement) print(p func(format string, args ...any)) {
	p("\ncalls\t%d\thandlers ran %d times\n", j.Calls, j.Executions)
	for _, name := range outcomeNames {
		if n := j.Outcomes[name]; n > 0 {
			p("  %s\t%d\n", name, n)
		}
	}
	p("  of killed workers\t%d\n", j.Open)
	p("failed\t%d\n", len(j.failures))
	for _, style := range slices.Sorted(maps.Keys(j.Failures)) {
		var how []string
		for _, o := range slices.Sorted(maps.Keys(j.Failures[style])) {
			how = append(how, fmt.Sprintf("%d %s", j.Failures[style][o], o))
		}
		p("  %s\t\t%s\n", style, strings.Join(how, ", "))
	}
	p("\nstyle\tto the own node\tworked\tto the other\tworked\n")
	for s := range styles {
		c := j.Styles[s.String()]
		p("%v\t%d\t%d\t%d\t%d\n", s, c.Own.Calls, c.Own.Worked, c.Peer.Calls, c.Peer.Worked)
	}
	p("\nlost\t%d\tanswered, but not executed\nduplicated\t%d\texecuted more than once\ndenied\t%d\texecuted, but said not to be\nstuck\t%d\twithout an outcome\nwrong\t%d\twrong bytes, or an error that no call may end with\ndisordered\t%d\tstarted before one that was sent earlier\n",
		j.Lost, j.Duplicated, j.Denied, j.Stuck, j.Wrong, j.Disordered)
}

// conclude says how the run ended.
func (res *result) conclude(out io.Writer) error {
	fmt.Fprintf(out, "\nThe run took %.1f s and ended because %s.\n", res.Seconds, res.Why)
	for _, u := range res.Unreached {
		fmt.Fprintf(out, "limit not reached: %s\n", u)
	}
	if len(res.Unproven) > 0 {
		fmt.Fprintf(out, "not injected, and so not shown to make no call fail: %s\n", strings.Join(res.Unproven, ", "))
	}
	if !res.Failed {
		_, err := fmt.Fprintf(out, "Nothing was lost. Seed %d.\n", res.Seed)
		return err
	}
	fmt.Fprintln(out, "FAILED:")
	for _, p := range res.Problems {
		fmt.Fprintln(out, " ", p)
	}
	if res.Calls != nil {
		for _, e := range res.Calls.Examples {
			fmt.Fprintln(out, "   ", e)
		}
	}
	_, err := fmt.Fprintf(out, "To repeat it: %s\n", res.Command)
	return err
}
