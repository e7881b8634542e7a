package guard

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// bound is what something costs, or gains, and how much that may become.
type bound struct {
	name, unit string
	// measured is what it was when the bound was written, on a machine with two CPUs.
	measured float64
	// most it may be, or least if most is 0.
	most, least float64
}

func (b *bound) holds(value float64) bool {
	if b.most > 0 {
		return value <= b.most
	}
	return value >= b.least
}

func (b *bound) String() string {
	limit := fmt.Sprintf("at most %g", b.most)
	if b.most == 0 {
		limit = fmt.Sprintf("at least %g", b.least)
	}
	return fmt.Sprintf("%s, %s: was %g, may be %s", b.name, b.unit, b.measured, limit)
}

// better reports whether x is further from breaking the bound than y.
func (b *bound) better(x, y float64) bool {
	if b.most > 0 {
		return x < y
	}
	return x > y
}

// counts are what is counted, each with its bounds. A bound has room for what varies from
// run to run and for a machine that is busy, and none for a step more for each call, or for
// each batch: those of what is traced lie between the floor, which is the same everywhere,
// and the floor with one more.
// Where a change makes something cheaper, lower the bound with it; where one has a good
// reason to make something dearer, the change is where the reason belongs.
var counts = []struct {
	name    string
	measure func(t *testing.T) map[string]float64
	bounds  []bound
}{
	// Every system call of a traced process lets others run, so that agents linger (shm.Linger) each time and
	// yield more often than otherwise: without a tracer these are 4.2 for each daemon, where agents that do not
	// linger have 4.4, and 5.6 here.
	{"one call at a time", oneCall, []bound{
		{name: "caller", unit: "system calls per call", measured: 1.0, most: 1.5},
		{name: "near daemon", unit: "system calls per call", measured: 6.2, most: 6.8},
		{name: "far daemon", unit: "system calls per call", measured: 6.5, most: 7.1},
		{name: "service", unit: "system calls per call", measured: 1.0, most: 1.5},
		{name: "wake-ups", unit: "of all processes, per call", measured: 4.0, most: 4.6},
	}},
	{"one call at a time of a service in the core", withinCore, []bound{
		{name: "caller", unit: "system calls per call", measured: 1.0, most: 1.5},
		{name: "near daemon", unit: "system calls per call", measured: 5.5, most: 6.1},
		{name: "far daemon", unit: "system calls per call", measured: 5.6, most: 6.2},
		{name: "wake-ups", unit: "of all processes, per call", measured: 3.0, most: 3.5},
	}},
	// The near daemon sleeps once more where the far one has a processor of its own.
	{"calls after a rest", rested, []bound{
		{name: "caller", unit: "system calls per call", measured: 2.0, most: 2.8},
		{name: "near daemon", unit: "system calls per call", measured: 8.6, most: 9.2},
		{name: "far daemon", unit: "system calls per call", measured: 6.5, most: 7.1},
		{name: "service", unit: "system calls per call", measured: 1.0, most: 1.6},
		{name: "wake-ups", unit: "of all processes, per call", measured: 5.0, most: 5.8},
	}},
	{"batches of 64", batches, []bound{
		{name: "caller", unit: "system calls per message", measured: 0.016, most: 0.025},
		{name: "near daemon", unit: "system calls per message", measured: 0.115, most: 0.135},
		{name: "far daemon", unit: "system calls per message", measured: 0.115, most: 0.135},
		{name: "service", unit: "system calls per message", measured: 0.016, most: 0.025},
		{name: "wake-ups", unit: "of all processes, per message", measured: 0.063, most: 0.074},
		{name: "Go runtime", unit: "futex calls of caller, service and agents per message", measured: 0.004, most: 0.6},
		{name: "work requests", unit: "per message, requests and answers", measured: 0.016, most: 0.02},
		{name: "copied to send", unit: "bytes per message", measured: 0.5, most: 0.7},
		{name: "copied when received", unit: "bytes per message", measured: 128.5, most: 132},
		{name: "bytes sent", unit: "per message", measured: 128.5, most: 132},
	}},
	{"one-way messages", oneWay, []bound{
		{name: "caller", unit: "system calls per message", measured: 0.016, most: 0.025},
		{name: "near daemon", unit: "system calls per message", measured: 0.115, most: 0.135},
		{name: "far daemon", unit: "system calls per message", measured: 0.115, most: 0.135},
		{name: "service", unit: "system calls per message", measured: 0.016, most: 0.025},
		{name: "wake-ups", unit: "of all processes, per message", measured: 0.063, most: 0.074},
		{name: "Go runtime", unit: "futex calls of caller, service and agents per message", measured: 0.005, most: 0.6},
	}},
	// The caller mostly yields once and has its answer; else it sleeps, and is woken.
	{"one call at a time within a node", withinNode, []bound{
		{name: "caller", unit: "system calls per call", measured: 1.1, most: 2.5},
		{name: "daemon", unit: "system calls per call", measured: 2.9, most: 3.9},
		{name: "service", unit: "system calls per call", measured: 1.0, most: 1.5},
		{name: "wake-ups", unit: "of all processes, per call", measured: 1.1, most: 1.7},
	}},
	{"messages of 8 KiB", pages, []bound{
		{name: "copied to send", unit: "bytes per byte", measured: 0.004, most: 0.01},
		{name: "copied when received", unit: "bytes per byte", measured: 1.012, most: 1.05},
		{name: "bytes sent", unit: "per byte", measured: 1.012, most: 1.05},
	}},
	{"operations on regions", regions, []bound{
		{name: "copied to send", unit: "bytes per byte", measured: 0.001, most: 0.01},
		{name: "copied when received", unit: "bytes per byte", measured: 0.13, most: 0.4},
		{name: "bytes sent", unit: "per byte", measured: 1.0, most: 1.02},
	}},
	{"8 callers with 64 requests each", load, []bound{
		{name: "request group", unit: "messages", measured: 140, least: 64},
		{name: "answer group", unit: "messages", measured: 140, least: 64},
		{name: "wake-ups", unit: "by both daemons, per message", measured: 0.02, most: 0.04},
		{name: "cycles", unit: "of both agents, per message", measured: 0.025, most: 0.06},
	}},
	// Agents that take in one read for each cycle need 0.021 cycles, and 0.022 turns. The turns are 0.018 where no io_uring wakes.
	{"8 callers with 64 requests each on one CPU", loadOnOneCPU, []bound{
		{name: "request group", unit: "messages", measured: 168, least: 100},
		{name: "answer group", unit: "messages", measured: 171, least: 100},
		{name: "wake-ups", unit: "by both daemons, per message", measured: 0.018, most: 0.025},
		{name: "cycles", unit: "of both agents, per message", measured: 0.01, most: 0.015},
		{name: "turns", unit: "of both agents on the CPU, per message", measured: 0.0113, most: 0.0195},
	}},
	{"8 callers that post all they can on one CPU", flood, []bound{
		{name: "request group", unit: "messages", measured: 215, least: 100},
		{name: "answer group", unit: "messages", measured: 178, least: 100},
	}},
	{"one call at a time on one CPU", switches, []bound{
		{name: "caller", unit: "sleeps per call", measured: 1.2, most: 2.2},
		{name: "near daemon", unit: "sleeps of the agent per call", measured: 0.5, most: 1.4},
		{name: "far daemon", unit: "sleeps of the agent per call", measured: 0.5, most: 1.4},
		{name: "wake-ups", unit: "by both daemons, per call", measured: 2, most: 2.2},
	}},
	{"allocations", allocations, []bound{
		{name: "caller", unit: "objects per message", measured: 0, most: 0.3},
		{name: "near daemon", unit: "objects per message", measured: 0.07, most: 0.5},
		{name: "far daemon", unit: "objects per message", measured: 0.07, most: 0.5},
		{name: "service", unit: "objects per message", measured: 0, most: 0.3},
	}},
}

