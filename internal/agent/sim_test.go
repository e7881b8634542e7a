package agent

import (
	"flag"
	"fmt"
	"maps"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

var (
	simSeedFlag = flag.Int64("sim.seed", -1, "TestSimulation: run this seed alone, and with -v show all that happens")
	simSeeds    = flag.Int("sim.seeds", 2000, "TestSimulation: how many seeds to run")
	simFirst    = flag.Int64("sim.first", 0, "TestSimulation: the first seed")
	simSteps    = flag.Int("sim.steps", 1000, "TestSimulation: steps of each simulation before the faults end")
)

// simTB lets what verifies for a test verify for a simulation.
type simTB struct {
	testing.TB
	w *world
}

func (simTB) Helper() {}

func (t simTB) Fatalf(format string, args ...any) { t.w.fail(format, args...) }

// simulate runs one seed. It returns what went wrong, "" for nothing.
func simulate(seed uint64, mutant string, steps int, a *arena, tracing bool) (w *world, wrong string) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if r := recover(); r != nil {
			f, ok := r.(simFailure)
			if !ok {
				f = simFailure(fmt.Sprintf("step %d: panic: %v\n%s", w.step, r, debug.Stack()))
			}
			wrong = string(f)
		}
		if w != nil {
			for _, n := range w.nodes {
				if n != nil && n.core != nil {
					n.core.a.Release()
				}
			}
		}
	}()
	w = newWorld(seed, mutant, a, tracing)
	w.run(steps)
	return w, ""
}

// TestSimulation lets two nodes, the fabric between them, clients and processes of a
// service go through all faults that there are, in an order that a seed decides, and
// verifies what is promised about every request. See docs/testing.md.
func TestSimulation(t *testing.T) {
	if *simSeedFlag >= 0 {
		a := mustArena(t)
		w, wrong := simulate(uint64(*simSeedFlag), "", *simSteps, a, true)
		t.Log("\n" + strings.Join(w.trace, "\n"))
		if wrong != "" {
			t.Error(wrong)
		}
		return
	}
	seeds := *simSeeds
	if raceEnabled {
		seeds /= 20
	}
	total := sweep(t, "", seeds, func(seed uint64, wrong string) bool {
		t.Errorf("%s\ngo test ./internal/agent -run 'TestSimulation$' -sim.seed %d -sim.steps %d -v", wrong, seed, *simSteps)
		return !t.Failed()
	})
	for _, what := range slices.Sorted(maps.Keys(total)) {
		t.Logf("%9d  %s", total[what], what)
	}
	if !raceEnabled && seeds >= 2000 {
		for _, point := range corePoints {
			mustOccur = append(mustOccur, "crash: at "+point)
		}
		for _, what := range mustOccur {
			if total[what] == 0 {
				t.Errorf("never: %s", what)
			}
		}
	}
}

// The same seed is the same simulation, or no failure could be looked at again.
func TestSimulationIsDeterministic(t *testing.T) {
	a := mustArena(t)
	for seed := range uint64(2 * len(profiles)) {
		first, wrong := simulate(seed, "", *simSteps, a, true)
		again, wrongAgain := simulate(seed, "", *simSteps, a, true)
		if wrong != wrongAgain || !slices.Equal(first.trace, again.trace) || !maps.Equal(first.counts, again.counts) {
			t.Errorf("seed %d: %d and %d events, %q and %q", seed, len(first.trace), len(again.trace), wrong, wrongAgain)
		}
	}
}

// sweep runs seeds until more says no, and returns how often what occurred.
func sweep(t *testing.T, mutant string, seeds int, more func(seed uint64, wrong string) bool) map[string]int {
	var mu sync.Mutex
	var wg sync.WaitGroup
	var next atomic.Int64
	total := make(map[string]int)
	over := false
	for range simGoroutines {
		a := mustArena(t)
		wg.Go(func() {
			for {
				mu.Lock()
				end := over
				mu.Unlock()
				k := next.Add(1) - 1
				if end || k >= int64(seeds) {
					return
				}
				seed := uint64(*simFirst + k)
				w, wrong := simulate(seed, mutant, *simSteps, a, false)
				mu.Lock()
				if w != nil {
					for what, n := range w.counts {
						total[what] += n
					}
				}
				total["seeds"]++
				if wrong != "" && !over {
					over = !more(seed, wrong)
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return total
}

func mustArena(t *testing.T) *arena {
	a, err := newArena()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = a.close() })
	return a
}

// mustOccur is what has to happen in a run of all seeds, for it to say anything.
var mustOccur = []string{
	"crash: after a step",
	"crash: before a store to the answer words",
	"crash: before a store to the heads and tails of a worker's rings",
	"crash: before a store to the hints of a worker",
	"crash: before a store to the journal",
	"crash: before a store to the marks of the domain",
	"crash: before a store to the records",
	"crash: before a store to the slots",
	"crash: before a store to the words",
	"crash: before a store to the words of the lane",
	"core: adopted",
	"caller gone: dropped",
	"caller gone: heard",
	"client: dies while it claims",
	"client: dies while it frees",
	"client: dies with a request claimed",
	"client: dies with a request published",
	"client: does not ring",
	"client: revoked",
	"connection: made",
	"connection: not made",
	"fabric: completion twice",
	"fabric: flushed",
	"fabric: half a write",
	"fabric: landed, completion lost",
	"fabric: on the wire after a close",
	"fabric: reset",
	"fabric: silent loss",
	"group: held back",
	"hold: over",
	"look at the queues: interrupted",
	"loss of a node",
	"message: dropped",
	"message: executed",
	"mirror: dropped",
	"node: stops for a while",
	"outcome: deadline passed",
	"outcome: may have been executed",
	"outcome: no such service",
	"outcome: not executed",
	"outcome: ok",
	"post: error",
	"post: queue full",
	"service: dies in a handler, answered",
	"service: dies in a handler, done",
	"service: dies in a handler, started",
	"service: loses its connection and lives on",
	"session: cut",
	"session: made",
	"verdict: answered",
	"verdict: executing",
	"verdict: not seen",
	"worker: killed",
}
