package guard

import (
	"fmt"
	"slices"
	"testing"
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
// run to run and for a machine that is busy, and none for a step more for each message:
// of system calls per call it is the floor that is stable, while bells and sleeps depend
// on who happens to be awake.
// Where a change makes something cheaper, lower the bound with it; where one has a good
// reason to make something dearer, the change is where the reason belongs.
var counts = []struct {
	name    string
	measure func(t *testing.T) map[string]float64
	bounds  []bound
}{
	{"one call at a time", oneCall, []bound{
		{name: "caller", unit: "system calls per call", measured: 1.0, most: 2.3},
		{name: "near daemon", unit: "system calls per call", measured: 7.8, most: 8.7},
		{name: "far daemon", unit: "system calls per call", measured: 7.9, most: 8.7},
		{name: "service", unit: "system calls per call", measured: 1.0, most: 2.3},
		{name: "wake-ups", unit: "of all processes, per call", measured: 4.0, most: 6.3},
		{name: "Go runtime", unit: "futex calls of the caller per call", measured: 2.0, most: 6},
	}},
	{"batches of 64", batches, []bound{
		{name: "caller", unit: "system calls per message", measured: 0.016, most: 0.1},
		{name: "near daemon", unit: "system calls per message", measured: 0.125, most: 0.17},
		{name: "far daemon", unit: "system calls per message", measured: 0.125, most: 0.17},
		{name: "service", unit: "system calls per message", measured: 0.016, most: 0.14},
		{name: "wake-ups", unit: "of all processes, per message", measured: 0.063, most: 0.2},
		{name: "work requests", unit: "per message, requests and answers", measured: 0.016, most: 0.03},
		{name: "copied to send", unit: "bytes per message", measured: 0.5, most: 2},
		{name: "copied when received", unit: "bytes per message", measured: 128.5, most: 140},
		{name: "bytes sent", unit: "per message", measured: 128.5, most: 140},
	}},
	{"one-way messages", oneWay, []bound{
		{name: "caller", unit: "system calls per message", measured: 0.016, most: 0.12},
		{name: "near daemon", unit: "system calls per message", measured: 0.125, most: 0.2},
		{name: "far daemon", unit: "system calls per message", measured: 0.125, most: 0.2},
		{name: "service", unit: "system calls per message", measured: 0.016, most: 0.14},
		{name: "wake-ups", unit: "of all processes, per message", measured: 0.063, most: 0.2},
	}},
	{"one call at a time within a node", withinNode, []bound{
		{name: "caller", unit: "system calls per call", measured: 1.0, most: 2.3},
		{name: "daemon", unit: "system calls per call", measured: 5.0, most: 5.8},
		{name: "service", unit: "system calls per call", measured: 1.0, most: 2.3},
		{name: "wake-ups", unit: "of all processes, per call", measured: 2.0, most: 4.3},
	}},
	{"messages of 8 KiB", pages, []bound{
		{name: "copied to send", unit: "bytes per byte", measured: 0.004, most: 0.02},
		{name: "copied when received", unit: "bytes per byte", measured: 1.012, most: 1.05},
		{name: "bytes sent", unit: "per byte", measured: 1.012, most: 1.05},
	}},
	{"operations on regions", regions, []bound{
		{name: "copied to send", unit: "bytes per byte", measured: 0.001, most: 0.02},
		{name: "copied when received", unit: "bytes per byte", measured: 0.13, most: 0.4},
		{name: "bytes sent", unit: "per byte", measured: 1.0, most: 1.02},
	}},
	{"8 callers with 64 requests each", load, []bound{
		{name: "request group", unit: "messages", measured: 140, least: 16},
		{name: "answer group", unit: "messages", measured: 140, least: 16},
		{name: "wake-ups", unit: "by both daemons, per message", measured: 0.02, most: 0.1},
		{name: "cycles", unit: "of both agents, per message", measured: 0.025, most: 0.2},
	}},
	{"one call at a time on one CPU", switches, []bound{
		{name: "caller", unit: "sleeps per call", measured: 2.0, most: 6},
		{name: "near daemon", unit: "sleeps of the agent per call", measured: 0, most: 2.2},
		{name: "far daemon", unit: "sleeps of the agent per call", measured: 0, most: 2.2},
		{name: "wake-ups", unit: "by both daemons, per call", measured: 2, most: 2.2},
	}},
	{"allocations", allocations, []bound{
		{name: "caller", unit: "objects per message", measured: 0, most: 0.6},
		{name: "near daemon", unit: "objects per message", measured: 0.03, most: 0.6},
		{name: "far daemon", unit: "objects per message", measured: 0.03, most: 0.6},
		{name: "service", unit: "objects per message", measured: 0, most: 0.6},
	}},
}

// attempts is how often something is counted. What a busy machine adds to a count comes by
// chance, what a change to the program adds is always there: so the best count is the
// one that says something about the program.
const attempts = 8

func TestCounts(t *testing.T) {
	for _, c := range counts {
		t.Run(c.name, func(t *testing.T) {
			best := map[string]float64{}
			for range attempts {
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