// Something is counted attempts times, and on until patience is over. What a busy machine adds
// to a count comes by chance, what a change to the program adds is always there: so the best
// count is the one that says something about the program. It is many because bounds are tight:
// more than the first one are made on a busy machine only.
const (
	attempts = 24
	patience = time.Minute
)

func TestCounts(t *testing.T) {
	for _, c := range counts {
		t.Run(c.name, func(t *testing.T) {
			best := map[string]float64{}
			for n, began := 0, time.Now(); n < attempts || n < 10*attempts && time.Since(began) < patience; n++ {
				var got map[string]float64
				// A test of its own, so that its nodes end with it.
				if !t.Run("count", func(t *testing.T) { got = c.measure(t) }) || got == nil {
					return // it has said why
				}
				good := true
				for i := range c.bounds {
					b := &c.bounds[i]
					value, ok := got[b.name]
					if !ok {
						t.Fatalf("%s was not counted", b.name)
					}
					if old, ok := best[b.name]; !ok || b.better(value, old) {
						best[b.name] = value
					}
					good = good && b.holds(best[b.name])
				}
				for name := range got {
					if !slices.ContainsFunc(c.bounds, func(b bound) bool { return b.name == name }) {
						t.Fatalf("%s has no bound", name)
					}
				}
				if good {
					break
				}
			}
			for i := range c.bounds {
				b := &c.bounds[i]
				if t.Logf("%-14s %8.4f (%s)", b.name, best[b.name], b); !b.holds(best[b.name]) {
					t.Errorf("%.4f: %s", best[b.name], b)
				}
			}
		})
	}
}
