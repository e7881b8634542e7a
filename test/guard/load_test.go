package guard

import (
	"sync"
	"testing"

	"github.com/rdmad/rdmad/internal/daemontest"
)

// crowd is how many callers there are under load, each with a batch of requests under way.
const crowd = 8

// load counts what messages cost while processes that nobody slows down have many of
// them under way. How they meet depends on the machine, so these bounds are wide.
func load(t *testing.T) map[string]float64 { return loaded(t, "futures", 50, false) }

// loadOnOneCPU counts them, and how often the agents get the CPU, where all processes have to share one: as often as
// they let go of it before everybody whom they have something for has had it, and before they have all that is there for them.
func loadOnOneCPU(t *testing.T) map[string]float64 { return loaded(t, "futures", 50, true) }

// flood counts how one-way messages and their answers are grouped while callers post all that there is room
// for. It goes on for so long that the far daemon has had the time to find that the callers are alike.
func flood(t *testing.T) map[string]float64 {
	all := loaded(t, "flood", 4000, true)
	return map[string]float64{"request group": all["request group"], "answer group": all["answer group"]}
}

func loaded(t *testing.T, style string, rounds int, pinned bool) map[string]float64 {
	messages := float64(rounds * crowd * batchSize)
	a, b := daemontest.Pair(t, sleepsAtOnce)
	service := startService(t, b)
	defer service.Kill()
	callers := make([]*callerProcess, crowd)
	for i := range callers {
		callers[i] = startCaller(t, a)
		defer callers[i].stop()
	}
	cores := make([]int, 2)
	for i, n := range []*daemontest.Node{a, b} {
		var err error
		if cores[i], err = n.Core(); err != nil {
			t.Fatal(err)
		}
	}
	if pinned {
		pin(t, service.Process.Pid)
		for _, pid := range cores {
			pin(t, pid)
		}
		for _, c := range callers {
			pin(t, c.Process.Process.Pid)
		}
	}
	all := func(n int) {
		var wg sync.WaitGroup
		for _, c := range callers {
			wg.Go(func() {
				c.rounds(style, n)
				c.rounds("call", 1) // until then what it has posted is sent
			})
		}
		wg.Wait()
	}
	all(warmUp)
	counters := func(n *daemontest.Node) map[string]uint64 {
		s, err := n.Status(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return s.Counters
	}
	beforeA, beforeB := counters(a), counters(b)
	turnsBefore := turns(t, cores[0]) + turns(t, cores[1])
	all(rounds)
	turnsAfter := turns(t, cores[0]) + turns(t, cores[1])
	afterA, afterB := counters(a), counters(b)
	near := func(name string) float64 { return float64(afterA[name] - beforeA[name]) }
	far := func(name string) float64 { return float64(afterB[name] - beforeB[name]) }
	if sent := near("requests_sent"); sent < messages {
		t.Fatalf("%v requests were sent, want %v", sent, messages)
	}
	t.Logf("near: %v cycles, %v sleeps, %v wakes; far: %v, %v, %v", near("agent_cycles"), near("agent_sleeps"), near("wakes"),
		far("agent_cycles"), far("agent_sleeps"), far("wakes"))
	got := map[string]float64{
		"request group": near("requests_sent") / near("request_groups"),
		"answer group":  far("answers_sent") / far("answer_groups"),
		"wake-ups":      (near("wakes") + far("wakes")) / messages,
		"cycles":        (near("agent_cycles") + far("agent_cycles")) / messages,
	}
	if pinned {
		got["turns"] = float64(turnsAfter-turnsBefore) / messages
	}
	return got
}
